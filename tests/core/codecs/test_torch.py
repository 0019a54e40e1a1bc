"""Models that take and return `torch.Tensor`. Left out where torch is not installed; `tox -e torch` installs it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, Tensor, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.inside.values import dtype_of
from tests.support.ways import Request, over_asgi

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

DTYPES = {"BOOL": "bool", "FP16": "float16", "BF16": "bfloat16", "FP32": "float32", "FP64": "float64"}
DTYPES |= {name: name.lower() for name in ("UINT8", "UINT16", "INT8", "INT16", "INT32", "INT64")}


@pytest.fixture
def server() -> InferenceServer:
    return InferenceServer()


def test_a_tensor_comes_and_goes(server: InferenceServer) -> None:
    network = torch.nn.Linear(2, 3)

    @server.model("m")
    def forward(x: torch.Tensor) -> torch.Tensor:
        assert type(x) is torch.Tensor
        return network(x)  # which needs a gradient: nobody has to detach it

    x = np.array([[1, 2], [3, 4]], np.float32)
    expected = network(torch.from_numpy(x)).detach().numpy().tolist()
    answer = json.loads(ask(server, "m", x=x).body)["outputs"][0]
    assert (answer["datatype"], answer["shape"]) == ("FP32", [2, 3])
    np.testing.assert_allclose(np.reshape(answer["data"], (2, 3)), expected, rtol=1e-6)
    assert get(server, "/models/m")[1]["parameters"] == {"undeclared_inputs": "x"}


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_comes_back_as_it_came(server: InferenceServer, datatype: str) -> None:
    shape = {"INT8": (2, 2), "INT16": (), "FP64": (0, 2)}.get(datatype, (3,))
    if datatype == "BF16":
        pytest.importorskip("ml_dtypes")
    seen: list[Any] = []

    def same(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, tuple(x.shape)))
        return x

    server.register("m", same)
    array = torch.ones(shape).to(getattr(torch, DTYPES[datatype]))
    is_bfloat = array.dtype == torch.bfloat16
    bits = array.view(torch.int16) if is_bfloat else array
    tensor = Tensor("x", bits.numpy().view(dtype_of(datatype)) if is_bfloat else bits.numpy())
    assert (tensor.datatype, tensor.shape) == (datatype, shape)
    headers, body = InferenceRequest([tensor], parameters={"binary_data_output": True}).to_http(binary=True)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", tuple(headers.items()), body))
    assert answer.status == 200, answer.body
    assert seen == [(array.dtype, shape)]
    document = json.loads(answer.body[: int(answer.headers["inference-header-content-length"])])
    assert (document["outputs"][0]["datatype"], tuple(document["outputs"][0]["shape"])) == (datatype, shape)


def test_a_model_may_change_its_tensor(server: InferenceServer) -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    server.register("m", add)
    assert outputs(ask(server, "m", x=[1.0])) == {"output_0": [2.0]}


def test_what_models_return(server: InferenceServer) -> None:
    server.register("mapping", lambda x: {"a": torch.ones(1), "b": np.ones(1)})
    server.register("tuple", lambda x: (torch.ones(1), torch.zeros(1)))
    server.register("list", lambda x: [torch.ones(2), torch.zeros(2)])
    server.register("transposed", lambda x: torch.arange(6).reshape(2, 3).T)
    server.register("conjugate", lambda x: torch.ones(1, dtype=torch.complex64).conj().real)
    server.register("parameter", lambda x: torch.nn.Parameter(torch.ones(1)))
    server.register("scalar", lambda x: torch.tensor(1.5))
    server.register("declared", lambda x: torch.ones(2, dtype=torch.float64), outputs=[TensorSpec("y", "FP32", [2])])

    for name, expected in {
        "mapping": {"a": [1.0], "b": [1.0]},
        "tuple": {"output_0": [1.0], "output_1": [0.0]},
        "list": {"output_0": [1.0, 1.0, 0.0, 0.0]},
        "transposed": {"output_0": [0, 3, 1, 4, 2, 5]},
        "conjugate": {"output_0": [1.0]},
        "parameter": {"output_0": [1.0]},
        "scalar": {"output_0": [1.5]},
        "declared": {"y": [1.0, 1.0]},
    }.items():
        assert (name, outputs(ask(server, name, x=[1.0]))) == (name, expected)


def test_bfloat16_without_ml_dtypes_says_what_to_install(server: InferenceServer, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtype_of.cache_clear()
    server.register("m", lambda x: torch.ones(1, dtype=torch.bfloat16))
    assert error(ask(server, "m", x=[1.0]))[0] == 500
    assert "a tensor of torch.bfloat16 needs ml_dtypes: pip install ml_dtypes, or use tensor.float()" in caplog.text
    dtype_of.cache_clear()


def test_content_types_and_what_is_refused(server: InferenceServer) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    server.register("m", double)
    said = {"parameters": {"content_type": "np"}}
    assert outputs(ask(server, "m", said, **{"input-1": np.array([[1.0]])})) == {"output_0": [2.0]}
    assert error(ask(server, "m", {"parameters": {"content_type": "str"}}, x=[1.0])) == (
        400,
        "input 'x' has the content_type 'str', which cannot become torch.Tensor, as the model takes it: expected np, or none",
    )
    assert error(ask(server, "m", x=["a"])) == (400, "tensor 'x' has datatype BYTES: expected numbers for torch.Tensor")


def test_declared_and_from_python(server: InferenceServer) -> None:
    def double(x: torch.Tensor | None = None) -> torch.Tensor:
        return torch.zeros(1) if x is None else x * 2

    server.register("m", double, inputs=[TensorSpec("x", "FP32", [-1])])
    assert server.infer_sync("m", {"x": torch.ones(2)})["output_0"].tolist() == [2.0, 2.0]
    assert server.infer_sync("m", {"x": torch.ones(2, requires_grad=True)})["output_0"].tolist() == [2.0, 2.0]
    assert server.infer_sync("m", {})["output_0"].tolist() == [0.0]
    assert InferenceResponse([Tensor("y", np.ones(1))]).as_("y", torch.Tensor).tolist() == [1.0]
