"""What models may return, and what happens when they return something else."""

from __future__ import annotations

import json
import logging
import re
import typing
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from enum import IntEnum
from http import HTTPStatus
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, InferenceServer, OIPApp, Tensor, TensorSpec
from oip_asgi.codecs import InputCodec
from tests.support.asking import ask, error, outputs
from tests.support.ways import Request, over_asgi

FP32, INT8, TEXTS = TensorSpec("f", "FP32", [-1]), TensorSpec("i", "INT8", [-1]), TensorSpec("t", "BYTES", [-1])
UINT64, BIG = TensorSpec("u", "UINT64", [-1]), 2**63 + 1

INT8_NEXT = TensorSpec("j", "INT8", [-1])

NO_DATATYPE = "no datatype holds all of its whole numbers, not even UINT64: make floats of them, if they may be rounded"

SEVERAL = r'to return several outputs, return a dict, as in \{"label": label, "scores": scores\}, or a tuple$'


def returning(value: Any, *declared: TensorSpec) -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda: value, outputs=declared)
    return server


def described(value: Any, *declared: TensorSpec) -> list[tuple[str, str, list[int], list[Any]]]:
    answer = ask(returning(value, *declared), "m")
    assert answer.status == 200, answer.body
    return [(o["name"], o["datatype"], o["shape"], o["data"]) for o in json.loads(answer.body)["outputs"]]


class Torchlike:
    """What numpy makes an array of, as a tensor of torch or jax is."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(2, dtype="i4")


class FirstWhole(NamedTuple):
    i: list[float]
    f: list[float]


class Loose(str):
    """Text of which no two are the same key."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([[1, 2]], ">i2"), [("output_0", "INT16", [1, 2], [1, 2])]),
        (np.array([["é", ""]], np.dtypes.StringDType()), [("output_0", "BYTES", [1, 2], ["é", ""])]),
        (np.zeros((2, 0), "u1"), [("output_0", "UINT8", [2, 0], [])]),
        (b"ab", [("output_0", "BYTES", [1], ["ab"])]),
        (np.array(["a", "bc"]), [("output_0", "BYTES", [2], ["a", "bc"])]),
        (np.array([b"a", b"bc"]), [("output_0", "BYTES", [2], ["a", "bc"])]),
        (np.array(["a", b"b", bytearray(b"c")], object), [("output_0", "BYTES", [3], ["a", "b", "c"])]),
        (["a\0", "\0"], [("output_0", "BYTES", [2], ["a\0", "\0"])]),
        ([[b"a\0"], [np.bytes_(b"b")]], [("output_0", "BYTES", [2, 1], ["a\0", "b"])]),
        ("a\0", [("output_0", "BYTES", [1], ["a\0"])]),
        ({"a": [np.array("a"), np.array("b")]}, [("a", "BYTES", [2], ["a", "b"])]),
        ({"a": ("b\0", "c")}, [("a", "BYTES", [2], ["b\0", "c"])]),
        (Torchlike(), [("output_0", "INT32", [2], [0, 1])]),
        ((np.ones(1), 2), [("output_0", "FP64", [1], [1.0]), ("output_1", "INT64", [1], [2])]),
        ([np.ones(1)], [("output_0", "FP64", [1, 1], [1.0])]),
        ([BIG, 1], [("output_0", "UINT64", [2], [BIG, 1])]),
        (((BIG, 1),), [("output_0", "UINT64", [2], [BIG, 1])]),
        ({"a": [[1], [BIG]]}, [("a", "UINT64", [2, 1], [1, BIG])]),
        ([np.uint64(BIG), 1, np.int8(2)], [("output_0", "UINT64", [3], [BIG, 1, 2])]),
        ([np.array([BIG], "u8"), np.array([1])], [("output_0", "UINT64", [2, 1], [BIG, 1])]),
        ([np.array(BIG, "u8"), np.array(1)], [("output_0", "UINT64", [2], [BIG, 1])]),
        ([np.uint64(2), -1], [("output_0", "INT64", [2], [2, -1])]),
        ([2**63, 0.5], [("output_0", "FP64", [2], [2.0**63, 0.5])]),
        ([np.ones((1, 2), "f4"), [[0, 0]]], [("output_0", "FP64", [2, 1, 2], [1.0, 1.0, 0.0, 0.0])]),
        ([np.array(["a", "bc"]), np.array(["", "d"])], [("output_0", "BYTES", [2, 2], ["a", "bc", "", "d"])]),
        ([Torchlike(), Torchlike()], [("output_0", "INT32", [2, 2], [0, 1, 0, 1])]),
        ((), []),
        ({"a": 1, "b": [2, 3]}, [("a", "INT64", [1], [1]), ("b", "INT64", [2], [2, 3])]),
        ({}, []),
        (InferenceResponse([Tensor("t", np.ones(1))]), [("t", "FP64", [1], [1.0])]),
        (np.ma.array([1, 2]), [("output_0", "INT64", [2], [1, 2])]),
        ({np.str_("a"): 1}, [("a", "INT64", [1], [1])]),
    ],
)
def test_results_without_declared_outputs(value: Any, expected: Any) -> None:
    assert described(value) == expected


@pytest.mark.parametrize("value", [[2**53 + 1, 1.5], [2**53 + 1, float("nan")], {"a": [[1.5], [np.int64(2**53 + 1)]]}, (BIG, [BIG, 0.5])])
def test_a_whole_number_of_a_result_that_a_fraction_beside_it_would_round_is_a_failure(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(returning(value), "m").status == 500
    assert "would be rounded, as a fraction or a missing value beside it makes FP64 of it: declare FP64, or write floats" in caplog.text
    if isinstance(value, list):
        declared = TensorSpec("y", "FP64", [-1])
        assert described(value, declared)[0][1] == "FP64"


@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        (np.ones(2), [FP32], [("f", "FP32", [2], [1.0, 1.0])]),
        (np.array([-128, 127]), [INT8], [("i", "INT8", [2], [-128, 127])]),
        (np.array([np.inf, np.nan]), [FP32], [("f", "FP32", [2], ["Infinity", None])]),
        ([0.1, 0.9], [TensorSpec("p", "FP64", [2])], [("p", "FP64", [2], [0.1, 0.9])]),
        ([1.0, 2], [FP32, INT8], [("f", "FP32", [1], [1.0]), ("i", "INT8", [1], [2])]),
        ((np.ones(1), np.ones(1, "i1")), [FP32, INT8], [("f", "FP32", [1], [1.0]), ("i", "INT8", [1], [1])]),
        ({"i": [1], "f": [2.0]}, [FP32, INT8], [("f", "FP32", [1], [2.0]), ("i", "INT8", [1], [1])]),
        (FirstWhole(i=[1], f=[2]), [FP32, INT8], [("f", "FP32", [1], [2.0]), ("i", "INT8", [1], [1])]),
        (FirstWhole(i=[1.5], f=[2]), [FP32, INT8_NEXT], [("f", "FP32", [1], [1.5]), ("j", "INT8", [1], [2])]),
        (5, [TensorSpec("s", "INT64", [])], [("s", "INT64", [], [5])]),
        ("a", [TensorSpec("s", "BYTES", [1])], [("s", "BYTES", [1], ["a"])]),
        (InferenceResponse([Tensor("f", np.ones(1))]), [FP32], [("f", "FP32", [1], [1.0])]),
        (np.array(["a", b"b", bytearray(b"c"), memoryview(b"d"), np.bytes_(b"e")], object), [TEXTS], [("t", "BYTES", [5], list("abcde"))]),
        ({"t": np.array(["\0", "é"], object)}, [TEXTS], [("t", "BYTES", [2], ["\0", "é"])]),
        ([b"a\0", b""], [TEXTS], [("t", "BYTES", [2], ["a\0", ""])]),
        (["a", b"b", np.str_("c")], [TEXTS], [("t", "BYTES", [3], ["a", "b", "c"])]),
        (np.array([["a"], ["b"]], object), [TensorSpec("t", "BYTES", [-1, 1])], [("t", "BYTES", [2, 1], ["a", "b"])]),
        (np.array([[b"a", b"b", b"c"]] * 2, object), [TensorSpec("t", "BYTES", [2, 3])], [("t", "BYTES", [2, 3], list("abcabc"))]),
        (np.array([[b"a", b"b"], [b"c", b"d"]], object).T, [TensorSpec("t", "BYTES", [2, 2])], [("t", "BYTES", [2, 2], list("acbd"))]),
        ([[], []], [TensorSpec("i", "INT8", [-1, 0])], [("i", "INT8", [2, 0], [])]),
        ([BIG, 1], [UINT64], [("u", "UINT64", [2], [BIG, 1])]),
        ([BIG, -1], [FP32], [("f", "FP32", [2], [float(2**63), -1.0])]),
        ([2**70, 1], [FP32], [("f", "FP32", [2], [float(2**70), 1.0])]),
    ],
)
def test_results_with_declared_outputs(value: Any, declared: list[TensorSpec], expected: Any) -> None:
    assert described(value, *declared) == expected


@pytest.mark.parametrize(
    ("value", "declared", "message"),
    [
        ({5: np.ones(1)}, [], "an output is called 5: expected a string"),
        ({"\ud800": 1}, [], r"an output is called '\\ud800'"),
        (InferenceResponse([], {"p": [1]}), [], r"the response has the parameter 'p' = \[1\]: expected a str"),  # type: ignore[dict-item]
        (InferenceResponse([Tensor("t", np.ones(1), {"p": np.ones(1)})]), [], "output 't' has the parameter 'p'"),  # type: ignore[dict-item]
        (InferenceResponse([], {"p": "\ud800"}), [], r"the response has the parameter 'p' = '\\ud800': expected text"),
        (InferenceResponse([], {"\ud800": 1}), [], r"the response has the parameter '\\ud800' = 1: expected text"),
        (np.ma.array([1, 2], mask=[True, False]), [], "output 'output_0' is no tensor: a masked array with masked elements"),
        ([np.ma.array([1, 2], mask=[True, False])], [], "output 'output_0' is no tensor: a masked array with masked elements"),
        (deque([2**53 + 1, 0.5]), [], "9007199254740993 would be rounded"),
        (np.array([1j]), [], "no datatype for numpy dtype complex128"),
        (np.array([1], "m8[s]"), [], "no datatype for numpy dtype timedelta64"),
        (np.array([1.5, None], object), [], "of str or bytes, but holds 1.5"),
        (object(), [], "of str or bytes, but holds <object"),
        (["a", True], [], "of str or bytes, but holds True"),
        ([1.5, "a"], [], "of str or bytes, but holds 1.5"),
        ([[1], ["a"]], [], "of str or bytes, but holds 1"),
        ([[1], [2, 3]], [FP32], "output 'f' is no tensor"),
        ([1, [0.5, 0.5]], [], f"output 'output_0' is no tensor: .*: {SEVERAL}"),
        (["cat", np.array([0.5, 0.5])], [], f"output 'output_0' is no tensor: .*: {SEVERAL}"),
        (np.ones(1), [FP32, INT8], r"1 outputs came back, but \['f', 'i'\] are declared"),
        ((1, 2), [FP32], r"2 outputs came back, but \['f'\] are declared"),
        ({"g": [1.0]}, [FP32], r"outputs \['g'\] came back, but \['f'\] are declared"),
        ({"f": [1.0], "g": [1.0]}, [FP32], r"outputs \['f', 'g'\] came back"),
        (np.ones((2, 2)), [FP32], r"output 'f' has shape \[2, 2\], but \[-1\] is declared"),
        (np.ones(1), [INT8], "output 'i' has datatype FP64, but INT8 is declared"),
        (np.array(["a"]), [FP32], "output 'f' has datatype BYTES, but FP32 is declared"),
        (np.array([b"a"], object), [FP32], "output 'f' has datatype BYTES, but FP32 is declared"),
        (np.ones(1), [TEXTS], "output 't' has datatype FP64, but BYTES is declared"),
        (np.array([[b"a"]], object), [TEXTS], r"output 't' has shape \[1, 1\], but \[-1\] is declared"),
        (
            [np.ones(3, "f4")],
            [FP32],
            r"\[-1\] is declared: of a list with one array, as session.run gives it, return the array: write \[0\]$",
        ),
        (np.array([b"a", None], object), [TEXTS], "output 't' is no tensor: .* of str or bytes, but holds None"),
        (np.array([b"a", 1], object), [TEXTS], "of str or bytes, but holds 1"),
        (np.array([b"a", "\ud800"], object), [TEXTS], "output 't' is no tensor: .*surrogates not allowed"),
        (["a", "\ud800"], [TEXTS], "output 't' is no tensor: .*surrogates not allowed"),
        (["a", None], [TEXTS], "of str or bytes, but holds None"),
        ([BIG, -1], [], f"output 'output_0' is no tensor: {NO_DATATYPE}$"),
        ([2**64], [], f"output 'output_0' is no tensor: {NO_DATATYPE}$"),
        ({"a": -(2**63) - 1}, [], f"output 'a' is no tensor: {NO_DATATYPE}$"),
        ([10**5000], [], NO_DATATYPE),
        ([10**5000], [FP32], NO_DATATYPE),
        ([2, -1], [UINT64], "output 'u' has datatype INT64, but UINT64 is declared"),
        (np.array([1]), [UINT64], "output 'u' has datatype INT64, but UINT64 is declared"),
        (np.array([200]), [INT8], "values of INT64 that do not fit the declared INT8"),
        (np.array([1e300]), [FP32], "values of FP64 that do not fit the declared FP32"),
        (InferenceResponse([Tensor("a", np.ones(1)), Tensor("a", np.ones(1))]), [], "have the same name twice"),
        ({Loose("a"): np.ones(1), Loose("a"): np.ones(1)}, [], "have the same name twice"),
        (InferenceResponse([Tensor("a", np.ones(1), {"p": None})]), [], "output 'a' has the parameter 'p' = None"),  # type: ignore[dict-item]
        (InferenceResponse([], {"p": 2**64}), [], "which has more than 64 bits"),
        (InferenceResponse([], {"p": -(2**63) - 1}), [], "which has more than 64 bits"),
    ],
)
def test_results_that_are_the_models_fault(value: Any, declared: list[TensorSpec], message: str, caplog: pytest.LogCaptureFixture) -> None:
    server = returning(value, *declared)
    with caplog.at_level(logging.ERROR, "oip_asgi"):
        status, text = error(ask(server, "m", {"id": "4\n2"}))
    assert (status, text) == (500, "model 'm' failed: see the server's log")
    [record] = caplog.records
    place = f'(File "{__file__}", line {returning.__code__.co_firstlineno + 2}, in <lambda>)'
    start = f"model 'm' failed on the request with id '4\\n2' {place}: "
    assert record.getMessage().startswith(start)
    assert re.search(message, record.getMessage().removeprefix(start))
    assert (record.exc_info, record.exc_text) == (None, None)


EMPTY: list[tuple[Any, Any, Any]] = [
    (list[int], [], ("INT64", [0])),
    (list[bool], [], ("BOOL", [0])),
    (list[float], [], ("FP64", [0])),
    (list[bytes], [], ("BYTES", [0])),
    (list[str], [], ("BYTES", [0])),
    (list[list[int]], [[], []], ("INT64", [2, 0])),
    (typing.List[int], [], ("INT64", [0])),  # noqa: UP006
    (Sequence[bytes], (), ("BYTES", [0])),
    (list[int] | None, [], ("INT64", [0])),
    (Annotated[list[int], "how many"], [], ("INT64", [0])),
]


FORMS = ["mapping", "tuple", "tuple of any", "async", "stream", "async stream"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected", "form"),
    [*((*each, "mapping" if each[0] == Sequence[bytes] else "plain") for each in EMPTY), *((*EMPTY[0], form) for form in FORMS)],
)
def test_an_empty_list_has_the_datatype_of_its_annotation(annotation: Any, value: Any, expected: Any, form: str) -> None:
    def plain() -> Any:
        return value

    async def awaited() -> Any:
        return value

    def stream() -> Any:
        yield value

    async def async_stream() -> Any:
        yield value

    forms: dict[str, tuple[Any, Any]] = {
        "plain": (plain, annotation),
        "mapping": (lambda: {"y": value}, GenericAlias(dict, (str, annotation))),
        "tuple": (lambda: (value, 1), GenericAlias(tuple, (annotation, int))),
        "tuple of any": (lambda: (value, value), GenericAlias(tuple, (annotation, ...))),
        "async": (awaited, annotation),
        "stream": (stream, GenericAlias(Iterator, (annotation,))),
        "async stream": (async_stream, GenericAlias(AsyncIterator, (annotation,))),
    }
    function, returned = forms[form]
    function.__annotations__["return"] = returned
    server, action = InferenceServer(codecs=[Guessing]), "infer_stream" if "stream" in form else "infer"
    server.register("m", function)
    answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", (), b'{"inputs":[]}'))
    [first, *_] = json.loads(answer.body.removeprefix(b"data: "))["outputs"]
    assert (first["datatype"], first["shape"], first["data"]) == (*expected, [])


class Guessing(InputCodec[list[Any]]):
    """A codec that takes each empty list for its own, as each codec of lists may."""

    content_type = "guess"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list) and not payload

    @classmethod
    def encode_input(cls, name: str, payload: list[Any], use_bytes: bool = True) -> Tensor:
        return Tensor(name, np.zeros(len(payload), "i1"), {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Any]:
        raise NotImplementedError


def test_one_long_text_among_many_takes_its_own_memory_only() -> None:
    texts = ["a" * 2**20, *[""] * 2**20]  # a fixed width for all would be 4 TB
    asked = {"outputs": [{"name": "output_0", "parameters": {"content_type": "np"}}]}
    assert outputs(ask(returning(texts), "m")) == {"output_0": texts}
    assert outputs(ask(returning(texts), "m", asked)) == {"output_0": texts}


def test_debug_tells_the_client_what_the_model_raised() -> None:
    server = InferenceServer(debug=True)

    @server.model("m")
    def fails() -> None:
        raise RuntimeError("why")

    assert error(ask(server, "m")) == (500, "model 'm' failed: RuntimeError('why')")


def test_a_coroutine_that_nobody_would_await(caplog: pytest.LogCaptureFixture) -> None:
    async def model() -> int:
        return 1

    server = InferenceServer()
    server.register("m", lambda: model())
    assert ask(server, "m").status == 500
    assert "returned a coroutine" in caplog.text


def test_a_name_of_any_characters_that_a_client_sent_goes_back() -> None:
    server = InferenceServer()
    server.register("m", lambda **inputs: inputs)
    name = "\x7f\n\u2028é\U0001f600"
    assert outputs(ask(server, "m", **{name: np.ones(1)})) == {name: [1.0]}


def test_errors_that_models_raise() -> None:
    class Mine(InferenceError):
        def __init__(self) -> None:
            self.code = 7

    server = InferenceServer()
    raised: list[Exception] = [InferenceError("a \ud800 b"), InferenceError(ValueError("bad")), Mine()]  # type: ignore[arg-type]

    @server.model("m")
    def speaks() -> None:
        raise raised.pop(0)

    raised.append(InferenceError("no", status=HTTPStatus.CONFLICT, headers={"Retry-After": "5"}))
    assert error(ask(server, "m")) == (400, "a ? b")
    assert error(ask(server, "m")) == (400, "bad")
    assert error(ask(server, "m")) == (400, "")
    answer = ask(server, "m")
    assert (answer.status, answer.headers["retry-after"]) == (409, "5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *[
            ({"headers": {"X": value}}, "header X is .*: expected printable ASCII without spaces around it")
            for value in (5, "a\r\nSet-Cookie: b", "é", " a", "a\t")
        ],
        *[
            ({"headers": {name: "a"}}, "is no name of a header that can be added")
            for name in ("", "A B", "a:", "é", 5, "Content-Length", "transfer-encoding")
        ],
        *[({"status": status}, f"status {status!r} is not the status of an error") for status in (200, 600, 404.5, "404")],
    ],
)
def test_errors_that_cannot_be_sent(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InferenceError("no", **arguments)


class Wide(float):
    """A number of a type of its own."""


class Colour(IntEnum):
    """So is this."""

    RED = 3


@pytest.mark.parametrize("is_binary", [False, True])
def test_only_the_answer_says_how_many_bytes_follow_its_json(is_binary: bool) -> None:
    server = InferenceServer()
    server.register("m", lambda: InferenceResponse([Tensor("t", np.ones(2), {"binary_data_size": 99, "p": 1})]))
    body = json.dumps({"inputs": [], "parameters": {"binary_data_output": is_binary}}).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
    assert answer.status == 200
    [tensor] = InferenceResponse.from_http(answer.headers, answer.body).outputs
    assert (tensor.array.tolist(), tensor.parameters) == ([1.0, 1.0], {"p": 1})


def test_parameters_of_other_types_than_jsons() -> None:
    given: Any = {np.str_("a"): np.float64(0.5), "b": np.bool_(True), "c": np.int8(-3), "d": np.str_("é"), "e": Wide(2.5), "f": Colour.RED}
    answer = ask(returning(InferenceResponse([Tensor("t", np.ones(1), given)], given)), "m")
    document = json.loads(answer.body)
    expected = {"a": 0.5, "b": True, "c": -3, "d": "é", "e": 2.5, "f": 3}
    assert document["parameters"] == document["outputs"][0]["parameters"] == expected


def test_sums_of_a_sparse_matrix_which_are_dense_ones() -> None:
    sums = pytest.importorskip("scipy.sparse").csr_matrix([[1, 2], [0, 5]]).sum(axis=1)
    assert type(sums).__name__ == "matrix"
    assert described(sums) == [("output_0", "INT64", [2, 1], [3, 5])]
    assert described({"a": sums.astype(str)}) == [("a", "BYTES", [2, 1], ["3", "5"])]
    assert json.loads(InferenceRequest([Tensor("x", sums)]).to_http()[1])["inputs"][0]["data"] == [3, 5]


def test_an_array_that_is_a_file(tmp_path: Path) -> None:
    numbers = np.arange(2000, dtype="f4")
    numbers.tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", "f4", mode="r")
    assert described(mapped) == [("output_0", "FP32", [2000], numbers.tolist())]
    for binary in (True, False):
        headers, body = InferenceRequest([Tensor("x", mapped)]).to_http(binary=binary)
        assert len(body) > 4 * 2000
        assert headers["Content-Type"].startswith("application/")


def test_an_array_that_was_changed_after_the_tensor_was_made() -> None:
    tensor = Tensor("t", np.ones(1))
    tensor.array = np.array([1], ">i4")
    assert described(InferenceResponse([tensor])) == [("t", "INT32", [1], [1])]


def test_a_model_that_changes_its_request_does_not_change_what_was_asked_for() -> None:
    server = InferenceServer()

    @server.model("m")
    def model(request: InferenceRequest) -> Any:
        request.outputs = []  # as one that sends it on to another server may
        return {"a": np.array([1], "i4"), "b": np.array([2], "i4")}

    assert outputs(ask(server, "m", {"outputs": [{"name": "b"}]}, x=[1.0])) == {"b": [2]}


@pytest.mark.parametrize("declared", [(), (TensorSpec("y", "FP64", [-1, 2]),)], ids=["undeclared", "declared"])
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_how_many_outputs_come_back_does_not_depend_on_the_rows(rows: int, declared: tuple[TensorSpec, ...]) -> None:
    server = InferenceServer()
    server.register("m", lambda x: [row * 2 for row in x], inputs=[TensorSpec("x", "FP64", [-1, 2])], outputs=declared)
    x = np.arange(rows * 2, dtype="f8").reshape(rows, 2)
    [output] = json.loads(ask(server, "m", x=x).body)["outputs"]
    assert output["data"] == (x * 2).ravel().tolist()
    assert output["shape"] == ([rows, 2] if rows or declared else [0])


@pytest.mark.parametrize("datatype", ["INT64", "FP16", "BYTES", "BOOL"])
def test_an_empty_list_has_the_declared_datatype(datatype: str) -> None:
    assert described([], TensorSpec("y", datatype, [-1])) == [("y", datatype, [0], [])]  # type: ignore[arg-type]
    assert described({"y": []}, TensorSpec("y", datatype, [-1, -1, 3])) == [("y", datatype, [0, 0, 3], [])]  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [5, 1001])
def test_the_error_names_the_content_type_however_many_inputs_there_are(number: int) -> None:
    """What many inputs took is let go early, and is needed for errors."""
    server = InferenceServer()
    names = [f"x{place}" for place in range(number)]
    specs = [TensorSpec(name, "BYTES", [-1]) for name in names]
    server.register(
        "m", lambda **x: x["x0"] if isinstance(x["x0"], np.ndarray) else {1, 2}, inputs=specs, outputs=[TensorSpec("y", "BYTES", [-1])]
    )
    inputs = [{"name": name, "shape": [1], "datatype": "BYTES", "data": ["a"], "parameters": {"content_type": "str"}} for name in names]
    status, text = error(ask(server, "m", {"inputs": inputs}))
    assert (status, text) == (400, "model 'm' failed with the content_type 'str', which is not what it declares: leave it out")
