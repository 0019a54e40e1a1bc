"""What the package ships for gRPC, and what it needs: the descriptor is the .proto's, and extras are imported only where they are used."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from oip_asgi import InferenceServer
from oip_asgi.grpc import add_to_server
from tests.support.grpc_ways import SERVE, run_alone

PROTO = Path(str(files("oip_asgi"))) / "proto"
BUILT = "grpc_predict_v2.binpb"


@pytest.mark.protoc
@pytest.mark.parametrize(("source", "built"), [("grpc_predict_v2.proto", BUILT), ("health.proto", "services.binpb")])
def test_a_descriptor_is_what_the_documented_command_builds(tmp_path: Path, source: str, built: str) -> None:
    command = re.search(r"^//   (python -m grpc_tools\.protoc .+)$", (PROTO / source).read_text(), re.MULTILINE)
    assert command is not None
    _, *arguments = command[1].replace(f"oip_asgi/proto/{built}", str(tmp_path / built)).split()
    subprocess.run([sys.executable, *arguments], check=True, cwd=PROTO.parent.parent, timeout=120)
    ours, shipped = (FileDescriptorSet.FromString((folder / built).read_bytes()) for folder in (tmp_path, PROTO))
    assert ours == shipped
    assert source in [file.name for file in shipped.file]


def test_the_service_is_the_specifications() -> None:
    [file] = FileDescriptorSet.FromString((PROTO / BUILT).read_bytes()).file
    [service] = file.service
    assert f"{file.package}.{service.name}" == "inference.GRPCInferenceService"
    methods = {method.name: (method.input_type, method.output_type) for method in service.method}
    names = {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"}
    assert names <= methods.keys()
    streamed = methods.pop("ModelStreamInfer")  # which takes the same requests
    assert streamed == (".inference.ModelInferRequest", ".inference.ModelStreamInferResponse")
    assert methods == {name: (f".inference.{name}Request", f".inference.{name}Response") for name in methods}


def message_classes() -> list[Any]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is type(FileDescriptorSet)]


def test_the_classes_of_all_messages_are_kept() -> None:
    """Else protobuf makes those of messages within messages anew after each garbage collection, and crashes if two threads do at once."""
    before, grpc_server = message_classes(), grpc.server(ThreadPoolExecutor(1))
    add_to_server(InferenceServer(), grpc_server)
    made = Counter(each.__name__ for each in message_classes() if each not in before)
    [file] = FileDescriptorSet.FromString((PROTO / BUILT).read_bytes()).file
    inner = [each for message in file.message_type for each in message.nested_type]
    assert {message.name for message in [*file.message_type, *inner]} <= made.keys()
    assert made["ServerReflectionResponse"] == 2  # v1 and v1alpha


def test_nothing_is_imported_before_it_is_used_nor_needed_where_it_is_not() -> None:
    absent = "sys.modules.update(dict.fromkeys(('grpc_health', 'grpc_reflection')))"
    run_alone(f"import sys, oip_asgi; assert not {{'grpc', 'google.protobuf'}} & set(sys.modules)\n{absent}\n{SERVE}")
    imports = "from oip_asgi import InferenceServer\nfrom oip_asgi.grpc import OIPGRPCApp"
    run_alone(f"import sys; sys.modules['grpc'] = None\n{imports}\nOIPGRPCApp(InferenceServer())")
