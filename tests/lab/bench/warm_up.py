"""`python -m tests.lab.bench.warm_up`: what the first and the second request to a model take, without `warm_up=` and with it.

Each number is the CPU time of the process, whose least of several processes counts, as a process has only one first request. The model is
loaded before that, in the lifespan of an ASGI application. It is a network of three convolutions for images, in ONNX Runtime and in torch,
with one thread each; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

import numpy as np

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.ways import Request, send_asgi

from .report import table

_CHANNELS: Final = (3, 32, 64, 64)
_SIZE: Final = 112
_INPUT: Final = TensorSpec("x", "FP32", [-1, 3, _SIZE, _SIZE])


def load_plain() -> Callable[..., Any]:
    """A model that needs no warm-up, to see what the package itself does in its first request."""
    return lambda x: x.mean(axis=(2, 3))


def load_onnx() -> Callable[..., Any]:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights, name = np.random.default_rng(0), [], [], "x"
    for place, (before, after) in enumerate(pairwise(_CHANNELS)):
        weights.append(numpy_helper.from_array(rng.normal(size=(after, before, 3, 3)).astype(np.float32), f"w{place}"))
        nodes += [
            helper.make_node("Conv", [name, f"w{place}"], [f"c{place}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{place}"], [f"r{place}"]),
        ]
        name = f"r{place}"
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape]) for name, shape in (("x", _INPUT.shape[1:]), ("y", "cab"))
    ]
    graph = helper.make_graph(nodes, "images", declared[:1], declared[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})[0]


def load_torch() -> Callable[..., Any]:
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = []
    for before, after in pairwise(_CHANNELS):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).eval()

    def run(x: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(x.copy())).numpy()

    return run


LOADS: Final[Mapping[str, tuple[Callable[[], Callable[..., Any]], Sequence[str]]]] = {
    "plain": (load_plain, ()),
    "ONNX Runtime": (load_onnx, ("onnxruntime", "onnx")),
    "torch": (load_torch, ("torch",)),
}
"""How each model is loaded, and what that needs."""


def measure(name: str, *, warm_up: bool) -> list[float]:
    """The milliseconds of the first two requests to a model in this process, over ASGI."""
    server = InferenceServer()
    server.register("images", load=LOADS[name][0], inputs=[_INPUT], warm_up=warm_up)
    head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3,%d,%d],"parameters":{"binary_data_size":%d}}]}'
    image = np.random.default_rng(1).random((1, 3, _SIZE, _SIZE), np.float32).tobytes()
    json_part = head % (_SIZE, _SIZE, len(image))
    request = Request("POST", "/models/images/infer", [("inference-header-content-length", str(len(json_part)))], json_part + image)

    async def ask() -> list[float]:
        took = []
        async with server.lifespan():
            for _ in range(2):
                since = time.process_time()
                answer = await send_asgi(OIPApp(server), request)
                took.append((time.process_time() - since) * 1000)
                assert answer.status == 200
        return took

    return asyncio.run(ask())


def measure_apart(name: str, *, warm_up: bool, processes: int) -> list[float]:
    """The least of some processes."""
    code = f"from tests.lab.bench.warm_up import measure; import json; print(json.dumps(measure({name!r}, warm_up={warm_up})))"
    rounds = [
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(processes)
    ]
    return [min(each) for each in zip(*rounds, strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.warm_up", description=__doc__)
    parser.add_argument("--processes", type=int, default=9, help="how many for each number")
    processes = parser.parse_args(arguments).processes
    rows = []
    for name, (_, needed) in LOADS.items():
        missing = [module for module in needed if find_spec(module) is None]
        if missing:
            print(f"{name} is left out: {', '.join(missing)} is not installed")
            continue
        took = [each for warm_up in (False, True) for each in measure_apart(name, warm_up=warm_up, processes=processes)]
        rows.append([name, *(f"{each:.1f}" for each in took)])
    print(table(["model, ms of CPU", "first request", "second", "first with warm_up=True", "second"], rows))


if __name__ == "__main__":
    main()
