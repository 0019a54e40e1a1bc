"""tritonclient.grpc and kserve's InferenceGRPCClient: what their modules in `alone` hold, and the example that one of them asks.

And a client that knows no messages at all, as grpcurl: it asks the server process for them.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from itertools import permutations
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.support.grpc_ways import SERVE, SERVICE, SERVINGS, run_alone
from tests.support.processes import ROOT, serving_module

IMPORTS = ("import oip_asgi.grpc", "import tritonclient.grpc", "import tritonclient.grpc.aio")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def one_each(module: str) -> Any:
    """One of those that are asked by .ci/run too."""
    return pytest.param(module, marks=pytest.mark.ci)


@pytest.mark.parametrize("module", [one_each("triton_grpc.py"), "triton_streams.py", "triton_methods.py", one_each("kserve_grpc.py")])
def test_a_client_is_served(module: str) -> None:
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/processes/clients/alone/{module}")
    assert re.search(r"^[0-9]{2,} passed", output, re.MULTILINE)


@pytest.mark.parametrize("order", list(permutations(IMPORTS)), ids=str)
def test_tritonclient_and_the_server_share_a_process_in_any_order_of_import(order: tuple[str, ...]) -> None:
    run_alone("\n".join([*order, SERVE]))


def test_tritonclient_may_come_after_the_servers_messages() -> None:
    run_alone(SERVE + "import tritonclient.grpc")


@pytest.mark.parametrize("kind", SERVINGS)
def test_a_client_that_knows_no_messages_asks_for_them(kind: str) -> None:
    with serving_module("tests.support.served_grpc", kind) as (_, address), grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        methods = DescriptorPool(database).FindServiceByName(SERVICE).methods_by_name
        answers = {name: ask_described(channel, methods[name], question) for name, question in QUESTIONS.items()}
    assert answers["ServerLive"] == {"live": True}
    assert answers["ModelMetadata"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}]
    assert answers["ModelInfer"]["outputs"] == [{"name": "x", "datatype": "INT8", "shape": ["2"]}]
    assert answers["ModelInfer"]["rawOutputContents"] == [base64.b64encode(b"\x80\x7f").decode()]


QUESTIONS: dict[str, Any] = {
    "ServerLive": {},
    "ModelMetadata": {"name": "declared"},
    "ModelInfer": {
        "modelName": "echo",
        "inputs": [{"name": "x", "datatype": "INT8", "shape": [2], "contents": {"intContents": [-128, 127]}}],
    },
}


def ask_described(channel: grpc.Channel, method: MethodDescriptor, question: Any) -> Any:
    """Call a method of which only the descriptor is known, in the JSON of its messages."""
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call: Any = channel.unary_unary(f"/{SERVICE}/{method.name}", request.SerializeToString, response.FromString)
    return MessageToDict(call(ParseDict(question, request()), timeout=60))


def test_the_example_answers_over_rest_and_grpc_alike() -> None:
    rows = {line[:10].strip(): line[10:].split() for line in run("examples/grpc_server.py", "--check").splitlines()}
    assert len(rows["REST"]) == 16
    assert rows["REST"] == rows["gRPC"]
    assert sum(answer == truth for answer, truth in zip(rows["gRPC"], rows["true digit"], strict=True)) >= 14
