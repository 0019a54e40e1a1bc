"""One request through one model."""

from oip_asgi._serving import call_stack, failures, stream
