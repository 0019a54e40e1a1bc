"""What the command `python -m oip_asgi` serves, and what it prints of it."""

from oip_asgi._command import describe_models, find_target
