"""tritonclient's index, load and unload, over HTTP and gRPC, against a real server process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import serving_module

ASK = """
import json, sys
import numpy as np
import tritonclient.{kind} as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(sys.argv[1])


def index():
    found = client.get_model_repository_index(**({{"as_json": True}} if "{kind}" == "grpc" else {{}}))
    found = found["models"] if isinstance(found, dict) else found
    return [(entry["name"], entry.get("version", ""), entry.get("state"), entry.get("reason", "")) for entry in found]


def answer():
    tensor = triton.InferInput("x", [2], "FP32")
    tensor.set_data_from_numpy(np.array([1, 2], "f4"))
    return client.infer("org/affine", [tensor]).as_numpy("output_0").tolist()


weights = np.array([3, 5], "<f4").tobytes()
# over gRPC nothing has loaded it yet, the host's lifespan has over HTTP
assert index()[1] == ("plain", "2", "READY", ""), index()
client.load_model("org/affine", config=json.dumps({{"offset": 0.5}}), files={{"file:1/weights": weights}})
assert index()[0] == ("org/affine", "", "READY", ""), index()
assert answer() == [3.5, 10.5], answer()
client.load_model("org/affine")
assert answer() == [0, 0], answer()
assert client.is_model_ready("org/affine")
client.unload_model("org/affine", unload_dependents=True)
assert not client.is_model_ready("org/affine")
assert client.is_server_ready()
assert client.is_model_ready("plain", "2")
above = {{"config": "{{}}", "files": {{"file:../weights": weights}}}}
for wrong in ({{"files": {{"file:1/weights": weights}}}}, {{"config": "[]"}}, above):
    try:
        client.load_model("org/affine", **wrong)
    except InferenceServerException as error:
        print(error.status(), error.message())
    else:
        raise SystemExit("it was not refused")
try:
    answer()
except InferenceServerException as error:
    print(error.status(), error.message())
client.load_model("org/affine", config="{{}}")
assert client.is_model_ready("org/affine")
"""


@pytest.mark.clients
@pytest.mark.parametrize(
    ("kind", "statuses"), [("http", ("400", "503")), ("grpc", ("StatusCode.INVALID_ARGUMENT", "StatusCode.UNAVAILABLE"))]
)
def test_tritonclient_lists_loads_and_unloads(kind: str, statuses: tuple[str, str]) -> None:
    with serving_module("tests.support.controlled", "grpc" if kind == "grpc" else "rest") as (_, address):
        # its messages are called as other packages' are, so it has a process of its own
        asked = [sys.executable, "-c", ASK.format(kind=kind), address]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    files, config, path, unloaded = done.stdout.splitlines()
    wrong, unavailable = statuses
    assert files == f"{wrong} parameters have files but no config: send the parameter config too"
    assert config.startswith(f"{wrong} parameters.config: expected the text of a JSON object: ")
    assert path == f"{wrong} parameters['file:../weights']: expected a relative path, without '..', such as file:1/model.onnx"
    assert unloaded == f"{unavailable} model 'org/affine' is not ready: it was unloaded"
