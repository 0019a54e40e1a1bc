"""The statistics and configuration of models, as their tools read them, over REST and gRPC; and classification."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from oip_asgi import InferenceError, InferenceServer, OIPApp, RequestOutput, ResponseCache, SharedMemory, Tensor, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.grpc_ways import SERVINGS, Client, made
from tests.support.inside.extensions import classification, classify
from tests.support.inside.values import Array
from tests.support.ways import EXTENSIONS, Request, over_asgi

DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
BATCH = ("compute_input", "compute_infer", "compute_output")
STAGES = ("success", "queue", *BATCH)
NOTHING = {"count": 0, "ns": 0}


def make_server() -> InferenceServer:
    server = InferenceServer("tools")
    server.register("iris", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 4])], outputs=[TensorSpec("y", "FP32", [-1, 4])])
    for version in ("1", "2"):
        server.register("a", lambda x: x, version=version)

    @server.model("words", inputs=[TensorSpec("n", "INT64", [1]), TensorSpec("text", "BYTES", [-1])], max_concurrency=3)
    def words(n: np.ndarray, text: Any = None) -> Any:
        if n[0] < 0:
            raise ValueError("on purpose")
        time.sleep(0.002)
        return n

    server.register("frame", lambda frame: frame, content_type="pd")

    @server.model("counts")
    def counts(n: np.ndarray) -> Any:
        yield from range(int(n[0]))

    server.register("image", lambda x: x, inputs=[TensorSpec("x", "UINT8", [3, -1, -1], format="NCHW")])
    server.register("images", lambda x: x, inputs=[TensorSpec("x", "UINT8", [-1, 9, 9, 3], format="NHWC")], max_batch_size=4)
    return server


@pytest.fixture
def server() -> InferenceServer:
    return make_server()


def statistics(server: InferenceServer, path: str) -> list[dict[str, Any]]:
    status, document = get(server, path)
    assert status == 200
    assert list(document) == ["model_stats"]
    stats: list[dict[str, Any]] = document["model_stats"]
    return stats


def test_all_statistics_are_sorted_by_name_and_have_every_field(server: InferenceServer) -> None:
    stats = statistics(server, "/models/stats")
    assert [(each["name"], each["version"]) for each in stats] == [
        ("a", "1"),
        ("a", "2"),
        *[(name, "1") for name in ("counts", "frame", "image", "images", "iris", "words")],
    ]
    for each in stats:
        assert list(each) == [
            "name", "version", "last_inference", "inference_count", "execution_count", "inference_stats", "response_stats", "batch_stats",
            "memory_usage",
        ]  # fmt: skip
        assert each["inference_stats"] == dict.fromkeys(DURATIONS, NOTHING)
        assert (each["last_inference"], each["inference_count"], each["execution_count"]) == (0, 0, 0)
        assert (each["response_stats"], each["batch_stats"], each["memory_usage"]) == ({}, [], [])


def test_requests_count_in_the_statistics_of_their_model_and_version(server: InferenceServer) -> None:
    before = time.time() * 1000
    for _ in range(3):
        assert outputs(ask(server, "words", n=[2])) == {"output_0": [2]}
    assert error(ask(server, "words", n=[-1]))[0] == 500
    assert error(ask(server, "words", m=[1]))[0] == 400
    [words] = statistics(server, "/models/words/stats")
    assert before - 1 <= words["last_inference"] <= time.time() * 1000 + 1
    assert (words["inference_count"], words["execution_count"]) == (3, 4)
    durations = words["inference_stats"]
    assert {name: durations[name]["count"] for name in DURATIONS} == {
        "success": 3, "fail": 1, "queue": 4, "compute_input": 4, "compute_infer": 3, "compute_output": 3, "cache_hit": 0, "cache_miss": 0
    }  # fmt: skip
    assert durations["compute_infer"]["ns"] >= 3 * 2_000_000  # what the function sleeps
    assert durations["success"]["ns"] >= durations["compute_infer"]["ns"]
    [batch] = words["batch_stats"]
    assert (batch["batch_size"], list(batch)) == (1, ["batch_size", *BATCH])
    assert batch["compute_infer"] == durations["compute_infer"]
    assert statistics(server, "/models/iris/stats")[0]["inference_stats"]["fail"] == NOTHING


def test_threads_that_ask_and_read_at_once_lose_no_number() -> None:
    server, read = InferenceServer(), list[dict[str, Any]]()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])

    def ask_often(_: int) -> None:
        for _ in range(100):
            server.infer_sync("m", {"x": np.ones(1, "f4")})
            read.extend(statistics(server, "/models/m/stats"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask_often, range(4)))
    for each in (*read, *statistics(server, "/models/m/stats")):
        counts = [each["inference_count"], each["execution_count"], *(each["inference_stats"][stage]["count"] for stage in STAGES)]
        assert len(set(counts)) == 1
    assert counts[0] == 400


def test_a_path_with_a_version_gives_that_version_and_one_without_gives_all(server: InferenceServer) -> None:
    assert outputs(ask(server, "a", x=[1.5])) == {"output_0": [1.5]}
    for path, counts in (("", [("1", 0), ("2", 1)]), ("/versions/2", [("2", 1)]), ("/versions/1", [("1", 0)])):
        assert [(each["version"], each["inference_count"]) for each in statistics(server, f"/models/a{path}/stats")] == counts


@pytest.mark.parametrize("what", ["stats", "config"])
def test_unknown_models_and_versions_are_404(server: InferenceServer, what: str) -> None:
    for path, named in ((f"/models/none/{what}", "'none'"), (f"/models/a/versions/3/{what}", "'a' version '3'")):
        status, document = get(server, path)
        assert status == 404
        assert document["error"].startswith(f"Request for unknown model: {named} is not found")


OF_X = {"parameters": {"undeclared_inputs": "x"}}


@pytest.mark.parametrize("serving", SERVINGS.values(), ids=SERVINGS)
def test_so_many_rows_that_64_bits_cannot_count_them_are_refused(serving: Any) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, max_batch_size=4)
    body = json.dumps({"inputs": [{"name": "x", "shape": [2**59, 0], "datatype": "FP32", "data": []}]}).encode()
    for _ in range(40):
        assert over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body)).status == 400
    with pytest.raises(InferenceError, match="shape is too large"):
        server.infer_sync("m", {"x": np.empty((2**59, 0), "f4")})
    with serving(server) as address:
        [stats] = Client(address).ask("ModelStatistics", made("ModelStatisticsRequest", name="m")).model_stats
    assert (stats.inference_count, stats.execution_count) == (0, 0)
    assert as_json(stats) == statistics(server, "/models/m/stats")[0] | {"last_inference": as_json(stats)["last_inference"]}


def test_the_statistics_of_all_go_before_a_model_of_that_name(server: InferenceServer) -> None:
    server.register("stats", lambda x: x)
    assert "stats" in [each["name"] for each in statistics(server, "/models/stats")]
    assert get(server, "/models/stats/ready")[0] == 200


def test_rows_of_models_that_batch() -> None:
    server = InferenceServer()
    server.register("batches", lambda x: x, max_batch_size=4)
    server.register("plain", lambda x: x)
    for name in ("batches", "plain"):
        assert ask(server, name, x=np.zeros((0, 3), "f4")).status == 200
    [batches], [plain] = statistics(server, "/models/batches/stats"), statistics(server, "/models/plain/stats")
    assert [(stats["inference_count"], stats["execution_count"]) for stats in (batches, plain)] == [(0, 1), (1, 1)]
    many = range(5000, 6500, 100)
    for rows in (8, 2, 8, *many):
        assert ask(server, "batches", x=np.zeros((rows, 0), "f4")).status == 200
    [stats] = statistics(server, "/models/batches/stats")
    sizes = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}
    assert sizes == {0: 1, 2: 1, 8: 2, 8192: len(many)}  # few, whatever clients send
    assert stats["inference_count"] == sum((8, 2, 8, *many))


def stream(server: InferenceServer) -> None:
    """One stream of two responses, and one that is left after the first."""
    assert len(list(server.infer_stream_sync("counts", {"n": [2]}))) == 2
    responses = server.infer_stream_sync("counts", {"n": [2]})
    next(responses)
    responses.close()


CONFIG = {"platform": "python", "backend": "python", "version_policy": {"all": {}}, "max_batch_size": 0}


def test_the_configuration_of_a_model(server: InferenceServer) -> None:
    x = {"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, 4], "optional": False}
    iris = get(server, "/models/iris/config")[1]
    [group] = iris.pop("instance_group")
    assert iris == CONFIG | {"name": "iris", "input": [x], "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1, 4]}]}
    assert group == {"name": "iris", "kind": "KIND_CPU", "count": group["count"]}
    assert group["count"] >= 2
    words = get(server, "/models/words/config")[1]
    assert (words["platform"], words["instance_group"][0]["count"]) == ("python", 3)
    n = x | {"name": "n", "data_type": "TYPE_INT64", "dims": [1]}
    assert words["input"] == [n, n | {"name": "text", "data_type": "TYPE_STRING", "dims": [-1], "optional": True}]
    assert get(server, "/models/frame/config")[1]["parameters"] == {"content_type": {"string_value": "pd"}}
    second = get(server, "/models/a/versions/2/config")[1]
    assert (second["name"], "model_transaction_policy" in second) == ("a", False)
    assert get(server, "/models/counts/config")[1]["model_transaction_policy"] == {"decoupled": True}
    for name, form, dims in (("image", "NCHW", [3, -1, -1]), ("images", "NHWC", [9, 9, 3])):
        [image] = get(server, f"/models/{name}/config")[1]["input"]
        assert (image["format"], image["dims"]) == (f"FORMAT_{form}", dims)


@pytest.mark.parametrize("serving", SERVINGS.values(), ids=SERVINGS)
def test_grpc_says_the_same_as_rest(server: InferenceServer, serving: Any) -> None:
    ask(server, "words", n=[2])
    ask(server, "a", x=[2])
    stream(server)
    with serving(server) as address:
        client = Client(address)
        for name, version, path in (("", "", ""), ("a", "", "/a"), ("a", "2", "/a/versions/2"), ("counts", "", "/counts")):
            message = client.ask("ModelStatistics", made("ModelStatisticsRequest", name=name, version=version))
            over_rest = statistics(server, f"/models{path}/stats")
            assert [near(each) for each in as_json(message)["model_stats"]] == [near(each) for each in over_rest]
        for name in ("iris", "words", "frame", "counts", "image", "images"):
            config = client.ask("ModelConfig", made("ModelConfigRequest", name=name)).config
            assert config.version_policy.HasField("all")
            expected = get(server, f"/models/{name}/config")[1]
            assert kept(as_json(config), expected) == expected
        for method in ("ModelStatistics", "ModelConfig"):
            code, text = client.refusal(method, made(f"{method}Request", name="none"))
            assert (code, text[:34]) == ("NOT_FOUND", "Request for unknown model: 'none' ")


def as_json(message: Any) -> Any:
    """A message as REST has it: defaults are there, and 64-bit numbers are numbers."""
    to_dict: Any = MessageToDict
    try:
        document = to_dict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    except TypeError:  # protobuf below 5
        document = to_dict(message, preserving_proto_field_name=True, including_default_value_fields=True)
    return _numbers(document)


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item if key in ("version", "name") else _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_numbers, value))
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def kept(found: Any, expected: Any) -> Any:
    """What was found, without fields that are not expected: a message has all of its own."""
    if isinstance(expected, dict) and expected:
        return {key: kept(found[key], value) for key, value in expected.items()}
    if isinstance(expected, list) and len(found) == len(expected):
        return [kept(one, other) for one, other in zip(found, expected, strict=True)]
    return found


def near(stats: dict[str, Any]) -> dict[str, Any]:
    """Statistics without the last digits of a time that is read from two clocks at each answer."""
    return {**stats, "last_inference": stats["last_inference"] // 1000 // 60}


@pytest.mark.parametrize(
    ("options", "models", "expected"),
    [
        ({}, {}, []),
        ({"model_control": True}, {}, ["model_repository", "model_repository(unload_dependents)"]),
        ({}, {"cache": ResponseCache()}, []),
        ({"shared_memory": SharedMemory(allow=["a"])}, {}, ["system_shared_memory"]),
    ],
    ids=["nothing", "model_control", "cache", "shared memory"],
)
def test_the_extensions_are_those_that_work(options: dict[str, Any], models: dict[str, Any], expected: list[str]) -> None:
    server = InferenceServer(**options)
    server.register("m", lambda x: x, **models)
    always = json.loads(EXTENSIONS)
    assert get(server, "")[1]["extensions"] == sorted([*always, *expected])


@settings(max_examples=30)
@given(
    arrays.arrays(
        st.sampled_from(["f2", "f4", "f8", "i1", "u8"]),
        arrays.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=40),
        elements=st.integers(0, 9),
    ),
    st.integers(1, 50),
    st.booleans(),
)
def test_the_largest_in_order_and_of_equal_ones_the_lower_index(array: Array, most: int, has_nan: bool) -> None:
    if has_nan and array.dtype.kind == "f" and array.size:
        array.reshape(-1)[::3] = np.nan
    found = classify(Tensor("x", array), most, ())
    rows = array.reshape(len(array), int(np.prod(array.shape[1:])))
    number = min(most, rows.shape[1])
    assert (found.datatype, found.shape) == ("BYTES", (len(rows), number))
    for row, texts in zip(rows.tolist(), found.array.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda index: (row[index] != row[index], -row[index] if row[index] == row[index] else 0, index))
        assert [int(text.split(b":")[1]) for text in texts] == order[:number]


def test_values_are_written_as_c_writes_them() -> None:
    large = np.array([np.finfo("f4").max, -0.0, 1e-7, 2**24 + 2, -1.5], "f4")
    found = classify(Tensor("x", large), 9, ("a", "b")).array.tolist()
    assert found[:2] == [b"340282346638528859811704183484516925440.000000:0:a", b"16777218.000000:3"]
    assert found[2:] == [b"0.000000:2", b"-0.000000:1:b", b"-1.500000:4"]


def test_what_has_too_many_elements_or_no_order_is_refused() -> None:
    with pytest.raises(InferenceError, match="has 1000001 elements: classification takes 1000000 at most"):
        classify(Tensor("x", np.zeros(1_000_001, "u1")), 1, ())
    for array in (np.array([True]), np.array([1], ml_dtypes.bfloat16), np.array([b"a"], object)):
        with pytest.raises(InferenceError, match="classification needs integers, FP16, FP32 or FP64"):
            classify(Tensor("x", array), 1, ())


@pytest.mark.parametrize(
    ("shape", "datatype", "options", "raised", "text"),
    [
        ([3, 9, 9], "UINT8", {"format": "CHW"}, ValueError, 'format=\'CHW\' must be "NCHW" or "NHWC", or left out'),
        ([3, 9, 9], "UINT8", {"format": "nchw"}, ValueError, "format='nchw' must be"),
        ([3, 9, 9], "UINT8", {"format": 1}, ValueError, "format=1 must be"),
        (
            [3, 9],
            "UINT8",
            {"format": "NCHW"},
            ValueError,
            "'NCHW' is for images, whose shape has 3 dimensions, or 4 with that of the batch",
        ),
        ([1, 1, 3, 9, 9], "UINT8", {"format": "NHWC"}, ValueError, "format='NHWC' is for images"),
        ([-1, 3], "FP32", {"labels": ["a", "b"]}, ValueError, "2 labels for 3 elements of each row"),
        ([-1, 2, 2], "FP32", {"labels": ["a", "b"]}, ValueError, "2 labels for 4 elements of each row"),
        ([3], "FP32", {"labels": ["a"]}, ValueError, "1 labels for 3 elements"),
        ([-1], "FP32", {"labels": ["a:b"]}, ValueError, "the label 'a:b' has a colon"),
        ([-1], "FP32", {"labels": ["\ud800"]}, ValueError, "lone surrogates"),
        ([-1], "FP32", {"labels": "ab"}, TypeError, "must be a list of strings"),
        ([-1], "FP32", {"labels": [1]}, TypeError, "must be a list of strings"),
        ([-1], "BYTES", {"labels": ["a"]}, ValueError, "labels are for integers, FP16, FP32 and FP64"),
        ([-1], "BOOL", {"labels": ["a"]}, ValueError, "labels are for integers"),
    ],
)
def test_a_format_or_labels_that_cannot_be_right_fail_at_once(
    shape: list[int], datatype: Any, options: Any, raised: type[Exception], text: str
) -> None:
    with pytest.raises(raised, match=re.escape(text)):
        TensorSpec("x", datatype, shape, **options)


def test_labels_are_for_outputs() -> None:
    with pytest.raises(ValueError, match="TensorSpec 'x' has labels, and is an input"):
        InferenceServer().register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1], labels=["a"])])


def test_from_python_and_with_parameters_of_the_models_own() -> None:
    server = InferenceServer()
    server.register("pets", lambda x: x, outputs=[TensorSpec("scores", "FP32", [-1, 3], labels=["cat", "dog", "fox"])])
    response = server.infer_sync("pets", {"x": np.array([[0.1, 0.7, 0.2]], "f4")}, outputs=[RequestOutput("scores", {"classification": 2})])
    assert response["scores"].tolist() == [[b"0.700000:1:dog", b"0.200000:2:fox"]]


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
def test_many_elements_become_text_in_a_worker_thread(kind: str) -> None:
    threads: list[str] = []
    server = InferenceServer()

    def answer(x: Array) -> Array:
        return np.arange(100_000, dtype="f4")

    async def answer_async(x: Array) -> Array:
        return answer(x)

    server.register("m", answer_async if kind == "async" else answer, run="inline" if kind == "inline" else "thread")

    def noting(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return classify(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classification, "classify", noting)
        more = {"outputs": [{"name": "output_0", "parameters": {"classification": 1}}]}
        assert outputs(ask(server, "m", more, x=[1.0])) == {"output_0": ["99999.000000:99999"]}
    assert threads[0] != threading.main_thread().name
    server.stop()


def test_a_stream_is_classified_item_by_item() -> None:
    server = InferenceServer()

    @server.model("s")
    async def s(x: Array) -> Any:
        for number in x.tolist():
            yield np.array([0.0, number])

    more = {"outputs": [{"name": "output_0", "parameters": {"classification": 1}}]}
    answer = ask(server, "s", more, x=[1.0, -1.0])
    assert error(answer)[0] == 400  # infer is for one answer
    asked = [RequestOutput("output_0", {"classification": 1})]
    found = [r["output_0"].tolist() for r in server.infer_stream_sync("s", {"x": np.array([1.0, -1.0])}, outputs=asked)]
    assert found == [[b"1.000000:1"], [b"0.000000:0"]]
    server.stop()
