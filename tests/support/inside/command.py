"""What the command `python -m oip_asgi` serves, and what it prints of it."""

from oip_asgi._command.serve import describe_served
from oip_asgi._command.targets import find_target
