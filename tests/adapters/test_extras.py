"""What is said where the extra of a module is not installed, or a name is looked for in another module: what to install or to write."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oip_asgi


@pytest.mark.parametrize(
    ("module", "package", "install"),
    [
        ("oip_asgi.flask", "flask", "flask"),
        ("oip_asgi.django", "django", "django"),
        ("oip_asgi.grpc", "google.protobuf", "protobuf"),
        ("oip_asgi.prometheus", "prometheus_client", "prometheus_client"),
        ("oip_asgi.opentelemetry", "opentelemetry", "opentelemetry-api"),
    ],
)
def test_a_module_without_its_extra_says_what_to_install(module: str, package: str, install: str) -> None:
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
    also = ", and grpcio for add_to_server" if install == "protobuf" else ""
    assert done.stdout == f"{package} is not installed: pip install {install}{also}\n"


def test_a_client_that_blocks_needs_no_extra_and_the_others_say_which() -> None:
    script = """
import sys
sys.modules.update(dict.fromkeys(("aiohttp", "httpx", "httpx2", "yarl", "grpc", "google.protobuf", "starlette.testclient")))
from oip_asgi.client import AsyncClient, Client, ConnectionFailed, remote
try:
    Client("http://127.0.0.1:1/v2", timeout=1).is_live()
except ConnectionFailed:
    print("asked")
for make in (lambda: AsyncClient("http://127.0.0.1:1/v2"), lambda: remote("http://127.0.0.1:1/v2", "m"), lambda: Client("grpc://127.0.0.1:1")):
    try:
        make()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    missing = "aiohttp is not installed: pip install aiohttp"
    assert done.stdout.splitlines() == ["asked", missing, missing, "grpc is not installed: pip install grpcio protobuf"]


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


ELSEWHERE = {
    "Client": "oip_asgi.client",
    "AsyncClient": "oip_asgi.client",
    "remote": "oip_asgi.client",
    "specs_of": "oip_asgi.specs",
    "PandasCodec": "oip_asgi.codecs",
    "blueprint": "oip_asgi.flask",
    "urls": "oip_asgi.django",
    "OIPGRPCApp": "oip_asgi.grpc",
    "add_to_server": "oip_asgi.grpc",
    "register_folder": "oip_asgi.mlserver",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_that_another_module_has_is_an_error_that_says_so(name: str) -> None:
    there = ELSEWHERE[name]
    with pytest.raises(ImportError) as raised:
        exec(f"from oip_asgi import {name}")
    assert str(raised.value) == f"{name} is not in oip_asgi itself: write from {there} import {name}"
    if there == "oip_asgi.django":
        pytest.importorskip("django")
    spec = importlib.util.find_spec(there)  # whose extra need not be here
    assert spec is not None
    assert spec.origin is not None
    assert re.search(rf"\b{name}\b", Path(spec.origin).read_text())
    assert name not in dir(oip_asgi)


def test_a_name_that_nothing_has_is_missing_as_in_any_module() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing' from 'oip_asgi'"):
        exec("from oip_asgi import Nothing")
    assert not hasattr(oip_asgi, "Nothing")
