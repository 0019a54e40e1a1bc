"""What is said where the extra of a module is not installed, or a name is looked for in another module: what to install or to write."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oip_asgi

MODULES = {
    "oip_asgi.flask": "flask is not installed: pip install flask",
    "oip_asgi.django": "django is not installed: pip install django",
    "oip_asgi.grpc": "google.protobuf is not installed: pip install protobuf, and grpcio for add_to_server",
    "oip_asgi.prometheus": "prometheus_client is not installed: pip install prometheus_client",
    "oip_asgi.opentelemetry": "opentelemetry is not installed: pip install opentelemetry-api",
}


def run(script: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_module_without_its_extra_says_what_to_install() -> None:
    script = f"""
import importlib
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("flask", "django", "asgiref", "prometheus_client", "opentelemetry") or name == "google.protobuf":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for module in {list(MODULES)}:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(error)
"""
    assert run(script) == list(MODULES.values())


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
    missing = "aiohttp is not installed: pip install aiohttp"
    assert run(script) == ["asked", missing, missing, "grpc is not installed: pip install grpcio protobuf"]


def test_what_else_is_missing_is_not_blamed_on_an_extra() -> None:
    script = """
import sys
sys.modules["blinker"] = None
try:
    import oip_asgi.flask
except ImportError as error:
    print(error)
"""
    [said] = run(script)
    assert "blinker" in said
    assert "oip_asgi[" not in said


ELSEWHERE = {
    "oip_asgi.client": ["Client", "AsyncClient", "remote"],
    "oip_asgi.specs": ["specs_of"],
    "oip_asgi.codecs": ["PandasCodec"],
    "oip_asgi.flask": ["blueprint"],
    "oip_asgi.django": ["urls"],
    "oip_asgi.grpc": ["OIPGRPCApp", "add_to_server"],
    "oip_asgi.mlserver": ["register_folder"],
}


@pytest.mark.parametrize("there", ELSEWHERE)
def test_a_name_that_another_module_has_is_an_error_that_says_so(there: str) -> None:
    if there == "oip_asgi.django":
        pytest.importorskip("django")
    spec = importlib.util.find_spec(there)  # whose extra need not be here
    assert spec is not None
    assert spec.origin is not None
    for name in ELSEWHERE[there]:
        with pytest.raises(ImportError) as raised:
            exec(f"from oip_asgi import {name}")
        assert str(raised.value) == f"{name} is not in oip_asgi itself: write from {there} import {name}"
        assert re.search(rf"\b{name}\b", Path(spec.origin).read_text())
        assert name not in dir(oip_asgi)


def test_a_name_that_nothing_has_is_missing_as_in_any_module() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing' from 'oip_asgi'"):
        exec("from oip_asgi import Nothing")
    assert not hasattr(oip_asgi, "Nothing")
