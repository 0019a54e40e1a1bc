"""Triton with the models of the table: `python -m tests.lab.peers.triton_models PORT GRPC_PORT [MODEL]`, by the Python that has it.

A model of the table that takes anything is one model for each datatype here, as Triton's declare what they take.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

DATATYPES: Final = {
    **{name: f"TYPE_{name}" for name in ("BOOL", "FP16", "FP32", "FP64")},
    **{f"{sign}INT{bits}": f"TYPE_{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "BYTES": "TYPE_STRING",
}
"""The protocol's datatypes, and how a configuration of Triton's spells them."""

_MODEL: Final = """
import numpy as np
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        read = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        return backend.InferenceResponse([backend.Tensor(name, value) for name, value in self.compute(**read).items()])

    def compute(self, EXPRESSION
"""

X_TO_Y: Final = "x): return {'y': x}"


def models() -> dict[str, tuple[str, str, str]]:
    """By name: what a model computes, and its inputs and outputs, each as `name datatype dims`, with semicolons between them."""
    return {
        **{f"echo-{datatype}": ("x): return {'x': x}", f"x {datatype} -1", f"x {datatype} -1") for datatype in DATATYPES},
        "two": ("x, n): return {'y': x, 'm': n}", "x FP32 -1,2;n INT64 1", "y FP32 -1,2;m INT64 1"),
        "one": (X_TO_Y, "x FP32 -1", "y FP32 -1"),
        "raw-fixed": (X_TO_Y, "x INT16 2,2", "y INT16 2,2"),
        "raw-bytes": (X_TO_Y, "x BYTES -1", "y BYTES -1"),
        "raw-free": ("x): return {'output_0': x}", "x FP32 -1,-1", "output_0 FP32 -1,-1"),
        "optional": ("x, bias=np.float32(0)): return {'output_0': x + bias}", "x FP32 -1;bias FP32 -1 optional: true", "output_0 FP32 -1"),
    }


def _write_tensors(kind: str, text: str) -> str:
    lines = []
    for each in text.split(";"):
        name, datatype, dims, *more = each.split(" ", 3)
        lines.append(f'{kind} {{ name: "{name}" data_type: {DATATYPES[datatype]} dims: [{dims}] {" ".join(more)} }}\n')
    return "".join(lines)


def write(repository: Path, only: list[str]) -> None:
    """Write all models, or only some, as Triton's repository wants them."""
    for name, (expression, inputs, outputs) in models().items():
        if only and name not in only:
            continue
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        config = _write_tensors("input", inputs) + _write_tensors("output", outputs)
        folder.with_name("config.pbtxt").write_text(f'backend: "python"\n{config}instance_group {{ kind: KIND_CPU count: 1 }}\n')
        (folder / "model.py").write_text(_MODEL.replace("EXPRESSION", expression))


def main() -> None:
    from tests.lab.bench.peers.serve_triton import run

    folder = Path(tempfile.mkdtemp())
    write(folder / "models", sys.argv[3:])
    run(folder, sys.argv[1], sys.argv[2], os.getcwd())


if __name__ == "__main__":
    main()
