"""What annotations say of tensors without a `TensorSpec`, and scalars: what is declared, checked, shown, and refused at registration."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import InferenceContext, InferenceServer, TensorSpec
from tests.support.asking import ask, get, outputs

FP32 = npt.NDArray[np.float32]


@pytest.fixture
def server() -> InferenceServer:
    return InferenceServer()


def shown(server: InferenceServer, name: str = "m") -> tuple[list[Any], list[Any], dict[str, Any]]:
    """The inputs, outputs and parameters of a model's metadata, with tensors as (name, datatype, shape, content type)."""
    document = get(server, f"/models/{name}")[1]
    tensors = (
        [(t["name"], t["datatype"], t["shape"], t.get("parameters", {}).get("content_type")) for t in document[what]]
        for what in ("inputs", "outputs")
    )
    return *tensors, document.get("parameters", {})


# Arrays


def test_results_are_cast_to_the_datatype_that_the_annotation_says(server: InferenceServer) -> None:
    def halves(x: Any) -> tuple[FP32, npt.NDArray[np.float64]]:
        return x / 2, x / 2

    server.register("m", halves)
    assert shown(server)[1] == [("output_0", "FP32", [-1], None), ("output_1", "FP64", [-1], None)]
    document = json.loads(ask(server, "m", x=np.array([[3.0]])).body)
    assert [(output["datatype"], output["shape"], output["data"]) for output in document["outputs"]] == [
        ("FP32", [1, 1], [1.5]),
        ("FP64", [1, 1], [1.5]),
    ]


def test_a_shape_is_declared_by_a_spec_alone(server: InferenceServer) -> None:
    def of_rank(
        x: np.ndarray[tuple[int, Literal[4]], np.dtype[np.float32]], y: Annotated[np.ndarray, TensorSpec("y", "FP32", [-1, 4])]
    ) -> Any:
        return x

    server.register("m", of_rank)
    assert shown(server)[0] == [("x", "FP32", [-1], None), ("y", "FP32", [-1, 4], None)]
    x, y = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)
    assert ask(server, "m", x=x, y=y).status == 200
    assert ask(server, "m", x=x.astype(np.float64), y=y).status == 400
    assert ask(server, "m", x=x, y=x).status == 400


def test_texts_for_readers_in_annotations_mean_nothing(server: InferenceServer) -> None:
    def plain(x: Annotated[np.ndarray, "a text", 5, ["a", "list"]], y: Annotated[FP32, "in mm"]) -> Annotated[np.ndarray, "another"]:
        return x

    server.register("m", plain)
    assert shown(server) == ([("y", "FP32", [-1], None)], [], {"undeclared_inputs": "x"})


def test_outputs_in_annotations(server: InferenceServer) -> None:
    def both(x: Any) -> tuple[FP32, Annotated[np.ndarray, TensorSpec("n", "INT64", [1])]]:
        return x, np.array([len(x)])

    def items(x: Any) -> Iterator[Annotated[np.ndarray, TensorSpec("output_0", "FP32", [1])]]:
        yield from x.reshape(-1, 1)

    def some(x: Any) -> tuple[FP32, Any]:
        return x, x

    def mapping(x: Any) -> Mapping[str, FP32]:
        return {"y": x}

    def one(x: Any) -> Annotated[np.ndarray, TensorSpec("y", "FP32", [-1])]:
        return np.asarray(x)

    for function in (both, items, some, mapping, one):
        server.register(function.__name__, function)
    assert shown(server, "both")[1] == [("output_0", "FP32", [-1], None), ("n", "INT64", [1], None)]
    assert shown(server, "items")[1] == [("output_0", "FP32", [1], None)]
    assert shown(server, "some")[1] == shown(server, "mapping")[1] == []  # where not all is known, none is declared
    x = np.ones(2, np.float32)
    assert outputs(ask(server, "both", x=x)) == {"output_0": [1.0, 1.0], "n": [2]}
    for name in ("mapping", "one"):
        assert outputs(ask(server, name, x=x)) == {"y": [1.0, 1.0]}


def test_the_datatype_of_the_rest_is_checked(server: InferenceServer) -> None:
    def total(**inputs: FP32) -> Any:
        return sum(inputs.values())

    server.register("m", total)
    one = np.ones(1, np.float32)
    assert outputs(ask(server, "m", a=one, b=one)) == {"output_0": [2.0]}
    assert ask(server, "m", a=one, b=np.ones(1)).status == 400


@pytest.mark.parametrize(
    ("scalar", "datatype"),
    [
        (np.bool_, "BOOL"),
        (np.uint8, "UINT8"),
        (np.int64, "INT64"),
        (np.longlong, "INT64"),
        (np.float16, "FP16"),
        (np.float64, "FP64"),
        (np.object_, "BYTES"),
        (np.bytes_, "BYTES"),
        (np.floating, None),
        (np.number, None),
        (np.generic, None),
        (Any, None),
    ],
)
def test_which_datatype_numpy_has_for_which_class(server: InferenceServer, scalar: Any, datatype: str | None) -> None:
    def f(x: Any) -> Any: ...

    f.__annotations__["x"] = npt.NDArray[scalar]
    server.register("m", f)
    assert shown(server)[0] == ([] if datatype is None else [("x", datatype, [-1], None)])


def text_array(x: npt.NDArray[np.str_]) -> Any: ...
def dates(x: npt.NDArray[np.datetime64]) -> Any: ...
def complexes(x: npt.NDArray[np.complex128]) -> Any: ...
def text_of_a_datatype(x: Annotated[np.ndarray, "FP32", [-1, 4]]) -> Any: ...
def single(x: FP32) -> Any: ...


DOUBLE = [TensorSpec("x", "FP64", [-1])]


@pytest.mark.parametrize(
    ("function", "options", "kind", "text"),
    [
        (text_array, {}, TypeError, "but no tensor has elements of numpy's str_: annotate list[str]"),
        (dates, {}, TypeError, "but no tensor has elements of numpy's datetime64: annotate list[datetime]"),
        (complexes, {}, TypeError, "but no tensor has elements of numpy's complex128: annotate np.ndarray"),
        (
            text_of_a_datatype,
            {},
            TypeError,
            'declares nothing of a tensor: write an annotation such as NDArray[np.float32], or TensorSpec("x", "FP32", [-1, 4])',
        ),
        (
            single,
            {"inputs": DOUBLE},
            TypeError,
            "input 'x' is declared with datatype FP64, which cannot become NDArray[float32]: declare FP32",
        ),
    ],
)
def test_annotations_that_cannot_be(
    server: InferenceServer, function: Callable[..., Any], options: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as raised:
        server.register("m", function, **options)
    # how `formatannotation` spells arrays depends on the versions of numpy and Python
    spelled = r"numpy\.ndarray\[.*?, numpy\.dtype\[numpy\.float32\]\]|(numpy\._typing\._array_like\.)?NDArray\[numpy\.float32\]"
    assert text in re.sub(spelled, "NDArray[float32]", str(raised.value))


# Methods


class Classifier:
    def predict(self, x: Any) -> Any:
        return x

    @staticmethod
    def double(x: Any) -> Any:
        return x * 2


def with_self(self: Any, x: Any) -> Any: ...


METHOD = (
    "Classifier.predict is a method without its object, so `self` would be an input: register an instance's method, such as "
    "Classifier(...).predict, not the function of the class; if it needs no instance, make it a staticmethod"
)


def test_a_method_without_its_object_is_refused(server: InferenceServer) -> None:
    with pytest.raises(TypeError) as raised:
        server.register("m", Classifier.predict)
    assert str(raised.value) == METHOD
    with pytest.raises(TypeError) as raised:

        class Site:
            @server.model("in a class")
            def predict(self, x: Any) -> Any: ...

    assert str(raised.value).endswith(
        "such as Site(...).predict, not the function of the class; if it needs no instance, make it a staticmethod"
    )
    for function in (with_self, functools.partial(Classifier.predict, x=1), str.upper):
        with pytest.raises(TypeError, match="is a method without its object, so `self` would be an input"):
            server.register("m", function)
    server.register("bound", Classifier().predict)
    server.register("static", Classifier.double)
    server.register("partial", functools.partial(Classifier.predict, Classifier()))
    for name in ("bound", "partial"):
        assert outputs(ask(server, name, x=[1.0])) == {"output_0": [1.0]}
    assert outputs(ask(server, "static", x=[1.0])) == {"output_0": [2.0]}


# What metadata says of inputs that are not declared


def test_metadata_names_the_inputs_that_are_not_declared(server: InferenceServer) -> None:
    def mixed(x: Any, names: list[str], raw: list[bytes], bias: Any = 0, *, context: InferenceContext, n: int = 1) -> Any: ...

    server.register("m", mixed)
    assert shown(server)[0] == [("names", "BYTES", [-1], "str"), ("raw", "BYTES", [-1], None), ("n", "INT64", [1], None)]
    assert shown(server)[2] == {"undeclared_inputs": "x, bias"}
    server.register("declared", lambda x: x, inputs=DOUBLE, content_type="np")
    assert shown(server, "declared") == ([("x", "FP64", [-1], None)], [], {"content_type": "np"})
    server.register("add", np.add)
    assert shown(server, "add")[2] == {"undeclared_inputs": "x1, x2"}
