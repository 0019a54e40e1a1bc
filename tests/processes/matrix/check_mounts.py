"""Model servers that take an ASGI application beside their own: LitServe and BentoML, each as a real process.

Not collected by itself: `tox -e litserve` and `tox -e bentoml` name this file, each with its own server. The other is skipped.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.support.processes import ROOT, serving, with_variable

from .check_servers import (  # noqa: F401  (the tests of all servers, asked of these)
    Kind,
    connection,
    served,
    test_8_mb_binary,
    test_413_in_the_middle_of_a_body,
    test_chunked_upload,
    test_head,
    test_json,
    test_keep_alive_after_an_error,
    test_metadata,
    test_shutdown_with_a_request_in_flight,
)

ASKED = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}


class Mount(NamedTuple):
    """A model server.

    Args:
        package: What it is installed as.
        matrix: How the matrix is served by it.
        example: How the example is.
        own: The path of the example's own model, and what that answers to `{"x": 3}`.
    """

    package: str
    matrix: Kind
    example: str
    own: tuple[str, object]


MOUNTS = {
    "litserve": Mount(
        "litserve",
        Kind("python -m tests.processes.matrix.litserve_site PORT"),
        "python examples/model_servers/litserve_app.py PORT",
        ("/predict", {"squared": 9}),
    ),
    "bentoml": Mount(
        "bentoml",
        Kind("bentoml serve --port PORT tests.processes.matrix.bentoml_site:Service"),
        "bentoml serve --working-dir examples/model_servers --port PORT bentoml_service:Numbers",
        ("/square", 9.0),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """BentoML's files in a directory of its own; it tells nobody what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENTOML_HOME", str(tmp_path_factory.mktemp("bentoml")))
        patch.setenv("BENTOML_DO_NOT_TRACK", "True")
        yield


@pytest.fixture(scope="module", params=list(MOUNTS.values()), ids=list(MOUNTS))
def mount(request: pytest.FixtureRequest) -> Mount:
    found: Mount = request.param
    if find_spec(found.package) is None:
        pytest.skip(f"{found.package} is not installed")
    return found


@pytest.fixture(scope="module")
def kind(mount: Mount) -> Kind:
    return mount.matrix


def test_the_example_serves_both(mount: Mount, tmp_path: Path) -> None:
    with serving(mount.example.split(), tmp_path / "log") as running, httpx2.Client(base_url=running.url) as client:
        outputs = client.post("/v2/models/double/infer", json=ASKED).json()["outputs"]
        path, own = mount.own
        assert client.post(path, json={"x": 3}).json() == own
    assert outputs[0]["data"] == [2.0, 4.0]


def test_the_example_checks_itself(mount: Mount) -> None:
    if mount.package != "litserve":
        pytest.skip("it is started by a command of BentoML's own")
    command = [sys.executable, "examples/model_servers/litserve_app.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "double   [2.0, 4.0]\n/predict {'squared': 9}\n"), done.stderr


def test_nothing_is_left_of_it(mount: Mount, tmp_path: Path) -> None:
    """Both start processes of their own, which end with the one that is asked to."""
    with serving(mount.example.split(), tmp_path / "log", {"MARK": str(tmp_path)}):
        pass
    end = time.monotonic() + 30
    while left := with_variable(f"MARK={tmp_path}"):
        assert time.monotonic() < end, left
        time.sleep(0.1)
