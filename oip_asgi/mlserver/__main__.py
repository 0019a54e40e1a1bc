"""`python -m oip_asgi.mlserver FOLDER`: the same command as `python -m oip_asgi FOLDER`."""

from .._command import main

if __name__ == "__main__":
    main(program="python -m oip_asgi.mlserver")
