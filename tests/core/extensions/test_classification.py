"""Classification: the largest elements of an output, from Python and as the core writes them; and labels, which are looked at at once."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from oip_asgi import InferenceError, InferenceServer, RequestOutput, Tensor, TensorSpec
from tests.support.asking import ask, error, outputs
from tests.support.inside.extensions import classification, classify
from tests.support.inside.values import Array


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
    ("shape", "datatype", "labels", "raised", "text"),
    [
        ([-1, 3], "FP32", ["a", "b"], ValueError, "2 labels for 3 elements of each row"),
        ([-1, 2, 2], "FP32", ["a", "b"], ValueError, "2 labels for 4 elements of each row"),
        ([3], "FP32", ["a"], ValueError, "1 labels for 3 elements"),
        ([-1], "FP32", ["a:b"], ValueError, "the label 'a:b' has a colon"),
        ([-1], "FP32", ["\ud800"], ValueError, "lone surrogates"),
        ([-1], "FP32", "ab", TypeError, "must be a list of strings"),
        ([-1], "FP32", [1], TypeError, "must be a list of strings"),
        ([-1], "BYTES", ["a"], ValueError, "labels are for integers, FP16, FP32 and FP64"),
        ([-1], "BOOL", ["a"], ValueError, "labels are for integers"),
    ],
)
def test_labels_that_cannot_be_right_fail_at_once(shape: list[int], datatype: str, labels: Any, raised: type[Exception], text: str) -> None:
    with pytest.raises(raised, match=text):
        TensorSpec("x", datatype, shape, labels=labels)  # type: ignore[arg-type]


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
