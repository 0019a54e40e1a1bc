"""One request through one model."""

from oip_asgi._serving import failures, stream, user_code
