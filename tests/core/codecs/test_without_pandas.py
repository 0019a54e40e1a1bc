"""A server where pandas is not installed: its content types are unknown there, and everything else works."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import numpy as np
import pytest

from oip_asgi import InferenceServer
from oip_asgi.codecs import PandasCodec
from tests.support.asking import ask, error, get, outputs


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> InferenceServer:
    monkeypatch.setitem(sys.modules, "pandas", None)  # what makes `import pandas` fail where it is installed
    return InferenceServer()


def test_the_error_for_a_request_of_a_frame_names_what_is_known(server: InferenceServer) -> None:
    server.register("m", lambda x: x)
    known = "np, str, base64, datetime, pd_json"
    assert error(ask(server, "m", {"parameters": {"content_type": "pd"}}, x=[1.0])) == (
        400,
        f"the request has the unknown content_type 'pd': expected one of {known}",
    )
    assert outputs(ask(server, "m", {"parameters": {"content_type": "np"}}, x=[1.0])) == {"output_0": [1.0]}


def test_a_model_that_needs_it_names_the_extra_at_registration(server: InferenceServer) -> None:
    def reads(x: Annotated[Any, PandasCodec]) -> Any: ...
    def writes(x: Any) -> Annotated[Any, PandasCodec]: ...
    def free(x: Any) -> Any: ...

    registrations: list[tuple[Any, dict[str, Any]]] = [
        (free, {"content_type": "pd"}),
        (reads, {}),
        (writes, {}),
    ]
    for function, more in registrations:
        with pytest.raises(ValueError, match=r"needs pandas: pip install pandas$"):
            server.register("m", function, **more)
    assert get(server, "/models")[1] == {"models": []}


UNUSED = """
import sys
from oip_asgi import InferenceServer, TensorSpec

server = InferenceServer()
server.register("free", lambda x: x, inputs=[TensorSpec("x", "FP64", [-1])])
server.register("strings", lambda x: [x], inputs=[TensorSpec("x", "BYTES", [-1], content_type="str")])
print("pandas" in sys.modules)
"""


def test_servers_without_frames_do_not_import_it() -> None:
    """It would take 35 MB and most of a second."""
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False"]


def test_results_without_it(server: InferenceServer) -> None:
    server.register("m", lambda: {"a": np.ones(1), "b": ["x"]})
    assert outputs(ask(server, "m")) == {"a": [1.0], "b": ["x"]}
