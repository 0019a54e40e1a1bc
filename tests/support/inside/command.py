"""What the command `python -m oip_asgi` serves, and what it prints of it."""

from oip_asgi._command.serve import describe_models
from oip_asgi._command.targets import find_target
