"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# a shared machine may be slow at any one example; what must be fast is measured by the benchmark
settings.register_profile("oip_asgi", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oip_asgi")
