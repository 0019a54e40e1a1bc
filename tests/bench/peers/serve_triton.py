"""Triton with identity models in its Python backend: `python serve_triton.py PORT GRPC_PORT`.

The wheel of nvidia-pytriton holds the server and the backend. They are used as they are, without PyTriton's own layer, which would cost
one more trip between processes. Data frames are left out: the backend has nothing that makes one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

import pytriton

_MODEL: Final = """
import triton_python_backend_utils as backend

class TritonPythonModel:
    def execute(self, requests):
        return [
            backend.InferenceResponse([backend.Tensor("y", backend.get_input_tensor_by_name(request, "x").as_numpy())])
            for request in requests
        ]
"""

_CONFIG: Final = """
backend: "python"
input {{ name: "x" data_type: {datatype} dims: {dims} }}
output {{ name: "y" data_type: {datatype} dims: {dims} }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""


def write_model(repository: Path, name: str, datatype: str, dims: str) -> None:
    """Write one model as Triton's repository wants it."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    folder.with_name("config.pbtxt").write_text(_CONFIG.format(datatype=datatype, dims=dims))
    (folder / "model.py").write_text(_MODEL)


def link_backend(backends: Path, home: Path) -> None:
    """Put the Python backend beside the stub, the process that runs a model, that was built for this version of Python."""
    folder = backends / "python"
    folder.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    for file in [stub, *(home / "backends" / "python").iterdir()]:
        (folder / file.name).symlink_to(file)


def main() -> None:
    http_port, grpc_port = sys.argv[1:3]
    home = Path(pytriton.__file__).parent / "tritonserver"
    folder = Path(tempfile.mkdtemp())
    write_model(folder / "models", "identity", "TYPE_FP32", "[-1, -1]")
    write_model(folder / "models", "strings", "TYPE_STRING", "[-1]")
    link_backend(folder / "backends", home)
    options = {
        "model-repository": folder / "models",
        "backend-directory": folder / "backends",
        "http-address": "127.0.0.1",
        "http-port": http_port,
        "grpc-address": "127.0.0.1",
        "grpc-port": grpc_port,
        "allow-metrics": "false",
        "log-info": "false",
    }
    site = Path(sysconfig.get_path("purelib"))
    libraries = [str(site / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
    environment = {**os.environ, "PYTHONPATH": str(site), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    command = home / "bin" / "tritonserver"
    os.execve(command, [str(command), *(f"--{name}={value}" for name, value in options.items())], environment)


if __name__ == "__main__":
    main()
