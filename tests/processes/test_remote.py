"""A model of another server that is killed and comes back, and workers that have one model between them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.client import remote
from tests.support.processes import free_port, get, post, serving
from tests.support.threads import serving as serving_here

pytestmark = pytest.mark.slow

FAR = "tests.support.served"


def status_of(url: str) -> int:
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]})
    return post(f"{url}/models/declared/infer", content=body, timeout=30).status_code


def until(wanted: Any, ask: Any) -> Any:
    end = time.monotonic() + 5
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


@pytest.mark.ci
def test_a_server_that_is_killed_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    command = ["python", "-m", "uvicorn", "--factory", f"{FAR}:make_app", "--port", "PORT", "--log-level", "warning"]
    near = InferenceServer()
    near.register("declared", load=remote(f"http://127.0.0.1:{port}/v2", "declared"))
    with serving(command, tmp_path / "first.log", port=port) as far, serving_here(OIPApp(near, path="/v2")) as here:
        url = f"http://127.0.0.1:{here}/v2"
        assert [status_of(url) for _ in range(3)] == [200] * 3
        assert get(f"{url}/health/ready").status_code == 200
        far.process.send_signal(signal.SIGKILL)
        far.process.wait(10)
        assert [status_of(url) for _ in range(3)] == [503] * 3
        assert until(503, lambda: get(f"{url}/health/ready").status_code) == 503  # what probes get is good for a second
        with serving(command, tmp_path / "second.log", port=port):
            assert status_of(url) == 200
            assert until(200, lambda: get(f"{url}/health/ready").status_code) == 200
