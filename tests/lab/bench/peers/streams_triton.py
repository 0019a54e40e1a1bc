"""Triton with a decoupled model in its Python backend: `python -m tests.lab.bench.peers.streams_triton PORT GRPC_PORT`.

It answers a request with as many integers as it asks for. Each request has a thread, as in Triton's own examples of such models.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from .serve_triton import run

_MODEL: Final = """
import threading

import numpy as np
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(backend.get_input_tensor_by_name(request, "n").as_numpy()[0])
            threading.Thread(target=self.answer, args=(request.get_response_sender(), count), daemon=True).start()

    def answer(self, sender, count):
        for index in range(count):
            sender.send(backend.InferenceResponse([backend.Tensor("text_output", np.array([index]))]))
        sender.send(flags=backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CONFIG: Final = """
backend: "python"
input { name: "n" data_type: TYPE_INT64 dims: [1] }
output { name: "text_output" data_type: TYPE_INT64 dims: [1] }
model_transaction_policy { decoupled: true }
instance_group { kind: KIND_CPU count: 1 }
"""


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    version = folder / "models" / "items" / "1"
    version.mkdir(parents=True)
    version.with_name("config.pbtxt").write_text(_CONFIG)
    (version / "model.py").write_text(_MODEL)
    run(folder, sys.argv[1], sys.argv[2], os.getcwd())


if __name__ == "__main__":
    main()
