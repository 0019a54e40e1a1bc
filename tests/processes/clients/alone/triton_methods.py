"""Every public method of tritonclient's four clients is called against a real server process that has every extension.

A method of a newer tritonclient that is in no row fails `test_every_public_method_is_called`.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import queue
import re
import secrets
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc as grpc_blocking
import tritonclient.grpc.aio as grpc_awaiting
import tritonclient.http as http_blocking
import tritonclient.http.aio as http_awaiting
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from tests.support.processes import serving_module

MODULES: Final[dict[str, Any]] = {"http": http_blocking, "http.aio": http_awaiting, "grpc": grpc_blocking, "grpc.aio": grpc_awaiting}
PREFIX: Final = f"oip_methods_{secrets.token_hex(4)}_"

NOT_FOUND: Final = {"http": "404", "grpc": "StatusCode.NOT_FOUND"}
INVALID: Final = {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
NOT_SUPPORTED: Final = {"http": "404", "grpc": "StatusCode.UNIMPLEMENTED"}


class Asker:
    """One client. Its coroutines are finished on an event loop of its own."""

    def __init__(self, kind: str, addresses: list[str]) -> None:
        self.kind = kind
        self.wire = kind.partition(".")[0]
        self.module = MODULES[kind]
        self._runner = asyncio.Runner() if kind.endswith("aio") else None
        self.client = self.done(self._made, addresses[self.wire == "grpc"])

    async def _made_on_loop(self, address: str) -> Any:
        return self.module.InferenceServerClient(address)

    def _made(self, address: str) -> Any:
        return self._made_on_loop(address) if self._runner else self.module.InferenceServerClient(address)

    def done(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of a call, awaited where it is a coroutine."""
        result = call(*args, **options)
        if inspect.iscoroutine(result):
            assert self._runner is not None
            return self._runner.run(result)
        return result

    def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        return self.done(getattr(self.client, method), *args, **options)

    def document(self, method: str, *args: Any) -> Any:
        """The result of a call that answers a document, which has numbers as text over gRPC."""
        return self(method, *args, **({"as_json": True} if self.wire == "grpc" else {}))

    def refusal(self, expected: dict[str, str], method: str, *args: Any, **options: Any) -> str:
        with pytest.raises(InferenceServerException) as caught:
            self(method, *args, **options)
        assert caught.value.status() == expected[self.wire]
        return str(caught.value.message())

    def input(self, name: str, array: Any, datatype: str) -> Any:
        tensor = self.module.InferInput(name, array.shape, datatype)
        tensor.set_data_from_numpy(array)
        return tensor

    def close(self) -> None:
        self("close")
        if self._runner:
            self._runner.close()
        self.client = None
        with warnings.catch_warnings():  # tritonclient.http.aio leaves answers unread, of which aiohttp warns
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    with serving_module("tests.support.complete", PREFIX) as (_, printed):
        yield printed.split()


@pytest.fixture(params=MODULES)
def ask(request: pytest.FixtureRequest, addresses: list[str]) -> Iterator[Asker]:
    asker = Asker(request.param, addresses)
    yield asker
    asker.close()


X: Final = np.array([1.5, -2, 3], "f4")
SAID: dict[str, set[str]] = {kind: set() for kind in MODULES}
"""Which methods the rows call, by client."""


def row(*methods: str, of: str = "http|grpc") -> Callable[[Any], Any]:
    """Note which methods a test calls, of those clients that have them."""

    def noting(test: Any) -> Any:
        for kind, said in SAID.items():
            if re.match(of, kind):
                said.update(methods)
        return test

    return noting


@row("is_server_live", "is_server_ready", "is_model_ready")
def test_health(ask: Asker) -> None:
    assert ask("is_server_live") is True
    assert ask("is_server_ready") is True
    for model in (("echo",), ("org/model",), ("versioned", "2")):
        assert ask("is_model_ready", *model) is True
    if ask.wire == "http":
        assert ask("is_model_ready", "nope") is False
    else:
        assert "unknown model" in ask.refusal(NOT_FOUND, "is_model_ready", "nope")


@row("get_server_metadata", "get_model_metadata", "get_model_config")
def test_metadata(ask: Asker) -> None:
    assert ask.document("get_server_metadata") == {
        "name": "complete",
        "version": "1",
        "extensions": [
            *("binary_tensor_data", "classification", "model_configuration", "model_repository", "model_repository(unload_dependents)"),
            *("parameters", "statistics", "system_shared_memory"),
        ],
    }
    size = str if ask.wire == "grpc" else int
    shape = [size(-1), size(2)]
    assert ask.document("get_model_metadata", "declared")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": shape}]
    assert ask.document("get_model_metadata", "versioned")["versions"] == ["1", "2"]
    config = ask.document("get_model_config", "kept")
    assert config.get("config", config)["response_cache"] == {"enable": True}
    config = ask.document("get_model_config", "declared")
    [of_input] = config.get("config", config)["input"]
    assert (of_input["name"], of_input["data_type"]) == ("x", "TYPE_FP32")
    assert "unknown model" in ask.refusal(NOT_FOUND, "get_model_metadata", "nope")
    assert "unknown model" in ask.refusal(NOT_FOUND, "get_model_config", "nope")


@row("get_model_repository_index", "load_model", "unload_model")
def test_repository(ask: Asker) -> None:
    def state() -> str:
        index = ask.document("get_model_repository_index")
        entries = index["models"] if isinstance(index, dict) else index
        return str(next(entry["state"] for entry in entries if entry["name"] == "loaded"))

    ask("load_model", "loaded")
    assert state() == "READY"
    ask("unload_model", "loaded")
    assert ask("is_model_ready", "loaded") is False
    ask("load_model", "loaded")
    assert ask("is_model_ready", "loaded") is True
    assert "takes no parameters" in ask.refusal(INVALID, "load_model", "loaded", config='{"a": 1}')


def test_a_load_with_parameters(ask: Asker) -> None:
    def answered() -> Any:
        return ask("infer", "org/affine", [ask.input("x", X, "FP32")]).as_numpy("output_0").tolist()

    files = {"file:1/weights": np.array([3, 5, 7], "<f4").tobytes()}
    ask("load_model", "org/affine", config=json.dumps({"offset": 0.5}), files=files)
    assert answered() == [5, -9.5, 21.5]
    ask("load_model", "org/affine")
    assert answered() == [0, 0, 0]
    ask("unload_model", "org/affine", unload_dependents=True)
    assert ask("is_server_ready") is True
    unavailable = {"http": "503", "grpc": "StatusCode.UNAVAILABLE"}
    told = ask.refusal(unavailable, "infer", "org/affine", [ask.input("x", X, "FP32")])
    assert told == "model 'org/affine' is not ready: it was unloaded"
    for wrong, told in (
        ({"files": files}, "parameters have files but no config: send the parameter config too"),
        ({"config": "[]"}, "parameters.config: expected the text of a JSON object: "),
        ({"config": "{}", "files": {"file:../weights": b""}}, "parameters['file:../weights']: expected a relative path, without '..'"),
    ):
        assert ask.refusal(INVALID, "load_model", "org/affine", **wrong).startswith(told)
    ask("load_model", "org/affine", config="{}")
    assert ask("is_model_ready", "org/affine") is True


@row("infer", "get_inference_statistics")
def test_infer_and_statistics(ask: Asker) -> None:
    options = {"request_id": "42", "sequence_id": 7, "sequence_start": True, "sequence_end": True, "priority": 1, "timeout": 10_000_000}
    outputs = [ask.module.InferRequestedOutput("x")]
    result = ask("infer", "echo", [ask.input("x", X, "FP32")], outputs=outputs, parameters={"mine": "x"}, **options)
    assert result.as_numpy("x").tolist() == X.tolist()
    count = ask.document("get_inference_statistics", "versioned", "1")["model_stats"][0].get("inference_count", 0)
    result = ask("infer", "versioned", [ask.input("x", X, "FP32")], model_version="1")
    assert result.as_numpy("output_0").tolist() == [1]
    [stats] = ask.document("get_inference_statistics", "versioned", "1")["model_stats"]
    succeeded = stats["inference_stats"]["success"]["count"]
    assert (stats["name"], stats["version"], int(stats["inference_count"])) == ("versioned", "1", int(count) + 1)
    assert int(succeeded) == int(stats["inference_stats"]["queue"]["count"]) == int(count) + 1
    every = {each["name"] for each in ask.document("get_inference_statistics")["model_stats"]}
    assert every >= {"echo", "versioned", "org/model"}


@pytest.mark.parametrize(
    ("model", "array", "options", "expected", "text"),
    [
        ("nope", np.ones(1, "f4"), {}, NOT_FOUND, "Request for unknown model: 'nope' is not found"),
        ("versioned", np.ones(1, "f4"), {"model_version": "3"}, NOT_FOUND, "unknown model: 'versioned' version '3' is not found"),
        ("declared", np.ones((1, 3), "f4"), {}, INVALID, "input 'x' has shape [1, 3]: expected [-1, 2]"),
        ("declared", np.ones((1, 2), "f8"), {}, INVALID, "input 'x' has datatype FP64: expected FP32"),
        ("fails", np.ones(1, "f4"), {}, {"http": "500", "grpc": "StatusCode.INTERNAL"}, "model 'fails' failed"),
    ],
)
def test_our_errors_are_shown_and_the_connection_goes_on(
    ask: Asker, model: str, array: Any, options: Any, expected: dict[str, str], text: str
) -> None:
    datatype = "FP64" if array.dtype == "f8" else "FP32"
    assert text in ask.refusal(expected, "infer", model, [ask.input("x", array, datatype)], **options)
    wanted = [ask.module.InferRequestedOutput("z")]
    assert "unknown output 'z'" in ask.refusal(INVALID, "infer", "echo", [ask.input("x", X, "FP32")], outputs=wanted)
    assert ask("infer", "echo", [ask.input("x", X, "FP32")]).as_numpy("x").tolist() == X.tolist()


def test_a_kept_response(ask: Asker) -> None:
    def hits() -> int:
        stats = ask.document("get_inference_statistics", "kept")["model_stats"][0]["inference_stats"]
        return int(stats.get("cache_hit", {}).get("count", 0))

    before = hits()
    first, second = (ask("infer", "kept", [ask.input("x", X, "FP32")]).as_numpy("output_0").tolist() for _ in range(2))
    assert first == second
    assert hits() >= before + 1


def test_the_flow_of_image_client(ask: Asker) -> None:
    """What Triton's image_client does: metadata, config, one image, and the labels of the best classes."""
    metadata, config = ask.document("get_model_metadata", "classifier"), ask.document("get_model_config", "classifier")
    config = config.get("config", config)
    [of_input], [of_output] = metadata["inputs"], metadata["outputs"]
    supports_batching = int(config.get("max_batch_size", 0)) > 0
    assert (of_output["datatype"], [int(size) for size in of_input["shape"]], supports_batching) == ("FP32", [3, 4, 4], False)
    image = np.zeros((3, 4, 4), "f4")
    image[0, 0, 0] = 6
    outputs = [ask.module.InferRequestedOutput(of_output["name"], class_count=3)]
    result = ask("infer", "classifier", [ask.input(of_input["name"], image, "FP32")], outputs=outputs)
    found = result.as_numpy(of_output["name"])
    assert found.dtype.type == np.object_
    split = ["".join(chr(byte) for byte in text).split(":") for text in found]
    assert split == [["1.000000", "6", "class 6"], ["0.900000", "5", "class 5"], ["0.900000", "7", "class 7"]]


@row("async_infer", of="http$")
def test_async_infer_over_http(addresses: list[str]) -> None:
    ask = Asker("http", addresses)
    pending = [ask("async_infer", "echo", [ask.input("x", X + number, "FP32")]) for number in range(3)]
    assert [request.get_result().as_numpy("x").tolist() for request in pending] == [(X + number).tolist() for number in range(3)]
    ask.close()


@row("async_infer", of="grpc$")
def test_async_infer_over_grpc(addresses: list[str]) -> None:
    ask, answers = Asker("grpc", addresses), queue.SimpleQueue[Any]()
    for place in range(5):
        tensor = ask.input("x", np.array([place], "f4"), "FP32")
        ask("async_infer", "echo", [tensor], callback=lambda result, error: answers.put((result, error)))
    received = [answers.get(timeout=30) for _ in range(5)]
    assert [error for _, error in received] == [None] * 5
    assert sorted(result.as_numpy("x").item() for result, _ in received) == [0, 1, 2, 3, 4]
    ask.close()


@row("start_stream", "async_stream_infer", "stop_stream", of="grpc$")
def test_a_stream(addresses: list[str]) -> None:
    ask, answers = Asker("grpc", addresses), queue.SimpleQueue[Any]()
    ask("start_stream", callback=lambda result, error: answers.put((result, error)))
    ask("async_stream_infer", "count", [ask.input("n", np.array([2]), "INT64")], enable_empty_final_response=True)
    responses = [answers.get(timeout=30) for _ in range(3)]
    assert [error for _, error in responses] == [None] * 3
    assert [result.as_numpy("output_0").tolist() for result, _ in responses[:2]] == [[0], [1]]
    assert responses[2][0].get_response().parameters["triton_final_response"].bool_param
    ask("stop_stream")
    ask.close()


@row("stream_infer", of="grpc.aio$")
def test_a_stream_of_asyncio(addresses: list[str]) -> None:
    async def requests() -> AsyncIterator[Any]:
        tensor = grpc_awaiting.InferInput("n", [1], "INT64")
        tensor.set_data_from_numpy(np.array([2]))
        yield {"model_name": "count", "inputs": [tensor]}

    async def main() -> list[Any]:
        async with grpc_awaiting.InferenceServerClient(addresses[1]) as client:
            return [result.as_numpy("output_0").tolist() async for result, error in client.stream_infer(requests()) if error is None]

    assert asyncio.run(main()) == [[0], [1]]


@row("generate_request_body", "parse_response_body", of="http")
@pytest.mark.parametrize("kind", ["http", "http.aio"])
def test_bodies_without_a_client(kind: str, addresses: list[str]) -> None:
    import httpx2

    ask = Asker(kind, addresses)
    body, length = ask.client.generate_request_body([ask.input("x", X, "FP32")])
    url = f"http://{addresses[0]}/v2/models/echo/infer"
    answer = httpx2.post(url, content=body, headers={"Inference-Header-Content-Length": str(length)})
    header_length = int(answer.headers["inference-header-content-length"])
    assert ask.client.parse_response_body(answer.content, header_length=header_length).as_numpy("x").tolist() == X.tolist()
    ask.close()


@row("plugin", "register_plugin", "unregister_plugin", "close")
def test_plugins(ask: Asker) -> None:
    base: Any = http_blocking.InferenceServerClientPlugin if ask.wire == "http" else grpc_blocking.InferenceServerClientPlugin

    class Plugin(base):  # type: ignore[misc]
        def __call__(self, request: Any) -> None:
            request.headers["x-plugin"] = "1"

    plugin = Plugin()
    ask.client.register_plugin(plugin)
    assert ask.client.plugin() is plugin
    assert ask("is_server_live") is True
    ask.client.unregister_plugin()
    assert ask.client.plugin() is None


@row("get_trace_settings", "update_trace_settings", "get_log_settings", "update_log_settings")
def test_settings_of_the_process_are_refused_with_a_reason(ask: Asker) -> None:
    trace, log = "trace settings are not supported: trace requests with OpenTelemetry", "log settings are not supported: set up Python's"
    assert trace in ask.refusal(NOT_SUPPORTED, "get_trace_settings")
    assert trace in ask.refusal(NOT_SUPPORTED, "get_trace_settings", model_name="echo")
    assert trace in ask.refusal(NOT_SUPPORTED, "update_trace_settings", settings={"trace_rate": "1"})
    assert trace in ask.refusal(NOT_SUPPORTED, "update_trace_settings", model_name="echo", settings={"trace_rate": "1"})
    assert log in ask.refusal(NOT_SUPPORTED, "get_log_settings")
    assert log in ask.refusal(NOT_SUPPORTED, "update_log_settings", settings={"log_info": True})


@row("get_cuda_shared_memory_status", "register_cuda_shared_memory", "unregister_cuda_shared_memory")
def test_cuda_shared_memory_is_refused_but_for_what_clients_ask_when_they_start(ask: Asker) -> None:
    ask("unregister_cuda_shared_memory")
    ask("unregister_cuda_shared_memory", "region")
    for method, *arguments in (
        ("get_cuda_shared_memory_status",),
        ("get_cuda_shared_memory_status", "region"),
        ("register_cuda_shared_memory", "region", b"AAAA", 0, 64),
    ):
        assert "CUDA shared memory is not supported" in ask.refusal(NOT_SUPPORTED, method, *arguments)


@row("get_system_shared_memory_status", "register_system_shared_memory", "unregister_system_shared_memory")
def test_system_shared_memory(ask: Asker) -> None:
    ask("unregister_system_shared_memory")
    assert ask.document("get_system_shared_memory_status") in ([], {})
    key = f"/{PREFIX}{ask.kind}"
    handle = shm.create_shared_memory_region("region", key, 64)
    try:
        shm.set_shared_memory_region(handle, [X])
        ask("register_system_shared_memory", "region", key, 64)
        assert "registered already" in ask.refusal(INVALID, "register_system_shared_memory", "region", key, 64)
        status = ask.document("get_system_shared_memory_status", "region")
        [described] = status["regions"].values() if isinstance(status, dict) else status
        assert (described["name"], described["key"], int(described["byte_size"])) == ("region", key, 64)
        tensor = ask.module.InferInput("x", [3], "FP32")
        tensor.set_shared_memory("region", 12)
        output = ask.module.InferRequestedOutput("x")
        output.set_shared_memory("region", 12, 32)
        beside = ask.input("y", X * 2, "FP32")
        result = ask("infer", "echo", [tensor, beside], outputs=[output, ask.module.InferRequestedOutput("y")])
        described = result.get_output("x")
        shape = described["shape"] if ask.wire == "http" else list(described.shape)
        assert shm.get_contents_as_numpy(handle, np.float32, shape, offset=32).tolist() == X.tolist()
        assert result.as_numpy("y").tolist() == (X * 2).tolist()
        tensor.set_shared_memory("region", 12, 60)
        assert "beyond the 64 bytes of the region 'region'" in ask.refusal(INVALID, "infer", "echo", [tensor])
        ask("unregister_system_shared_memory", "region")
        assert "unknown region 'region'" in ask.refusal(NOT_FOUND, "get_system_shared_memory_status", "region")
        forbidden = {"http": "403", "grpc": "StatusCode.PERMISSION_DENIED"}
        text = ask.refusal(forbidden, "register_system_shared_memory", "other", "/other", 64)
        assert "does not let clients use the shared memory '/other'" in text
    finally:
        shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("kind", MODULES)
def test_every_public_method_is_called(kind: str) -> None:
    client = MODULES[kind].InferenceServerClient
    methods = {name for name, member in inspect.getmembers(client, callable) if not name.startswith("_")}
    assert len(methods) >= 25
    assert methods - SAID[kind] == set()
