"""`python -m oip_asgi TARGET`: serves a server, an application, a file with a model, or a folder of
MLServer."""

from ._command import main as main

if __name__ == "__main__":
    main()
