"""Triton with one model in its Python backend and its dynamic batcher: `python batching_triton.py MODEL PORT`.

The backend is given several requests at once, and calls the model once for all of them, as Triton's documentation advises.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from serve_triton import run

_MODEL: Final = """
import numpy as np
import triton_python_backend_utils as backend
from batching_models import models

class TritonPythonModel:
    def initialize(self, args):
        self.predict = models()["{name}"]

    def execute(self, requests):
        images = [backend.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        digits = np.split(self.predict(np.concatenate(images)), np.cumsum([len(image) for image in images])[:-1])
        return [backend.InferenceResponse([backend.Tensor("y", found)]) for found in digits]
"""

_CONFIG: Final = """
backend: "python"
max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: [64] }
output { name: "y" data_type: TYPE_INT64 dims: [1] reshape: { shape: [] } }
dynamic_batching { max_queue_delay_microseconds: 2000 }
instance_group { kind: KIND_CPU count: 1 }
"""


def main() -> None:
    name, port = sys.argv[1:3]
    folder = Path(tempfile.mkdtemp())
    version = folder / "models" / name / "1"
    version.mkdir(parents=True)
    version.with_name("config.pbtxt").write_text(_CONFIG)
    (version / "model.py").write_text(_MODEL.format(name=name))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        grpc_port = str(unused.getsockname()[1])
    run(folder, port, grpc_port, str(Path(__file__).parent))


if __name__ == "__main__":
    main()
