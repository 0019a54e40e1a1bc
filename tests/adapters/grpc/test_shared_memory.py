"""Shared memory and classification over gRPC: which raw contents belong to which input, and what is refused with which code."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, SharedMemory
from tests.support.grpc_asgi import ASGI_CLIENTS, ASGIClient
from tests.support.grpc_ways import SERVINGS, Client, made, wire_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="segments are files on Linux only")

KEY = f"oip_grpc_{secrets.token_hex(4)}"
PATH = Path("/dev/shm", KEY)


@pytest.fixture(params=["grpc", "ASGI"])
def client(request: pytest.FixtureRequest) -> Iterator[Client | ASGIClient]:
    server = InferenceServer(shared_memory=SharedMemory([KEY]), max_body_bytes=1 << 20)
    server.register("echo", lambda **inputs: inputs)
    PATH.write_bytes(bytes(range(256)) * 16)
    try:
        if request.param in ASGI_CLIENTS:
            yield ASGI_CLIENTS[request.param](server)
        else:
            with SERVINGS[request.param](server) as address:
                yield Client(address)
    finally:
        PATH.unlink()


def register(client: Client | ASGIClient, **fields: Any) -> None:
    client.ask(
        "SystemSharedMemoryRegister", made("SystemSharedMemoryRegisterRequest", **{"name": "r", "key": KEY, "byte_size": 64, **fields})
    )


def place(size: int, offset: int = 0) -> dict[str, Any]:
    values = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": size}}
    return {**values, "shared_memory_offset": {"int64_param": offset}} if offset else values


def tensor(name: str, datatype: str = "UINT8", shape: tuple[int, ...] = (2,), **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), **fields}


def answered(client: Client | ASGIClient, tensors: list[dict[str, Any]], raw: list[bytes] = [], **fields: Any) -> list[bytes]:  # noqa: B006
    return list(client.ask("ModelInfer", wire_request("echo", tensors, raw, **fields)).raw_output_contents)


def test_raw_contents_belong_to_the_inputs_that_are_not_in_shared_memory(client: Client | ASGIClient) -> None:
    register(client, offset=4)
    shared = tensor("b", parameters=place(2, 3))
    assert answered(client, [tensor("a"), shared, tensor("c")], [b"AB", b"CD"]) == [b"AB", b"\x07\x08", b"CD"]
    assert answered(client, [shared]) == [b"\x07\x08"]
    typed = tensor("c", contents={"uint_contents": [1, 2]})
    assert answered(client, [shared, typed]) == [b"\x07\x08", b"\1\2"]


def test_what_is_wrong_is_named(client: Client | ASGIClient) -> None:
    register(client)
    shared = tensor("b", parameters=place(2))
    wrong: list[tuple[list[dict[str, Any]], list[bytes], str]] = [
        ([tensor("a"), shared], [b"AB", b"CD"], "input 'b' has data of its own and the parameter"),
        ([tensor("a"), shared, tensor("c")], [b"AB"], "expected one for each of 3 inputs, but those in"),
        ([tensor("a", parameters=place(2), contents={"uint_contents": [1, 2]})], [], "input 'a' has data of its own"),
        ([tensor("a", parameters=place(3))], [], "inputs[0] ('a'): 3 bytes of binary data, but shape [2] needs 2"),
        ([tensor("a", parameters=place(65))], [], "inputs[0] ('a'): it has shared_memory_offset 0 and shared_memory_byte_size 65"),
    ]
    for tensors, raw, text in wrong:
        code, told = client.refusal("ModelInfer", wire_request("echo", tensors, raw))
        assert (code, text in told) == ("INVALID_ARGUMENT", True), told


def test_outputs_in_shared_memory_have_empty_contents(client: Client | ASGIClient) -> None:
    register(client)
    outputs = [{"name": "a", "parameters": place(4, 32)}, {"name": "b"}]
    large = np.arange(100_000, dtype="f4").tobytes()
    tensors = [tensor("a"), tensor("b", "FP32", (100_000,))]
    assert answered(client, tensors, [b"AB", large], outputs=outputs) == [b"", large]
    assert PATH.read_bytes()[31:35] == b"\x1fAB\x22"


def test_what_may_not_be_registered_has_its_code(client: Client | ASGIClient) -> None:
    def refused(**fields: Any) -> tuple[str, str]:
        return client.refusal("SystemSharedMemoryRegister", made("SystemSharedMemoryRegisterRequest", **fields))

    assert refused(name="r", key="/other", byte_size=4)[0] == "PERMISSION_DENIED"
    assert refused(name="r", key="a/b", byte_size=4)[0] == "INVALID_ARGUMENT"
    assert refused(name="r", key=KEY, byte_size=2**64 - 1, offset=2**64 - 1)[0] == "INVALID_ARGUMENT"
    assert refused(name="", key=KEY, byte_size=4)[0] == "INVALID_ARGUMENT"
    register(client)
    assert client.refusal("SystemSharedMemoryStatus", made("SystemSharedMemoryStatusRequest", name="nope"))[0] == "NOT_FOUND"
    assert len(client.ask("SystemSharedMemoryStatus", made("SystemSharedMemoryStatusRequest")).regions) == 1
    client.ask("SystemSharedMemoryUnregister", made("SystemSharedMemoryUnregisterRequest"))
    assert len(client.ask("SystemSharedMemoryStatus", made("SystemSharedMemoryStatusRequest")).regions) == 0


def test_classes_of_an_output_are_bytes(client: Client | ASGIClient) -> None:
    asked = [{"name": "a", "parameters": {"classification": {"int64_param": 1}}}]
    assert answered(client, [tensor("a")], [b"\x01\x09"], outputs=asked) == [b"\3\0\0\0" + b"9:1"]
    asked = [{"name": "a", "parameters": {"classification": {"uint64_param": 2**64 - 1}}}]
    assert answered(client, [tensor("a")], [b"\x01\x09"], outputs=asked) == [b"\3\0\0\0" + b"9:1" + b"\3\0\0\0" + b"1:0"]


def test_shared_memory_of_cuda_is_refused_and_clean_ups_pass(client: Client | ASGIClient) -> None:
    assert client.ask("CudaSharedMemoryUnregister", made("CudaSharedMemoryUnregisterRequest")) is not None
    assert client.ask("SystemSharedMemoryUnregister", made("SystemSharedMemoryUnregisterRequest")) is not None
    text = "CUDA shared memory is not supported: send the tensors in the request, or use system shared memory"
    for method in ("CudaSharedMemoryStatus", "CudaSharedMemoryRegister"):
        assert client.refusal(method, made(f"{method}Request", name="r")) == ("UNIMPLEMENTED", text)
