"""Triton with identity models in its Python backend: `python -m tests.lab.bench.peers.serve_triton PORT GRPC_PORT`.

The wheel of nvidia-pytriton holds the server and the backend. They are used as they are, without PyTriton's own layer, which would cost
one more trip between processes. Data frames are left out: the backend has nothing that makes one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytriton

_MODEL: Final = """
import triton_python_backend_utils as backend
{imports}

class TritonPythonModel:
    def initialize(self, args):
        self.function = {function}

    def execute(self, requests):
        return [
            backend.InferenceResponse(
                [backend.Tensor("{output}", self.function(backend.get_input_tensor_by_name(request, "{input}").as_numpy()))]
            )
            for request in requests
        ]
"""

_CONFIG: Final = """
backend: "python"
input {{ name: "{input}" data_type: {datatype} dims: {dims} }}
output {{ name: "{output}" data_type: {output_datatype} dims: {output_dims} }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""

_FUNCTIONS: Final = "from tests.lab.bench import functions"


@dataclass
class Model:
    """One model of a repository.

    Args:
        name: Its name.
        datatype: Of its input, as Triton spells it.
        dims: Of its input.
        function: The expression that makes what is called.
        imports: The statement that the expression needs.
        input: The input's name.
        output: The output's name.
        output_datatype: The input's, where there is none.
        output_dims: The input's, where there are none.
    """

    name: str
    datatype: str
    dims: str
    function: str = "lambda x: x"
    imports: str = ""
    input: str = "x"
    output: str = "y"
    output_datatype: str = ""
    output_dims: str = ""

    def write(self, repository: Path) -> None:
        """Write it as Triton's repository wants it."""
        folder = repository / self.name / "1"
        folder.mkdir(parents=True)
        values = {**asdict(self), "output_datatype": self.output_datatype or self.datatype, "output_dims": self.output_dims or self.dims}
        folder.with_name("config.pbtxt").write_text(_CONFIG.format(**values))
        (folder / "model.py").write_text(_MODEL.format(**values))


def models() -> list[Model]:
    """What is served: the identity models, and those that call the functions that all servers call."""
    from tests.lab.bench.functions import has_onnx, has_sklearn

    found = [Model("identity", "TYPE_FP32", "[-1, -1]"), Model("strings", "TYPE_STRING", "[-1]")]
    real = {"digits": "functions.classifier().predict"} if has_sklearn() else {}
    if has_onnx():
        real["onnx"] = "functions.onnx()"
    digits = [Model(name, "TYPE_FP32", "[-1, 64]", made, _FUNCTIONS, "image", "digit", "TYPE_INT64", "[-1]") for name, made in real.items()]
    return found + digits


def link_backend(backends: Path, home: Path) -> None:
    """Put the Python backend beside the stub, the process that runs a model, that was built for this version of Python."""
    folder = backends / "python"
    folder.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    for file in [stub, *(home / "backends" / "python").iterdir()]:
        (folder / file.name).symlink_to(file)


def run(folder: Path, http_port: str, grpc_port: str, path: str) -> NoReturn:
    """Become Triton.

    Args:
        folder: Where `models` is its repository.
        http_port: Where it serves REST.
        grpc_port: Where it serves gRPC.
        path: The folder that the models' code is imported from.
    """
    home = Path(pytriton.__file__).parent / "tritonserver"
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), path]), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    command = home / "bin" / "tritonserver"
    os.execve(command, [str(command), *(f"--{name}={value}" for name, value in options.items())], environment)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for model in models():
        model.write(folder / "models")
    run(folder, sys.argv[1], sys.argv[2], os.getcwd())


if __name__ == "__main__":
    main()
