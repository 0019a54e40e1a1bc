"""Requests that share a call: which do, what each gets, and what the function sees."""

from __future__ import annotations

import asyncio
import datetime
import gc
import logging
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, RequestOutput, ResponseCache, Tensor
from oip_asgi.codecs import PandasCodec
from tests.support.batching import Held, rows, told
from tests.support.inside import is_idle, waiting_calls
from tests.support.talk import block_until, until


async def double(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


def play(held: Held, *asks: Any) -> list[Any]:
    """What each of some requests is told that waited together."""

    async def main() -> list[Any]:
        return [told(task) for task in await held.together(*asks)]

    answers = asyncio.run(main())
    assert is_idle(held.server)
    return answers


@pytest.mark.parametrize("is_async", [False, True])
def test_three_requests_are_one_call(is_async: bool) -> None:
    held = Held(double, is_async=True) if is_async else Held()
    assert play(held, rows(1), rows(2, 3), rows(4)) == [[2], [4, 6], [8]]
    assert held.sizes == [4]


def test_a_batch_has_no_more_rows_than_the_most() -> None:
    held = Held(max_batch_size=3)
    assert play(held, rows(1), rows(2, 3), rows(4), rows(5)) == [[2], [4, 6], [8], [10]]
    assert held.sizes == [3, 2]


def test_what_differs_in_more_than_rows_runs_apart() -> None:
    held = Held()
    wide = np.ones((1, 2), "f4")
    asks = [rows(1), rows(2, dtype="f8"), wide, {"inputs": {"x": rows(3)}, "parameters": {"mode": 1}}, rows(4), rows(1.5, dtype="f8")]
    assert play(held, *asks) == [[2], [4], [2, 2], [6], [8], [3]]
    assert held.sizes == [2, 2, 1, 1]


def test_parameters_that_are_not_for_the_function_do_not_matter() -> None:
    held = Held()
    parameters = [{"timeout": 30_000_000}, {"priority": 2}, {"sequence_id": 1, "sequence_start": True}, {"binary_data_output": True}, {}]
    asks = [{"inputs": {"x": rows(place)}, "parameters": each, "id": str(place)} for place, each in enumerate(parameters)]
    assert play(held, *asks) == [[0], [2], [4], [6], [8]]
    assert held.sizes == [5]


@pytest.mark.parametrize("values", [(1, True, 1.0, "1"), (0.0, -0.0, 0, False)])
def test_values_that_python_takes_for_equal_are_not_the_same_parameter(values: tuple[object, ...]) -> None:
    held = Held()
    assert play(held, *({"inputs": {"x": rows(1)}, "parameters": {"flag": value}} for value in values)) == [[2]] * 4
    assert held.sizes == [1, 1, 1, 1]


def test_names_of_inputs_are_a_set_for_parameters_and_in_order_for_a_frame() -> None:
    def ask(*names: str) -> dict[str, Any]:
        return {"inputs": {name: np.array([place], "i8") for place, name in enumerate(names)}}

    shapes: list[Any] = []
    server = InferenceServer()
    leave, holds = threading.Event(), threading.Event()

    def hold(**_: Any) -> None:
        if not holds.is_set():
            holds.set()
            assert leave.wait(20)

    @server.model("named", max_batch_size=8, max_concurrency=1)
    def named(a: Any, b: Any = None) -> Any:
        hold()
        shapes.append(len(a))
        return a

    @server.model("frame", max_batch_size=8, max_concurrency=1)
    def frame(df: pd.DataFrame) -> pd.DataFrame:
        hold()
        shapes.append((list(df.columns), len(df)))
        return df

    async def main(model: str) -> None:
        holds.clear()
        leave.clear()
        shapes.clear()
        first = asyncio.create_task(server.infer(model, **ask("a")))
        await asyncio.to_thread(holds.wait, 20)
        asked = [asyncio.create_task(server.infer(model, **ask(*names))) for names in ("ab", "ba", "ab", "a")]
        while waiting_calls(server, model) < 4:
            await asyncio.sleep(0.001)
        leave.set()
        await asyncio.gather(first, *asked)

    asyncio.run(main("named"))
    assert shapes == [1, 3, 1]
    asyncio.run(main("frame"))
    assert shapes == [(["a"], 1), (["a", "b"], 2), (["b", "a"], 1), (["a"], 1)]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])
@pytest.mark.parametrize(("preferred", "delay"), [([2], 60.0), ([2, 6], 0.2)], ids=["above the largest", "between two"])
def test_a_batch_that_grows_past_a_preferred_size_while_the_model_is_busy_is_answered(
    is_async: bool, preferred: list[int], delay: float
) -> None:
    options: Any = {"preferred_batch_sizes": preferred, "max_batch_delay": delay}
    held = Held(double, is_async=True, **options) if is_async else Held(**options)

    async def main() -> list[Any]:
        holder = asyncio.create_task(held.server.infer("m", {"x": rows(0, 0)}))
        await until(held.holds.is_set)
        tasks = []
        for place, ask in enumerate([rows(1, 2), rows(3)]):
            tasks.append(asyncio.create_task(held.server.infer("m", {"x": ask})))
            await until(lambda wanted=place + 1: waiting_calls(held.server, "m") == wanted)
        held.leave.set()
        await asyncio.wait([holder, *tasks], timeout=20)
        return [told(task) if task.done() else "waits for ever" for task in tasks]

    assert asyncio.run(main()) == [[2, 4], [6]]
    assert held.sizes == [3]


def test_above_the_largest_preferred_size_nothing_waits() -> None:
    server = InferenceServer()
    server.register("m", double, max_batch_size=8, preferred_batch_sizes=[2, 6], max_batch_delay=60.0)

    async def main() -> Any:
        return await asyncio.wait_for(server.infer("m", {"x": rows(1, 2, 3, 4, 5, 6, 7)}), 20)

    assert asyncio.run(main())["output_0"].ravel().tolist() == [2, 4, 6, 8, 10, 12, 14]


def test_larger_ones_and_those_without_rows_run_alone() -> None:
    held = Held(np.atleast_1d, max_batch_size=2)
    asks = [rows(1), rows(1, 2, 3), rows(2), np.ones((0, 1), "f4"), np.ones((0, 1), "f4")]
    assert play(held, *asks) == [[1], [1, 2, 3], [2], [], []]
    assert held.sizes == [2, 3, 0, 0]


def test_a_scalar_and_inputs_of_different_rows_run_alone() -> None:
    server = InferenceServer()
    seen = []

    @server.model("m", max_batch_size=8, max_batch_delay=0.02)
    def model(x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return x.sum() + y.sum()

    async def main() -> list[InferenceResponse]:
        asks = [(np.ones(2), np.ones(3)), (np.ones(2), np.ones(3)), (np.ones(()), np.ones(2))]
        return await asyncio.gather(*[server.infer("m", {"x": x, "y": y}) for x, y in asks])

    assert [response["output_0"].tolist() for response in asyncio.run(main())] == [[5], [5], [3]]
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


def test_writable_inputs_are_writable_in_a_batch_too() -> None:
    def add(x: Any) -> Any:
        x += 1
        return x

    held = Held(add, writable=True)
    assert play(held, rows(1), rows(2)) == [[2], [3]]
    assert held.sizes == [2]


def test_strings_and_bytes() -> None:
    def shout(x: Any) -> Any:
        return [text.upper() for text in x.tolist()]

    held = Held(shout)
    assert play(held, ["a", "bc"], np.array([b"\xff\x00"], object)) == [[b"A", b"BC"], [b"\xff\x00"]]
    assert held.sizes == [3]


def test_a_frame_is_made_once_of_all_rows() -> None:
    server = InferenceServer()
    seen: list[pd.DataFrame] = []

    @server.model("m", max_batch_size=8, max_batch_delay=5.0, preferred_batch_sizes=[3])
    def model(df: pd.DataFrame) -> pd.DataFrame:
        seen.append(df)
        return df.assign(total=df["n"] * 2)

    async def main() -> list[InferenceResponse]:
        frames = [pd.DataFrame({"n": [n], "s": [str(n)]}) for n in range(3)]
        return await asyncio.gather(*[server.infer("m", frame) for frame in frames])

    answers = asyncio.run(main())
    [frame] = seen
    assert frame.to_dict("list") == {"n": [0, 1, 2], "s": ["0", "1", "2"]}
    assert [(a["n"].tolist(), a["s"].tolist(), a["total"].tolist()) for a in answers] == [([n], [b"%d" % n], [2 * n]) for n in range(3)]


def test_lists_of_dates_and_mixed_datatypes_of_a_list_are_those_of_each_request() -> None:
    held = Held(lambda x: [int(v) if v < 10 else float(v) for v in x[:, 0]])

    async def main() -> Any:
        return [task.result()["output_0"].dtype for task in await held.together(rows(1), rows(20), rows(2, 30))]

    assert asyncio.run(main()) == ["i8", "f8", "f8"]
    assert held.sizes == [4]
    server = InferenceServer()

    @server.model("d", max_batch_size=2, max_batch_delay=5.0)
    def later(d: list[datetime.datetime]) -> list[datetime.datetime]:
        return [date + datetime.timedelta(hours=1) for date in d]

    async def dates() -> Any:
        first, second = datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        return await asyncio.gather(
            server.infer("d", {"d": [first]}), server.infer("d", {"d": [first.replace(year=2027)]}), server.infer("d", {"d": [second] * 2})
        )

    texts = [answer["output_0"].tolist() for answer in asyncio.run(dates())]
    assert texts == [[b"2026-01-01T01:00:00"], [b"2027-01-01T01:00:00"], [b"2026-01-01T01:00:00+00:00"] * 2]


def test_each_gets_the_outputs_and_content_types_that_it_asks_for() -> None:
    held = Held(lambda x: {"a": x, "b": [str(v) for v in x[:, 0]]})
    as_text = [RequestOutput("b", {"content_type": "str"})]
    asks: list[Any] = [
        {"inputs": {"x": rows(place)}, "outputs": out} for place, out in enumerate([["b"], ["b", "a"], as_text, ["c"], None])
    ]

    async def main() -> Any:
        tasks = await held.together(*asks)
        return [told(task) if task.exception() else [_shown(tensor) for tensor in task.result().outputs] for task in tasks]

    assert asyncio.run(main()) == [
        [("b", [b"0.0"], {})],
        [("b", [b"1.0"], {}), ("a", [1.0], {})],
        [("b", [b"2.0"], {"content_type": "str"})],
        (400, "unknown output 'c': expected 'a', 'b'"),
        [("a", [4.0], {}), ("b", [b"4.0"], {})],
    ]
    assert held.sizes == [5]


def _shown(tensor: Tensor) -> Any:
    return tensor.name, tensor.array.ravel().tolist(), tensor.parameters


def test_parameters_of_a_response_are_those_of_all() -> None:
    held = Held(lambda x: InferenceResponse([Tensor("y", x, {"unit": "m"})], {"took": 1.5}))

    async def main() -> Any:
        return [task.result() for task in await held.together({"inputs": {"x": rows(1)}, "id": "one"}, rows(2, 3))]

    first, second = asyncio.run(main())
    assert (first.id, first["y"].tolist(), first.parameters, first.outputs[0].parameters) == ("one", [[1]], {"took": 1.5}, {"unit": "m"})
    assert (second.id, second["y"].tolist(), second.parameters) == (None, [[2], [3]], {"took": 1.5})


@pytest.mark.parametrize("columns", [1, 5000])
def test_memory_that_the_model_uses_again_is_copied_in_time(columns: int) -> None:
    buffer = np.empty((8, columns), "f4")

    def model(x: Any) -> Any:
        np.multiply(x, 2, out=buffer[: len(x)])
        return buffer[: len(x)]

    server = InferenceServer()
    server.register("m", model, max_batch_size=8, max_batch_delay=0.001, max_concurrency=1)

    async def one(number: int) -> None:
        answer = await server.infer("m", {"x": np.full((1, columns), number, "f4")})
        assert (answer["output_0"] == 2 * number).all()

    async def main() -> None:
        await asyncio.gather(*[one(number) for number in range(60)])

    asyncio.run(main())


def test_callers_own_what_they_get() -> None:
    held = Held(lambda x: x)

    async def main() -> Any:
        return [task.result()["output_0"] for task in await held.together(np.ones((4, 2000), "f4"), np.ones((4, 2000), "f4"))]

    first, second = asyncio.run(main())
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


def test_the_function_sees_no_context_variable_of_a_request() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen: list[str] = []

    def model(x: Any) -> Any:
        seen.append(user.get())
        return x

    async def awaited(x: Any) -> Any:
        return model(x)

    server = InferenceServer()
    server.register("def", model, max_batch_size=2)
    server.register("inline", model, max_batch_size=2, run="inline")
    server.register("async", awaited, max_batch_size=2)

    async def main() -> None:
        user.set("me")
        for name in ("def", "inline", "async"):
            await server.infer(name, {"x": rows(1)})

    asyncio.run(main())
    user.set("me")
    for name in ("def", "inline", "async"):
        server.infer_sync(name, {"x": rows(1)})
    assert seen == ["nobody"] * 6


def test_two_loops_and_threads_feed_one_batch() -> None:
    sizes: list[int] = []
    server = InferenceServer()

    @server.model("m", max_batch_size=6, max_batch_delay=20.0)
    def model(x: Any) -> Any:
        sizes.append(len(x))
        return x * 2

    answers: dict[float, Any] = {}

    def blocking(number: float) -> None:
        answers[number] = server.infer_sync("m", {"x": rows(number)})["output_0"].tolist()

    async def awaiting(*numbers: float) -> None:
        for number, answer in zip(numbers, await asyncio.gather(*[server.infer("m", {"x": rows(n)}) for n in numbers]), strict=True):
            answers[number] = answer["output_0"].tolist()

    threads = [threading.Thread(target=blocking, args=[number]) for number in (1, 2)]
    threads += [threading.Thread(target=lambda numbers=numbers: asyncio.run(awaiting(*numbers))) for numbers in ((3, 4), (5, 6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)  # less than the delay: it is the full batch that goes
    assert answers == {number: [[2 * number]] for number in range(1, 7)}
    assert sizes == [6]


def test_reloading_does_not_mix_old_and_new() -> None:
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

    async def main() -> list[Any]:
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
        return [told(task) for task in [*old, *new]]

    assert asyncio.run(main()) == [[0], [1], [2], [0], [2], [4], [6]]
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


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_a_request_waits_for_the_garbage_collector(is_async: bool, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "oip_asgi")  # pytest keeps what is logged, and so what was raised

    def model(x: Any) -> Any:
        if fails:
            raise ValueError("on purpose")
        return x * 2

    async def model_async(x: Any) -> Any:
        return model(x)

    held = Held(model_async, is_async=True) if is_async else Held(model)
    kept: list[Any] = []

    async def main() -> None:
        arrays = [rows(place) for place in range(3)]
        kept.extend(weakref.ref(array) for array in arrays)
        tasks = await held.together(*arrays)
        assert [task.exception() is not None for task in tasks] == [fails] * 3

    gc.disable()
    try:
        asyncio.run(main())
        block_until(lambda: not any(array() is not None for array in kept))
    finally:
        gc.enable()


def test_a_cache_and_classification_stand_before_and_behind_a_batch() -> None:
    held = Held(lambda x: np.hstack([x, -x]), cache=ResponseCache(max_bytes=10**6))

    def ask(number: float, **parameters: Any) -> dict[str, Any]:
        return {"inputs": {"x": rows(number)}, "outputs": [RequestOutput("output_0", parameters)]}

    async def main() -> list[Any]:
        tasks = await held.together(rows(1), ask(2), ask(3, classification=1))
        again = [await held.server.infer("m", {"x": rows(1)}), await held.server.infer("m", **ask(2))]
        return [*map(told, tasks), *(answer["output_0"].ravel().tolist() for answer in again)]

    assert asyncio.run(main()) == [[1, -1], [2, -2], [b"3.000000:0"], [1, -1], [2, -2]]
    assert held.sizes == [3]
