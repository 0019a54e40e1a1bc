"""Numbers for Prometheus. It needs the extra `[prometheus]`."""

from oip_asgi.prometheus import _write_pages as write_numbers
