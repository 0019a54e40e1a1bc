"""Requests that share a call: which do, what each gets, and what the function sees."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, RequestOutput, ResponseCache, Tensor
from oip_asgi.codecs import PandasCodec
from tests.support.batching import Held, play, rows, told
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import block_until, until


async def double(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


def having(**parameters: Any) -> dict[str, Any]:
    return {"inputs": {"x": rows(1)}, "parameters": parameters}


def add_one(x: Any) -> Any:
    x += 1
    return x


def shout(x: Any) -> Any:
    return [text.upper() for text in x.tolist()]


NOT_FOR_THE_MODEL: list[dict[str, Any]] = [
    {"timeout": 30_000_000}, {"priority": 2}, {"sequence_id": 1, "sequence_start": True}, {"binary_data_output": True}, {}
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "asks", "answers", "sizes"),
    [
        pytest.param(Held, [rows(1), rows(2, 3), rows(4)], [[2], [4, 6], [8]], [4], id="def"),
        pytest.param(partial(Held, double, is_async=True), [rows(1), rows(2, 3), rows(4)], [[2], [4, 6], [8]], [4], id="async def"),
        pytest.param(
            partial(Held, max_batch_size=3), [rows(1), rows(2, 3), rows(4), rows(5)], [[2], [4, 6], [8], [10]], [3, 2], id="the most rows"
        ),
        pytest.param(
            Held,
            [rows(1), rows(2, dtype="f8"), np.ones((1, 2), "f4"), having(mode=1), rows(4), rows(1.5, dtype="f8")],
            [[2], [4], [2, 2], [2], [8], [3]],
            [2, 2, 1, 1],
            id="other datatypes, shapes and parameters",
        ),
        pytest.param(Held, [having(**each) for each in NOT_FOR_THE_MODEL], [[2]] * 5, [5], id="parameters that are not for the function"),
        pytest.param(
            Held, [having(flag=value) for value in (1, True, 1.0, "1")], [[2]] * 4, [1] * 4, id="values that Python takes for equal"
        ),
        pytest.param(Held, [having(flag=value) for value in (0.0, -0.0, 0, False)], [[2]] * 4, [1] * 4, id="zeros"),
        pytest.param(
            partial(Held, np.atleast_1d, max_batch_size=2),
            [rows(1), rows(1, 2, 3), rows(2), np.ones((0, 1), "f4"), np.ones((0, 1), "f4")],
            [[1], [1, 2, 3], [2], [], []],
            [2, 3, 0, 0],
            id="larger ones, and those without rows",
        ),
        pytest.param(
            partial(Held, shout),
            [["a", "bc"], np.array([b"\xff\x00"], object)],
            [[b"A", b"BC"], [b"\xff\x00"]],
            [3],
            id="strings and bytes",
        ),
    ],
)
def test_what_shares_a_call(make: Callable[[], Held], asks: list[Any], answers: list[Any], sizes: list[int]) -> None:
    held = make()
    assert play(held, *asks) == answers
    assert held.sizes == sizes


@pytest.mark.parametrize("model", ["named", "frame"])
def test_names_of_inputs_are_a_set_for_parameters_and_in_order_for_a_frame(model: str) -> None:
    shapes: list[Any] = []
    server = InferenceServer()
    leave, holds = threading.Event(), threading.Event()

    def note(shape: Any) -> None:
        if not holds.is_set():
            holds.set()
            assert leave.wait(20)
        shapes.append(shape)

    @server.model("named", max_batch_size=8, max_concurrency=1)
    def named(a: Any, b: Any = None) -> Any:
        note(len(a))
        return a

    @server.model("frame", max_batch_size=8, max_concurrency=1)
    def frame(df: pd.DataFrame) -> pd.DataFrame:
        note((list(df.columns), len(df)))
        return df

    def ask(names: str) -> asyncio.Task[Any]:
        return asyncio.create_task(server.infer(model, {name: np.array([place], "i8") for place, name in enumerate(names)}))

    async def main() -> None:
        first = ask("a")
        await until(holds.is_set)
        asked = [ask(names) for names in ("ab", "ba", "ab", "a")]
        await until(lambda: waiting_calls(server, model) == 4)
        leave.set()
        await asyncio.gather(first, *asked)

    asyncio.run(main())
    expected = {"named": [1, 3, 1], "frame": [(["a"], 1), (["a", "b"], 2), (["b", "a"], 1), (["a"], 1)]}
    assert shapes == expected[model]


@pytest.mark.parametrize("run", ["thread", "inline", "async"])
def test_the_function_sees_no_context_variable_of_a_request(run: Any) -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    def model(x: Any) -> Any:
        return [user.get()] * len(x)

    async def awaited(x: Any) -> Any:
        return model(x)

    server = InferenceServer()
    server.register("m", awaited if run == "async" else model, max_batch_size=2, run="inline" if run == "inline" else "thread")

    async def main() -> Any:
        user.set("me")
        return await server.infer("m", {"x": rows(1)})

    answers = [asyncio.run(main())]
    user.set("me")
    answers.append(server.infer_sync("m", {"x": rows(1)}))
    assert [answer["output_0"].tolist() for answer in answers] == [[b"nobody"]] * 2
    server.stop()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("function", [lambda x: x * 2, lambda x: x.reshape(7)], ids=["works", "fails"])
def test_nothing_of_a_request_waits_for_the_garbage_collector(function: Any, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "oip_asgi")  # pytest keeps what is logged, and so what was raised

    async def model_async(x: Any) -> Any:
        return function(x)

    held = Held(model_async, is_async=True) if is_async else Held(function)
    kept: list[Any] = []

    async def main() -> None:
        arrays = [rows(place) for place in range(3)]
        kept.extend(weakref.ref(array) for array in arrays)
        assert len({task.exception() is None for task in await held.together(*arrays)}) == 1

    gc.disable()
    try:
        asyncio.run(main())
        block_until(lambda: not any(array() is not None for array in kept))
    finally:
        gc.enable()


async def test_a_scalar_and_inputs_of_different_rows_run_alone() -> None:
    server = InferenceServer()
    seen = []

    @server.model("m", max_batch_size=8, max_batch_delay=0.02)
    def model(x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return x.sum() + y.sum()

    asks = [(np.ones(2), np.ones(3)), (np.ones(2), np.ones(3)), (np.ones(()), np.ones(2))]
    assert [
        response["output_0"].tolist() for response in (await asyncio.gather(*[server.infer("m", {"x": x, "y": y}) for x, y in asks]))
    ] == [[5], [5], [3]]
    assert len(seen) == 3


def test_one_request_has_its_own_arrays_and_several_one_that_nobody_else_has() -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x)
        return x

    held = Held(note)
    mine = np.arange(5000, dtype="f4").reshape(-1, 1)
    assert len(play(held, mine)[0]) == 5000
    assert np.shares_memory(seen[0], mine)
    held = Held(note)
    play(held, rows(1), rows(2))
    assert not seen[1].flags.writeable
    assert seen[1].flags.c_contiguous


async def test_each_gets_the_outputs_and_content_types_that_it_asks_for() -> None:
    held = Held(lambda x: {"a": x, "b": [str(v) for v in x[:, 0]]})
    as_text = [RequestOutput("b", {"content_type": "str"})]
    asks: list[Any] = [
        {"inputs": {"x": rows(place)}, "outputs": out} for place, out in enumerate([["b"], ["b", "a"], as_text, ["c"], None])
    ]
    tasks = await held.together(*asks)
    assert ([told(task) if task.exception() else [_shown(tensor) for tensor in task.result().outputs] for task in tasks]) == [
        [("b", [b"0.0"], {})],
        [("b", [b"1.0"], {}), ("a", [1.0], {})],
        [("b", [b"2.0"], {"content_type": "str"})],
        (400, "unknown output 'c': expected 'a', 'b'"),
        [("a", [4.0], {}), ("b", [b"4.0"], {})],
    ]
    assert held.sizes == [5]


def _shown(tensor: Tensor) -> Any:
    return tensor.name, tensor.array.ravel().tolist(), tensor.parameters


async def test_parameters_of_a_response_are_those_of_all() -> None:
    held = Held(lambda x: InferenceResponse([Tensor("y", x, {"unit": "m"})], {"took": 1.5}))
    first, second = [task.result() for task in await held.together({"inputs": {"x": rows(1)}, "id": "one"}, rows(2, 3))]
    assert (first.id, first["y"].tolist(), first.parameters, first.outputs[0].parameters) == ("one", [[1]], {"took": 1.5}, {"unit": "m"})
    assert (second.id, second["y"].tolist(), second.parameters) == (None, [[2], [3]], {"took": 1.5})


@pytest.mark.parametrize("columns", [1, 5000, 300_000])
async def test_memory_that_the_model_uses_again_is_copied_in_time(columns: int) -> None:
    buffer = np.empty((8, columns), "f4")

    def model(x: Any) -> Any:
        np.multiply(x, 2, out=buffer[: len(x)])
        return buffer[: len(x)]

    server = InferenceServer()
    server.register("m", model, max_batch_size=8, max_batch_delay=0.001, max_concurrency=1)

    async def one(number: int) -> None:
        answer = await server.infer("m", {"x": np.full((1, columns), number, "f4")})
        assert (answer["output_0"] == 2 * number).all()

    await asyncio.gather(*[one(number) for number in range(60)])


async def test_callers_own_what_they_get() -> None:
    held = Held(lambda x: x)
    first, second = [task.result()["output_0"] for task in await held.together(np.ones((4, 2000), "f4"), np.ones((4, 2000), "f4"))]
    assert held.sizes == [8]
    first += 1
    assert (second == 1).all()
    assert first.base is None


@pytest.mark.parametrize("form", [lambda column: column, lambda column: pd.DataFrame({"a": column}), lambda column: {"a": column}])
def test_categories_are_those_of_the_requests_own_rows_alone_and_beside_others(form: Any) -> None:
    """Those of other rows may be what other clients sent, and no answer shows with whom a request shared its call."""

    def name(x: Any) -> Any:
        return form(pd.Series(pd.Categorical(x[:, 0], [3.0, 2.0, 1.0, 0.0], ordered=True)))

    async def main(*asks: Any) -> list[Any]:
        return [response.outputs[0] for response in [task.result() for task in await Held(name).together(*asks)]]

    [alone], [beside, other] = asyncio.run(main(rows(1, 3, 1))), asyncio.run(main(rows(1, 3, 1), rows(2)))
    assert (alone.parameters, alone.array.tolist()) == (beside.parameters, beside.array.tolist())
    columns = [PandasCodec.decode_request(InferenceRequest([each])).iloc[:, 0] for each in (alone, other)]
    assert [column.cat.categories.tolist() for column in columns] == [[3, 1], [2]]


async def test_reloading_does_not_mix_old_and_new() -> None:
    server = InferenceServer()
    made: list[list[int]] = []

    def load() -> Any:
        sizes: list[int] = []
        made.append(sizes)
        factor = len(made)

        def model(x: Any) -> Any:
            sizes.append(len(x))
            return x * factor

        return model

    server.register("m", load=load, max_batch_size=4, max_batch_delay=20.0)
    await server.load("m")
    old = [asyncio.create_task(server.infer("m", {"x": rows(place)})) for place in range(3)]
    while waiting_calls(server, "m") < 3:
        await asyncio.sleep(0.001)
    await server.load("m")
    new = [asyncio.create_task(server.infer("m", {"x": rows(place)})) for place in range(4)]
    await asyncio.wait(new)
    assert not any(task.done() for task in old)
    async with server.lifespan():
        pass  # a stop holds nobody back
    await asyncio.wait(old)
    assert ([told(task) for task in [*old, *new]]) == [[0], [1], [2], [0], [2], [4], [6]]
    assert made[:2] == [[3], [4]]


def test_a_batched_model_may_call_others_and_not_itself_for_ever() -> None:
    server = InferenceServer()
    server.register("inner", lambda x: x + 1, max_batch_size=4, max_batch_delay=0.001)

    @server.model("outer", max_batch_size=4, max_batch_delay=0.001)
    def outer(x: Any) -> Any:
        return server.infer_sync("inner", {"x": x})["output_0"]

    @server.model("own", max_batch_size=4, max_batch_delay=0.001, max_concurrency=1)
    def own(x: Any) -> Any:
        return server.infer_sync("own", {"x": x})["output_0"]

    async def main() -> Any:
        good = await asyncio.gather(*[server.infer("outer", {"x": rows(n)}) for n in range(4)])
        bad = await asyncio.gather(*[server.infer("own", {"x": rows(n)}) for n in range(2)], return_exceptions=True)
        return [answer["output_0"].tolist() for answer in good], [str(error) for error in bad]

    good, bad = asyncio.run(main())
    assert good == [[[1]], [[2]], [[3]], [[4]]]
    assert all("'own' calls 'own': the last call would wait for itself" in text for text in bad)
    block_until(lambda: is_idle(server))


def test_a_cache_and_classification_stand_before_and_after_a_batch() -> None:
    held = Held(lambda x: np.hstack([x, -x]), cache=ResponseCache(max_bytes=10**6))

    def ask(number: float, **parameters: Any) -> dict[str, Any]:
        return {"inputs": {"x": rows(number)}, "outputs": [RequestOutput("output_0", parameters)]}

    async def main() -> list[Any]:
        tasks = await held.together(rows(1), ask(2), ask(3, classification=1))
        again = [await held.server.infer("m", {"x": rows(1)}), await held.server.infer("m", **ask(2))]
        return [*map(told, tasks), *(answer["output_0"].ravel().tolist() for answer in again)]

    assert asyncio.run(main()) == [[1, -1], [2, -2], [b"3.000000:0"], [1, -1], [2, -2]]
    assert held.sizes == [3]
