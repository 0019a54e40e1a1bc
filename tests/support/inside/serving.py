"""One request through one model."""

from oip_asgi._serving import call_stack, failures, stream
from oip_asgi._serving.call_stack import find_latest_turn
