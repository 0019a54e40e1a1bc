"""Models that are called from Python, and those that call each other: a call within a call waits for a slot, but not for ever."""

from __future__ import annotations

import asyncio
import datetime
import json
import math
import threading
from array import array
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest

from oip_asgi import (
    InferenceContext,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InferenceServer,
    RequestOutput,
    Tensor,
    TensorSpec,
)
from tests.support.asking import ask, error, get
from tests.support.inside import limit_threads, wait_for_turns
from tests.support.metrics import is_idle, waiting_calls
from tests.support.pictures import Picture, PictureCodec
from tests.support.talk import block_until, until

NO_TEXT = "an array of Python objects can be a BYTES tensor only, of str or bytes, but"
MASKED = np.ma.array([1.5, 99.0], mask=[False, True])
IS_MASKED = "input 'x': a masked array with masked elements is no tensor: fill them, as in array.filled(0)"
NO_INT64 = '; for a missing value, the model has to declare a column, such as x: pd.Series, with pd_dtype="Int64"'
NO_GAPS = "; for a missing value, the model has to take columns of a data frame"
SEVERAL = "has elements of several types, or objects: expected strings, numbers, or true and false"
NO_DATATYPE = "no datatype holds all of its whole numbers, not even UINT64: make floats of them, if they may be rounded"
BESIDE = "as a fraction or a missing value beside it makes FP64 of it: declare FP64, or write floats"
ROUNDS = f"input 'x': 9007199254740993 would be rounded, {BESIDE}"
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DAY, AT = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2)

Infer: TypeAlias = Callable[..., InferenceResponse]


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda **inputs: inputs)
    server.register(
        "double", lambda x: {"y": x * 2}, inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])], version="1"
    )
    texts = TensorSpec("city", "BYTES", [-1], content_type="str")
    columns = [TensorSpec("age", "FP64", [-1]), TensorSpec("visits", "INT64", [-1], pd_dtype="Int64"), texts]
    server.register("no frame", lambda visits, city: visits, inputs=columns[1:])
    server.register("frame", lambda df: {"x": df["x"].to_numpy()}, content_type="pd")
    server.register("missing", lambda df: {"missing": df.isna().sum().to_numpy()}, content_type="pd", inputs=columns)
    return server


@pytest.fixture(params=["infer", "infer_sync"])
def infer(request: pytest.FixtureRequest, server: InferenceServer) -> Infer:
    if request.param == "infer_sync":
        return server.infer_sync
    return lambda *args, **options: asyncio.run(server.infer(*args, **options))


def refusal(infer: Infer, *args: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(InferenceError) as refused:
        infer(*args, **options)
    return refused.value.status, str(refused.value)


WORDS = [b"%d" % number for number in range(2**16 + 3)]


def test_what_can_be_given(server: InferenceServer) -> None:
    for value, datatype, elements in (
        (np.arange(6).reshape(2, 3), "INT64", [[0, 1, 2], [3, 4, 5]]),
        (np.float16(1.5), "FP16", [1.5]),
        (np.array([1, 2], ">i4"), "INT32", [1, 2]),
        ([[1, 2], [3, 4]], "INT64", [[1, 2], [3, 4]]),
        ([1.5, 2], "FP64", [1.5, 2]),
        ([2**63 + 1, 1], "UINT64", [2**63 + 1, 1]),
        ([[2**63 + 1], [1]], "UINT64", [[2**63 + 1], [1]]),
        ([np.array([2**63 + 1], "u8"), np.array([1])], "UINT64", [[2**63 + 1], [1]]),
        (7, "INT64", [7]),
        (True, "BOOL", [True]),
        ("text", "BYTES", [b"text"]),
        (["ä", "b"], "BYTES", ["ä".encode(), b"b"]),
        (b"\xff", "BYTES", [b"\xff"]),
        ([WORDS], "BYTES", [WORDS]),
        ([datetime.datetime(2026, 1, 2)], "BYTES", [b"2026-01-02T00:00:00"]),
        (pd.Series([1.0, 2.0]), "FP64", [1, 2]),
        (pd.Series(["a", "b"]), "BYTES", [b"a", b"b"]),
        (Tensor("other", np.array([1], "u1")), "UINT8", [1]),
    ):
        [output] = server.infer_sync("echo", {"a": value}).outputs
        assert (output.name, output.datatype, output.array.tolist()) == ("a", datatype, elements), value


def test_the_response_is_whole_and_its_outputs_come_as_asked(infer: Infer) -> None:
    response = infer("double", {"x": np.array([1, 2], "f4")}, id="seven")
    assert response["y"].tolist() == [2, 4]
    assert (response.model_name, response.model_version, response.id, response.parameters) == ("double", "1", "seven", {})
    inputs = {"a": [1], "b": ["x"]}
    assert [output.name for output in infer("echo", inputs, outputs=["b"]).outputs] == ["b"]
    [output] = infer("echo", inputs, outputs=[RequestOutput("b", {"content_type": "base64"})]).outputs
    assert (output.parameters, output.array.tolist()) == ({"content_type": "base64"}, [b"eA=="])


def test_scalars_of_numpy_in_a_list_are_numbers(server: InferenceServer, infer: Infer) -> None:
    """Those of Python: tests/table/values."""
    server.register("bytes", lambda x: x, inputs=[TensorSpec("x", "UINT8", [-1])])
    assert infer("bytes", {"x": [2.0, np.float32(3)]})["output_0"].tolist() == [2, 3]
    assert infer("double", {"x": [2**63, -1]})["y"].tolist() == [2.0**64, -2]  # no datatype of integers holds both
    for model in ("echo", "frame"):
        assert np.array_equal(infer(model, {"x": [np.int8(3), None]})["x"], [3, np.nan], equal_nan=True), model


def test_what_numpy_and_pandas_have_in_lists_is_what_it_is(infer: Infer) -> None:
    """Texts keep a NUL at their end, BF16 stays it, and a row of a frame is a list."""
    assert infer("echo", {"x": [np.bytes_(b"a\0")]})["x"].tolist() == [b"a\0"]
    assert infer("echo", {"x": [np.str_("a\0"), "b"]})["x"].tolist() == [b"a\0", b"b"]
    assert infer("echo", {"x": [b"a", bytearray(b"b")]})["x"].tolist() == [b"a", b"b"]
    assert infer("echo", {"x": [np.float32(1), np.float32(2)]})["x"].dtype == np.float32
    rows = [row for _, row in pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}).iterrows()]
    assert infer("echo", {"x": rows})["x"].tolist() == [[1, 3], [2, 4]]


def test_missing_values_of_a_data_frame_as_the_errors_say(infer: Infer) -> None:
    inputs = {"age": [3, None], "visits": pd.Series([1, None], dtype="Int64"), "city": pd.Series(["a", None])}
    assert infer("missing", inputs)["missing"].tolist() == [1, 1, 1]


def test_a_frame_is_its_columns(server: InferenceServer, infer: Infer) -> None:
    @server.model("score")
    def score(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(total=frame["a"] + frame["b"])

    frame = pd.DataFrame({"a": [1, 2], "b": [3.5, 4.5], "c": ["x", "y"]})
    response = infer("score", frame)
    assert response["total"].tolist() == [4.5, 6.5]
    assert response.parameters == {"content_type": "pd"}
    assert refusal(infer, "score", {"frame": frame})[1].startswith("input 'frame' is a data frame, whose columns are inputs")


def test_what_a_codec_of_the_server_encodes() -> None:
    server = InferenceServer(codecs=[PictureCodec])

    @server.model("size")
    def size(picture: Picture) -> int:
        return len(picture.data)

    assert server.infer_sync("size", {"picture": Picture(b"\xff\0")})["output_0"].tolist() == [2]
    with pytest.raises(InferenceError, match="missing input 'picture'"):
        server.infer_sync("size", {})


def test_the_callers_arrays_stay_the_callers(server: InferenceServer, infer: Infer) -> None:
    kept = np.arange(10_000, dtype="f4")
    small = np.zeros(3, "f4")

    @server.model("keeps")
    def keeps(x: np.ndarray[Any, Any]) -> dict[str, Any]:
        assert not x.flags.writeable
        return {"same": x, "kept": kept, "small": small}

    @server.model("writes")
    def writes(x: np.ndarray[Any, Any]) -> Any:
        x = x.copy()
        x += 1
        return x

    words = np.array([b"a", b"b"], object)
    frame = pd.DataFrame({"x": np.zeros(5)})
    for x in (np.zeros(10_000, "f4"), np.zeros(2, "f4"), words):
        before = x.copy()
        response = infer("keeps", {"x": x})
        for output in response.outputs:
            assert output.array.flags.writeable
            output.array[:] = 9
        assert x.flags.writeable
        np.testing.assert_array_equal(x, before)
        if x is not words:
            assert infer("writes", {"x": x})["output_0"].tolist() == [1] * len(x)
            np.testing.assert_array_equal(x, before)
    assert (kept[1], small[0]) == (1, 0)
    infer("echo", frame)
    frame.loc[0, "x"] = 5.0  # it can be written to


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([array("f", [1, 2]), array("f", [3, 4])], np.array([[1, 2], [3, 4]], "f4")),
        ([deque([1, 2]), deque([3, 4])], np.array([[1, 2], [3, 4]])),
        ([[deque([1, 2])]], np.array([[[1, 2]]])),
        ([np.arange(2.0).data, [2.0, 3.0]], np.array([[0.0, 1.0], [2.0, 3.0]])),
        ([memoryview(b"ab"), bytearray(b"c")], np.array([b"ab", b"c"], object)),
        (deque(["a", "b"]), np.array([b"a", b"b"], object)),
        (np.array([True, None], object)[:1], np.array([True])),
        (np.array([1, 2.5, None], object), np.array([1, 2.5, math.nan])),
    ],
)
def test_what_holds_numbers_is_as_a_list_of_them(server: InferenceServer, values: Any, expected: Any) -> None:
    [output] = server.infer_sync("echo", {"x": values}).outputs
    assert output.array.dtype == expected.dtype
    np.testing.assert_array_equal(output.array, expected)


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_of_numpy_are_dates(unit: str) -> None:
    server = InferenceServer()

    def show(x: list[datetime.datetime]) -> list[str]:
        return list(map(str, x))

    server.register("show", show)
    server.register("frame", lambda df: df["x"].isna().to_numpy(), inputs=[TensorSpec("x", "BYTES", [-1], "datetime")], content_type="pd")
    points = np.array([DAY, "NaT"], f"M8[{unit}]")
    for there in (points[:1], list(points[:1]), points[0], [DAY], [AT], DAY):
        assert server.infer_sync("show", {"x": there})["output_0"].tolist() == [str(AT).encode()]
    for missing in (points, list(points), [DAY, None], [str(DAY), "NaT"], np.array([AT, None], object)):
        assert server.infer_sync("frame", {"x": missing})["output_0"].tolist() == [False, True]
        with pytest.raises(InferenceError, match=r"'x': (data\[1\] is None|element 1 is b'NaT')"):
            server.infer_sync("show", {"x": missing})
    with pytest.raises(InferenceError, match=r"data\[0\] is np.datetime64\('2026-01-02T00:00:00.000000001'\): expected str or date"):
        server.infer_sync("show", {"x": points[:1].astype("M8[ns]") + 1})


@pytest.mark.parametrize(
    ("model", "inputs", "text"),
    [
        ("double", {}, "missing input 'x'"),
        ("double", {"z": [1]}, "unknown input 'z'"),
        ("double", {1: [1]}, "an input is called 1: expected a string"),
        ("double", [1], "the inputs are [1]: expected values by name"),
        (
            "double",
            {"x": None},
            "input 'x': data is None: expected a scalar or a list of FP32; for a missing number, write [None]; if it has a default, leave"
            " it out",
        ),
        ("double", {"x": object()}, "input 'x': data[0] is <object object at "),
        ("double", {"x": [1.5, pd.NA]}, "input 'x': data[1] is <NA>: expected a number or None for FP32"),
        ("double", {"x": [np.timedelta64(5, "Y")]}, "input 'x': data[0] is np.timedelta64(5,'Y'): expected a number or None for FP32"),
        ("double", {"x": ENDLESS}, "input 'x': it is nested too deep"),
        ("echo", {"x": object()}, f"input 'x': {NO_TEXT} holds <object object at "),
        ("double", {"x": [1, [2]]}, "input 'x': "),
        ("double", {"x": np.array([1.0])}, "input 'x' has datatype FP64: expected FP32"),  # an array has said what it is
        ("echo", {"x": [2**63, -1]}, f"input 'x': {NO_DATATYPE}"),
        ("no frame", {"visits": [1], "city": [None]}, f"input 'city': data[0] is None: expected str or bytes for BYTES{NO_GAPS}"),
        ("no frame", {"visits": [1, None], "city": ["a"]}, f"input 'visits': data[1] is None: expected an integer for INT64{NO_INT64}"),
        ("echo", {"x": [None]}, "input 'x': each value is missing, which does not show what they are: declare the input"),
        ("echo", {"x": [True, 2]}, f"input 'x': data {SEVERAL}"),
        ("echo", {"x": (np.True_, np.int64(2))}, f"input 'x': data {SEVERAL}"),
        ("double", {"x": [True, 2.5]}, "input 'x': data[0] is True: expected a number or None for FP32"),
        ("frame", {"x": [True, 2]}, f"input 'x': data {SEVERAL}"),
        ("echo", {"x": [None, 2**53 + 1]}, ROUNDS),
        ("echo", {"x": [2**53 + 1, math.nan]}, ROUNDS),
        ("echo", {"x": [[1, 2**53 + 1], [1.5, 2]]}, ROUNDS),
        ("echo", {"x": [np.array([2**53 + 1]), np.array([1.5])]}, ROUNDS),
        ("echo", {"x": [2**1100, 1.5]}, "input 'x': data: element 0 is out of range for FP64"),
        ("echo", {"x": deque([2**53 + 1, 1.5])}, ROUNDS),
        ("echo", {"x": [deque([2**53 + 1, 1.5])]}, ROUNDS),
        ("echo", {"x": [[deque([2**53 + 1, 1.5])]]}, ROUNDS),
        ("echo", {"x": deque([True, 2])}, f"input 'x': data {SEVERAL}"),
        ("echo", {"x": deque([2**63, -1])}, f"input 'x': {NO_DATATYPE}"),
        *(("echo", {"x": masked}, IS_MASKED) for masked in (np.ma.masked, MASKED, [1.5, np.ma.masked], list(MASKED), [MASKED])),
        ("frame", {"x": (np.int64(2**53 + 1), None, 1.5)}, ROUNDS),
        ("double", {"x": ["1", None]}, "input 'x': data[0] is '1': expected a number or None for FP32"),
        (
            "missing",
            {"age": [1], "visits": [1, math.nan], "city": ["a"]},
            f"input 'visits': data[1] is nan: expected an integer for INT64{NO_INT64}",
        ),
        ("echo", {"x": [AT, None]}, f"input 'x': data[1] is None: expected str or date for BYTES{NO_GAPS}"),
        ("echo", {"x": np.array([DAY, None], "M8[D]")}, f"input 'x': data[1] is None: expected str or date for BYTES{NO_GAPS}"),
        ("echo", {"x": [AT, b"2026"]}, f"input 'x': data {SEVERAL}"),
        ("double", {"x": np.zeros((0, 1001, 1000), "f4")}, "input 'x': shape is too large: it has a 0"),
    ],
)
def test_inputs_that_are_wrong_are_told_as_to_a_client(server: InferenceServer, model: str, inputs: Any, text: str) -> None:
    status, told = refusal(server.infer_sync, model, inputs)
    assert (status, told[: len(text)]) == (400, text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"outputs": ["z"]}, "unknown output 'z'"),
        ({"outputs": ["y", "y"]}, "output 'y' is asked for twice"),
        ({"parameters": {"timeout": "1"}}, "parameters.timeout is '1'"),
        ({"parameters": {"a": []}}, "the request has the parameter 'a' = []: expected a str, int"),
        ({"parameters": {"a": 2**70}}, "the request has the parameter 'a' = 1180591620717411303424, which has"),
        ({"parameters": {"a": "\ud800"}}, "the request has the parameter 'a' = '\\ud800': expected text"),
        ({"parameters": {"content_type": "jpeg"}}, "the request has the unknown content_type 'jpeg'"),
        ({"name": "nope"}, "Request for unknown model: 'nope' is not found"),
        ({"version": "2"}, "Request for unknown model: 'double' version '2' is not found"),
    ],
)
def test_what_else_is_wrong_is_told_as_to_a_client(infer: Infer, options: Any, text: str) -> None:
    status, told = refusal(infer, **{"name": "double", "inputs": {"x": [1]}, **options})
    assert (status, told[: len(text)]) == (404 if "unknown model" in text else 400, text)


def test_a_model_sees_a_request_without_a_transport(server: InferenceServer, infer: Infer) -> None:
    seen: list[Any] = []

    @server.model("sees")
    def sees(request: InferenceRequest, context: InferenceContext) -> int:
        seen.append((request.inputs[0].name, dict(context.headers), context.transport, context.parameters, context.id))
        return 1

    infer("sees", {"x": [1]}, parameters={"a": np.int64(1)}, id="i")
    assert type(seen[0][3]["a"]) is int
    assert seen == [("x", {}, None, {"a": 1}, "i")]


def test_a_model_calls_others_with_free_slots_and_counts_against_them_alone() -> None:
    server = InferenceServer()
    limit_threads(server, 1)
    server.register("inner", lambda x: x * 2, max_concurrency=1, timeout=20)
    server.register("sync", lambda x: server.infer_sync("inner", {"x": x})["output_0"], max_concurrency=3, timeout=20)

    @server.model("async", max_concurrency=3)
    async def outer(x: np.ndarray[Any, Any]) -> Any:
        return (await server.infer("inner", {"x": x}))["output_0"]

    async def main() -> list[Any]:
        calls = [server.infer(name, {"x": [number]}) for number in range(10) for name in ("sync", "async")]
        return [response["output_0"].tolist() for response in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [[2 * number] for number in range(10) for _ in range(2)]
    assert json.loads(ask(server, "sync", x=[3]).body)["outputs"][0]["data"] == [6]
    assert is_idle(server)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_would_wait_for_itself_is_refused(caplog: pytest.LogCaptureFixture, is_async: bool) -> None:
    server = InferenceServer()

    def call(name: str, following: str) -> Any:
        async def awaits() -> Any:
            return (await asyncio.create_task(server.infer(following, {})))["output_0"]

        return awaits if is_async else lambda: server.infer_sync(following, {})["output_0"]

    server.register("a", call("a", "b"), max_concurrency=1)
    server.register("b", call("b", "a"))
    text = (
        "'a' calls 'b' calls 'a': the last call would wait for itself, as calls that it is made within hold all 1 slots of model 'a': "
        "give it a larger max_concurrency, or do not call it from within"
    )
    assert error(ask(server, "a")) == (500, text)
    assert {record.getMessage() for record in caplog.records} == {f"model {name!r}: a request failed with 500: {text}" for name in "ab"}
    assert is_idle(server)


def test_calls_that_run_when_the_server_stops_may_call_others_to_their_end() -> None:
    server = InferenceServer(shutdown_timeout=20)
    leave = threading.Event()
    server.register("inner", lambda: 2)
    server.register("outer", lambda: leave.wait(20) and server.infer_sync("inner", {})["output_0"])
    with ThreadPoolExecutor(2) as threads:
        asking = threads.submit(server.infer_sync, "outer", {})
        block_until(lambda: not is_idle(server))
        stopping = threads.submit(server.stop)
        block_until(lambda: get(server, "/health/ready")[0] == 503)
        with pytest.raises(InferenceError, match="model 'inner' is not ready: the server is stopping"):
            server.infer_sync("inner", {})
        leave.set()
        assert asking.result(20)["output_0"].tolist() == [2]
        stopping.result(20)


def test_a_call_within_one_of_the_same_model_does_not_wait_for_others() -> None:
    """Two calls that hold a slot each, and want another each, would wait for each other."""
    server = InferenceServer()
    both = threading.Barrier(2)

    @server.model("m", max_concurrency=2)
    def model(depth: np.ndarray[Any, Any]) -> Any:
        if depth[0] == 0:
            return 0
        both.wait(20)
        try:
            return server.infer_sync("m", {"depth": [0]})["output_0"]
        except InferenceError as error:
            return str(error)

    async def main() -> list[Any]:
        return [response["output_0"].tolist() for response in await asyncio.gather(*[server.infer("m", {"depth": [1]}) for _ in range(2)])]

    told = asyncio.run(main())
    busy = [b"model 'm' is busy: 2 calls run, and a call within one of its own does not wait"]
    assert busy in told
    assert all(answer in (busy, [0]) for answer in told)


async def test_a_task_that_outlives_its_call_may_wait_for_the_model() -> None:
    server = InferenceServer()
    tasks: list[asyncio.Task[Any]] = []
    leave = asyncio.Event()

    @server.model("m", max_concurrency=1)
    async def model(late: np.ndarray[Any, Any]) -> int:
        async def ask_again() -> Any:
            await leave.wait()
            return await server.infer("m", {"late": [1]})

        if not late[0]:
            tasks.append(asyncio.create_task(ask_again()))
        await asyncio.sleep(0.01)
        return 1

    await server.infer("m", {"late": [0]})
    running = asyncio.create_task(server.infer("m", {"late": [1]}))
    await asyncio.sleep(0)
    leave.set()
    assert (await tasks[0])["output_0"].tolist() == [1]
    await running


LEAF = 0
"""The input of a call that calls no other."""

REFUSED = (
    "{0!r} calls {1!r}: the last call got no slot of model {1!r} until its caller's deadline, or for {2} seconds without one: give these "
    "models a larger max_concurrency, or do not let them call each other"
)

models = pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])
sharing = pytest.mark.parametrize("options", [{}, {"max_batch_size": 4}], ids=["alone", "batches"])


class Ring:
    """Models of one slot, each of which calls the next one, as soon as all of them run.

    Args:
        names: The models.
        is_async: Whether they are coroutine functions.
        options: Those of each.
    """

    def __init__(self, names: str, is_async: bool, **options: Any) -> None:
        self.server = InferenceServer()
        self.names = names
        self.running: set[str] = set()
        for name, following in zip(names, names[1:] + names[0], strict=True):
            made = self._awaited(name, following) if is_async else self._called(name, following)
            self.server.register(name, made, **{"max_concurrency": 1, **options})

    def _called(self, name: str, following: str) -> Any:
        def model(x: Any) -> Any:
            if (x == LEAF).all():
                return x
            self.running.add(name)
            block_until(lambda: len(self.running) == len(self.names))
            return self.server.infer_sync(following, {"x": np.full_like(x, LEAF)})["output_0"] + x

        return model

    def _awaited(self, name: str, following: str) -> Any:
        async def model(x: Any) -> Any:
            if (x == LEAF).all():
                return x
            self.running.add(name)
            while len(self.running) < len(self.names):
                await asyncio.sleep(0.001)
            return (await self.server.infer(following, {"x": np.full_like(x, LEAF)}))["output_0"] + x

        return model

    def ask(self, *names: str) -> list[Any]:
        async def main() -> list[Any]:
            asks = [self.server.infer(name, {"x": np.ones((1, 1), "i4")}) for name in names]
            return await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 20)

        answers = [answer if isinstance(answer, Exception) else answer["output_0"].tolist() for answer in asyncio.run(main())]
        block_until(lambda: is_idle(self.server))
        return answers


@models
@pytest.mark.parametrize(("names", "options"), [("ab", {}), ("abc", {"max_batch_size": 4})])
def test_calls_that_wait_for_each_other_are_refused_after_a_while(
    is_async: bool, names: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_turns(monkeypatch, 0.2)
    answers = Ring(names, is_async, **options).ask(*names)
    refused = [answer for answer in answers if isinstance(answer, InferenceError)]
    assert refused  # all, if they wait from the same moment on
    assert {error.status for error in refused} == {503}
    texts = {REFUSED.format(name, following, 0.2) for name, following in zip(names, names[1:] + names[0], strict=True)}
    assert {str(error) for error in refused} <= texts
    assert all(answer == [[1]] for answer in answers if answer not in refused)


@sharing
def test_a_call_within_one_waits_until_the_deadline_of_its_caller(options: Any) -> None:
    server, leave = InferenceServer(), threading.Event()
    told: list[InferenceError] = []

    @server.model("inner", max_concurrency=1, **options)
    def inner(x: Any) -> Any:
        leave.wait(20)
        return x

    @server.model("outer", timeout=0.3)
    def outer(x: Any) -> Any:
        try:
            return server.infer_sync("inner", {"x": x})["output_0"]
        except InferenceError as error:
            told.append(error)
            raise

    async def main() -> None:
        first = asyncio.create_task(server.infer("inner", {"x": np.ones((1, 1))}))
        await until(lambda: not is_idle(server))
        with pytest.raises(InferenceError) as late:
            await server.infer("outer", {"x": np.ones((1, 2))})  # of another shape, so that no batch takes it along
        assert late.value.status in (503, 504)  # the model ends at the same time as its deadline passes
        await until(lambda: bool(told))
        leave.set()
        await first

    asyncio.run(main())
    assert [(error.status, str(error)) for error in told] == [(503, REFUSED.format("outer", "inner", 60))]
    block_until(lambda: is_idle(server))


@sharing
async def test_a_wait_for_a_call_that_comes_to_its_end_closes_no_circle(options: Any) -> None:
    server = InferenceServer()
    ring = {"a", "b"}

    async def call(name: str, following: str, x: Any) -> Any:
        ring.discard(name)
        await until(lambda: not ring)
        return (await server.infer(following, {"x": np.full_like(x, LEAF)}))["output_0"] + x

    @server.model("a", max_concurrency=1, **options)
    async def a(x: Any) -> Any:
        return x if (x == LEAF).all() else await call("a", "b", x)

    @server.model("b", max_concurrency=2, **options)
    async def b(x: Any) -> Any:
        if (x == 2).all():
            await until(lambda: waiting_calls(server, "a") == waiting_calls(server, "b") == 1)
            return x
        return x if (x == LEAF).all() else await call("b", "a", x)

    asks = [server.infer(name, {"x": np.full((1, 1), value)}) for name, value in [("b", 2), ("a", 1), ("b", 1)]]
    assert ([answer["output_0"].tolist() for answer in await asyncio.wait_for(asyncio.gather(*asks), 20)]) == [[[2]], [[1]], [[1]]]


def test_waits_of_a_blocking_caller_close_a_circle_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_turns(monkeypatch, 0.2)
    ring = Ring("ab", is_async=False)
    answers: dict[str, Any] = {}

    def ask(name: str) -> None:
        try:
            answers[name] = ring.server.infer_sync(name, {"x": np.ones((1, 1), "i4")})["output_0"].tolist()
        except InferenceError as error:
            answers[name] = error.status

    threads = [threading.Thread(target=ask, args=[name], daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answers) == ["a", "b"]
    assert 503 in answers.values()
