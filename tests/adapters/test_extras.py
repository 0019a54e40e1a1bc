"""What is said where the extra of a module is not installed: what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("oip_asgi.client", "httpx", "client"),
        ("oip_asgi.flask", "flask", "flask"),
        ("oip_asgi.django", "django", "django"),
        ("oip_asgi.grpc", "google.protobuf", "grpc-asgi"),
        ("oip_asgi.prometheus", "prometheus_client", "prometheus"),
        ("oip_asgi.opentelemetry", "opentelemetry", "otel"),
    ],
)
def test_a_module_without_its_extra_says_what_to_install(module: str, package: str, extra: str) -> None:
    script = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r} or name.startswith(({package + "."!r}, "asgiref")):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
try:
    import {module}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{package} is not installed: pip install 'oip_asgi[{extra}]'\n"


def test_what_else_is_missing_is_not_blamed_on_an_extra() -> None:
    script = """
import sys
sys.modules["blinker"] = None
try:
    import oip_asgi.flask
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "blinker" in done.stdout
    assert "oip_asgi[" not in done.stdout
