"""What can be registered, how its arguments are found, and what is said of what cannot work."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any, Dict, Optional, TypeAlias, TypeVar  # noqa: UP035

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from typing_extensions import TypeAliasType

from oip_asgi import InferenceContext, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.support.asking import ask, error, get, outputs

Array: TypeAlias = npt.NDArray[Any]
X = TensorSpec("x", "FP64", [-1])
Y = TensorSpec("y", "FP64", [-1])


@pytest.fixture
def server() -> InferenceServer:
    return InferenceServer()


def test_a_spec_is_its_arguments() -> None:
    spec = TensorSpec("x", "FP32", [-1, 4], "np", ["a", "b", "c", "d"])
    assert spec.fits((2, 4))
    assert spec.dtype == np.float32
    fields = dataclasses.asdict(spec)
    expected = {"name": "x", "datatype": "FP32", "shape": (-1, 4), "content_type": "np", "labels": ("a", "b", "c", "d")}
    absent = ("format", "example", "pd_dtype", "pd_categories", "minimum", "maximum")
    assert fields == {**expected, **dict.fromkeys(absent)}
    assert TensorSpec(**fields) == spec == pickle.loads(pickle.dumps(spec)) == dataclasses.replace(spec)
    assert hash(spec) == hash(TensorSpec(**fields))


class Scaler:
    """A model with state, called in three ways."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Array) -> Array:
        return x * self.factor

    def scale(self, x: Array, *, offset: Array | None = None) -> Array:
        return x * self.factor + (0 if offset is None else offset)

    @staticmethod
    def half(x: Array) -> Array:
        return x / 2

    @classmethod
    def third(cls, x: Array) -> Array:
        return x / 3


class AsyncScaler:
    async def __call__(self, x: Array) -> Array:
        return x * 5


async def doubled(x: Array) -> Array:
    return x * 2


def by_name(b: Any, a: Any) -> Any:
    return b - a


def without_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def with_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(without_wraps(function))


def spread(*tensors: Any) -> Any:
    return sum(tensors[1:], tensors[0])


def first_and_spread(a: Any, *others: Any) -> Any:
    return a * 100 + spread(*others)


def positional_only(a: Any, b: Any = 5, /, c: Any = 7) -> Any:
    return a * 100 + b * 10 + c


CALLABLES: list[tuple[Any, dict[str, list[float]], list[float]]] = [
    (by_name, {"a": [1.0], "b": [5.0]}, [4.0]),
    (lambda x: x + 1, {"x": [1.0]}, [2.0]),
    (Scaler(3), {"x": [1.0]}, [3.0]),
    (Scaler(3).scale, {"x": [1.0]}, [3.0]),
    (Scaler(3).scale, {"x": [1.0], "offset": [1.0]}, [4.0]),
    (Scaler.half, {"x": [1.0]}, [0.5]),
    (Scaler.third, {"x": [3.0]}, [1.0]),
    (AsyncScaler(), {"x": [1.0]}, [5.0]),
    (doubled, {"x": [1.0]}, [2.0]),
    (functools.partial(doubled), {"x": [1.0]}, [2.0]),
    (functools.partial(by_name, a=np.array([1.0])), {"b": [5.0]}, [4.0]),
    (functools.partial(by_name, np.array([9.0])), {"a": [5.0]}, [4.0]),
    (with_wraps(by_name), {"a": [1.0], "b": [5.0]}, [4.0]),
    (without_wraps(by_name), {"a": [1.0], "b": [5.0]}, [4.0]),
    (np.negative, {"x": [1.0]}, [-1.0]),
    (np.subtract, {"x1": [5.0], "x2": [1.0]}, [4.0]),
    (positional_only, {"a": [1.0]}, [157.0]),
    (positional_only, {"a": [1.0], "c": [2.0]}, [152.0]),
    (lambda **inputs: inputs["p"] - inputs["q"], {"p": [3.0], "q": [1.0]}, [2.0]),
    (lambda a, **inputs: a * len(inputs), {"a": [3.0], "q": [1.0], "r": [1.0]}, [6.0]),
]


@pytest.mark.parametrize(("function", "arrays", "expected"), CALLABLES)
def test_callables_by_parameter_name(server: InferenceServer, function: Any, arrays: dict[str, list[float]], expected: list[float]) -> None:
    server.register("m", function)
    assert outputs(ask(server, "m", **arrays)) == {"output_0": expected}


DECLARED: list[tuple[Any, list[str], dict[str, list[float]], list[float]]] = [
    (np.exp2, ["anything"], {"anything": [3.0]}, [8.0]),
    (np.subtract, ["p", "q"], {"q": [1.0], "p": [5.0]}, [4.0]),
    (max, ["t"], {"t": [1.0, 3.0]}, [3.0]),
    (spread, ["p", "q"], {"q": [1.0], "p": [5.0]}, [6.0]),
    (first_and_spread, ["a", "q", "r"], {"q": [1.0], "a": [5.0], "r": [2.0]}, [503.0]),
    (lambda t: t + 1, ["x"], {"x": [1.0]}, [2.0]),
    (lambda t, flag=True: t + 1 if flag else t, ["x"], {"x": [1.0]}, [2.0]),
    (lambda t=None: t + 1, ["x"], {"x": [1.0]}, [2.0]),
    (lambda **inputs: inputs["p q"], ["p q"], {"p q": [1.0]}, [1.0]),
    (positional_only, ["a", "c"], {"a": [1.0], "c": [2.0]}, [152.0]),
    (without_wraps(lambda anything: anything + 1), ["x"], {"x": [1.0]}, [2.0]),
    (without_wraps(by_name), ["b", "a"], {"b": [5.0], "a": [1.0]}, [4.0]),
    (by_name, ["a", "b"], {"b": [5.0], "a": [1.0]}, [4.0]),
]


@pytest.mark.parametrize(("function", "names", "arrays", "expected"), DECLARED)
def test_callables_with_declared_inputs(
    server: InferenceServer, function: Any, names: list[str], arrays: dict[str, list[float]], expected: list[float]
) -> None:
    server.register("m", function, inputs=[TensorSpec(name, "FP64", [-1]) for name in names])
    assert outputs(ask(server, "m", **arrays)) == {"output_0": expected}
    status, text = error(ask(server, "m", **arrays, other=[1.0]))
    assert status == 400
    assert "unknown input 'other'" in text


def test_a_parameter_of_a_request_may_be_called_as_what_takes_inputs_by_position(server: InferenceServer) -> None:
    def total(*inputs: Any) -> Any:
        return sum(inputs)

    server.register("m", total, inputs=[TensorSpec(name, "FP64", [-1]) for name in "pq"])
    two = np.array([2.0])
    assert server.infer_sync("m", {"p": two, "q": two}, parameters={"inputs": 1})["output_0"].tolist() == [4.0]


def test_each_input_by_position_is_one_tensor(server: InferenceServer) -> None:
    def whole(*inputs: InferenceRequest) -> Any: ...

    with pytest.raises(TypeError, match=r"each of \*inputs gets one tensor, and no whole request or data frame"):
        server.register("m", whole, inputs=[X])


def test_a_call_from_python_has_no_headers_and_no_model_gives_it_any(server: InferenceServer) -> None:
    seen: list[Any] = []

    @server.model("m")
    def m(context: InferenceContext) -> list[int]:
        seen.append(context.headers)
        return [1]

    server.infer_sync("m", {})
    with pytest.raises(TypeError):
        seen[0]["x-key"] = "of the first call"
    server.infer_sync("m", {})
    assert [dict(headers) for headers in seen] == [{}, {}]


def test_the_whole_request_and_its_context(server: InferenceServer) -> None:
    seen: list[Any] = []

    @server.model("m", version="3")
    def whole(request: InferenceRequest, context: InferenceContext) -> InferenceResponse:
        seen.append((request, context))
        return InferenceResponse([Tensor("y", request["a"] + request["b"])], parameters={"seen": True})

    answer = ask(server, "m", {"id": "7", "parameters": {"p": 1}}, a=[1], b=[2])
    assert answer.body == (
        b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"INT64","data":[3]}],"model_version":"3","id":"7","parameters":{"seen":true}}'
    )
    [(request, context)] = seen
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in request.inputs] == [("a", "INT64", (1,)), ("b", "INT64", (1,))]
    assert (request.id, request.parameters, request.outputs) == ("7", {"p": 1}, [])
    assert (context.id, context.parameters, context.model_name, context.model_version) == ("7", {"p": 1}, "m", "3")
    assert context.headers["content-length"].isdigit()
    assert context.headers["Content-Length"] == context.headers.get("CONTENT-LENGTH") == dict(context.headers)["content-length"]
    assert ["X-Key" in context.headers, context.headers.get("X-Key")] == [False, None]
    with pytest.raises(KeyError, match="x-key"):
        context.headers["X-Key"]
    assert context.transport["type"] == "http"
    with pytest.raises(KeyError, match="no input 'c': there are \\['a', 'b'\\]"):
        request["c"]
    with pytest.raises(KeyError, match="no output 'c'"):
        InferenceResponse([])["c"]
    response = InferenceResponse([Tensor("y", np.ones(1))])
    assert response["y"] == 1
    assert [name in request for name in ("a", "c", 0)] == [True, False, False]
    assert ["y" in response, "c" in response] == [True, False]


def test_annotations_declare_inputs_and_outputs(server: InferenceServer) -> None:
    def declared(
        a: Annotated[np.ndarray[Any, Any], TensorSpec("left", "FP32", [-1, 2])], b: npt.NDArray[np.float32]
    ) -> tuple[Annotated[Array, X], Annotated[Array, Y]]:
        return a[:, 0], a[:, 1]

    server.register("m", declared)
    assert get(server, "/models/m") == (
        200,
        {
            "name": "m",
            "platform": "python",
            "inputs": [{"name": "left", "datatype": "FP32", "shape": [-1, 2]}, {"name": "b", "datatype": "FP32", "shape": [-1]}],
            "outputs": [{"name": "x", "datatype": "FP64", "shape": [-1]}, {"name": "y", "datatype": "FP64", "shape": [-1]}],
        },
    )
    assert ask(server, "m", left=[[1.0, 2.0]], b=[1.0]).status == 400
    left = np.array([[1, 2]], np.float32)
    assert ask(server, "m", left=left, b=[1.0]).status == 400
    assert outputs(ask(server, "m", left=left, b=np.ones((1, 1, 1), np.float32))) == {"x": [1.0], "y": [2.0]}


def test_optional_annotations(server: InferenceServer) -> None:
    def optional(x: Optional[np.ndarray[Any, Any]] = None, y: Array | None = None) -> list[bool]:  # noqa: UP045
        return [x is None, y is None]

    server.register("m", optional)
    assert outputs(ask(server, "m", y=[1.0])) == {"output_0": [True, False]}


Image = TypeAliasType("Image", np.ndarray)
T = TypeVar("T")
Maybe = TypeAliasType("Maybe", T | None, type_params=(T,))


def test_annotations_by_type_statements(server: InferenceServer) -> None:
    def aliased(x: Image, y: Maybe[Image] = None) -> Array:
        return x if y is None else y

    server.register("m", aliased)
    assert outputs(ask(server, "m", x=[1.0])) == {"output_0": [1.0]}


def bare_mapping(x: Any) -> Mapping:  # type: ignore[type-arg]
    return {"y": x}


def bare_dict(x: Any) -> Dict:  # type: ignore[type-arg]  # noqa: UP006
    return {"y": x}


def mapping_of_one(x: Any) -> Counter[str]:
    return Counter(y=len(x))


def test_mappings_whose_annotation_says_nothing_of_their_values(server: InferenceServer) -> None:
    for name, function in (("bare", bare_mapping), ("dict", bare_dict), ("counter", mapping_of_one)):
        server.register(name, function)
        assert outputs(ask(server, name, x=[1])) == {"y": [1]}


def test_what_takes_the_rest_reads_none_of_the_declared_others(server: InferenceServer) -> None:
    def sizes(x: Array, **inputs: list[str]) -> list[str]:
        return [str(x.tolist()), *inputs["names"]]

    server.register("m", sizes, inputs=[TensorSpec("x", "FP64", [-1], content_type="np"), TensorSpec("names", "BYTES", [-1])])
    assert outputs(ask(server, "m", x=[1.0], names=["a"])) == {"output_0": ["[1.0]", "a"]}


def test_the_decorator_gives_the_function_back(server: InferenceServer) -> None:
    decorated = server.model("m")(by_name)
    assert decorated is by_name


class Open:
    def predict(self, **inputs: Any) -> list[str]:
        return sorted(inputs)

    async def __call__(self, context: InferenceContext, **inputs: Any) -> list[str]:
        assert isinstance(context, InferenceContext)
        return sorted(inputs)


def thresholded(threshold: Any, **inputs: Any) -> Any:
    return threshold


def renamed(x: Annotated[Array, TensorSpec("in", "FP64", [-1])], **inputs: Any) -> list[str]:
    return [str(float(x[0])), *inputs]


@pytest.mark.parametrize(
    ("function", "taken"),
    [
        (Open().predict, "self"),
        (Open(), "self"),
        (Open(), "context"),
        (functools.partial(thresholded, threshold=0.5), "threshold"),
        (functools.partial(thresholded, 0.5), "threshold"),
        (renamed, "x"),
    ],
)
def test_no_input_reaches_a_parameter_that_is_no_tensor(server: InferenceServer, function: Any, taken: str) -> None:
    server.register("m", function)
    arrays = {"in": [1.0], taken: [2.0]}
    status, text = error(ask(server, "m", **arrays))
    assert (status, text) == (400, f"unknown input {taken!r}: the model uses this name for something else")
    del arrays[taken]
    assert ask(server, "m", **arrays).status == 200


@pytest.mark.parametrize(("function", "name"), [(Open(), "context"), (functools.partial(thresholded, threshold=0.5), "threshold")])
def test_an_input_cannot_be_declared_by_the_name_of_a_parameter_that_is_no_tensor(
    server: InferenceServer, function: Any, name: str
) -> None:
    declared = [TensorSpec("x", "FP32", [-1]), TensorSpec(name, "FP32", [-1])]
    with pytest.raises(TypeError, match=f"declared input '{name}' has the name of a parameter that is something else: rename one"):
        server.register("m", function, inputs=declared)


# What cannot work


def no_name(*tensors: Any) -> Any: ...
def wants_complex(x: complex) -> Any: ...
def wants_either(x: list[str] | float) -> Any: ...
def wants_list(x: list[complex]) -> Any: ...
def wants_nothing_hashable(x: [1]) -> Any: ...  # type: ignore[misc, valid-type]
def strings(x: list[str]) -> Any: ...
def strings_of_numbers(x: Annotated[list[str], X]) -> Any: ...
def all_strings(x: Array, **inputs: list[str]) -> Any: ...
def unresolved(x: Nowhere) -> Any: ...  # type: ignore[name-defined]  # noqa: F821
def plain(x: Any, y: Any) -> Any: ...
def annotated(x: Annotated[Any, X]) -> Any: ...
def twice(x: Annotated[Any, X], y: Annotated[Any, X]) -> Any: ...
def same_twice(a: Annotated[Any, X], x: Any) -> Any: ...
def declared_context(x: Any, context: Annotated[InferenceContext, Y]) -> Any: ...
def declared_request(request: Annotated[InferenceRequest, X]) -> Any: ...
def declared_frame(frame: Annotated[pd.DataFrame, X]) -> Any: ...
def declared_rest(**inputs: Annotated[Any, X]) -> Any: ...
def yields(x: Any) -> Iterator[Any]:
    yield x


def yields_id(id: Any) -> Iterator[Any]:  # noqa: A002
    yield id


async def yields_async(x: Any) -> AsyncIterator[Any]:
    yield x


def half_declared() -> tuple[Annotated[np.ndarray, X], np.ndarray]:
    return np.ones(1), np.ones(1)


def declared_many() -> tuple[Annotated[np.ndarray, X], ...]:
    return (np.ones(1),)


def declared_mapping() -> dict[str, Annotated[np.ndarray, X]]:
    return {}


class Session:
    """As ONNX Runtime has it."""

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any: ...


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": ""}, TypeError, "give it a name first"),
    ({"function": Session().run}, TypeError, r"register a function, such as lambda x: session.run\(None, \{\"x\": x\}\)\[0\]"),
    (
        {"function": functools.partial(Session().run, None), "inputs": [X]},
        TypeError,
        "takes a dict of arrays, as a session of ONNX Runtime does",
    ),
    ({"name": by_name}, TypeError, r'as in @server.model\("iris"\)'),
    ({"version": 2}, TypeError, r'version=2 must be a non-empty string without lone surrogates, such as version="1"'),
    ({"version": "\ud800"}, TypeError, "must be a non-empty string without lone surrogates"),
    ({"version": ""}, TypeError, "must be a non-empty string"),
    ({"function": 5}, TypeError, "5 cannot be called: register a function, or a method such as model.predict"),
    ({"function": "iris.joblib"}, TypeError, r"'iris.joblib' cannot be called: read the file, .* such as joblib.load\(path\).predict"),
    ({"function": Scaler}, TypeError, "Scaler is a class: register an instance, or one of its methods"),
    ({"function": yields, "run": "inline"}, ValueError, "a generator runs in a worker thread, one item at a time"),
    ({"function": yields_async, "run": "inline"}, ValueError, "an async def always runs on the event loop: leave run"),
    ({"function": yields, "stream_timeout": 0}, ValueError, "stream_timeout=0 must be a positive number of seconds"),
    ({"stream_timeout": 1.0}, ValueError, "stream_timeout= is for generators, which answer more than once: use timeout="),
    ({"function": yields, "outputs": [TensorSpec("model_name", "FP32", [1])]}, ValueError, "has the name of another member of generate"),
    ({"function": yields_id}, ValueError, "input 'id' of a generator has the name of another member of generate"),
    ({"function": max}, TypeError, "the signature of max cannot be read: declare its inputs"),
    ({"function": no_name}, TypeError, "does not name its inputs: declare them"),
    ({"function": wants_complex}, TypeError, "parameter 'x' is annotated complex, which no tensor can become: annotate np.ndarray"),
    (
        {"function": wants_either},
        TypeError,
        r"parameter 'x' is annotated list\[str\] \| float, which no tensor can become: annotate np.ndarray, float, ",
    ),
    ({"function": wants_list}, TypeError, r"annotated list\[complex\]"),
    ({"function": wants_nothing_hashable}, TypeError, r"parameter 'x' is annotated \[1\], which no tensor can become: annotate np.ndarray"),
    (
        {"function": strings, "inputs": [X]},
        TypeError,
        r"'x' is declared with datatype FP64, which cannot become list\[str\]: declare B",
    ),
    ({"function": strings_of_numbers}, TypeError, r"'x' is declared with datatype FP64, which cannot become list\[str\]: declare B"),
    ({"function": all_strings, "inputs": [X, Y]}, TypeError, r"'y' is declared with datatype FP64, which cannot become list\[str\]"),
    ({"function": unresolved}, TypeError, "cannot be resolved .*Nowhere.*: import the name at run time"),
    ({"function": plain, "inputs": [X]}, TypeError, "parameter 'y' is not among the declared inputs"),
    ({"function": plain, "inputs": [Y, X, TensorSpec("z", "FP32", [])]}, TypeError, r"no parameter for the declared inputs \['z'\]"),
    ({"function": by_name, "inputs": [X]}, TypeError, "parameter 'b' is not among the declared inputs"),
    ({"function": lambda frame: frame, "inputs": [X, Y]}, TypeError, 'if it takes a data frame of all of them, write content_type="pd"'),
    ({"function": lambda: 1, "inputs": [X]}, TypeError, r"no parameter for the declared inputs \['x'\]"),
    ({"function": np.add, "inputs": [X]}, TypeError, "add takes 2 inputs, but 1 are declared"),
    ({"function": annotated, "inputs": [X]}, TypeError, "declared twice, by inputs= and by Annotated"),
    ({"function": twice}, ValueError, r"two inputs have the same name among \['x', 'x'\]"),
    ({"function": same_twice}, ValueError, r"two inputs have the same name among \['x', 'x'\]"),
    ({"function": declared_context}, TypeError, "'context' is no single tensor, so a TensorSpec declares nothing there"),
    ({"function": declared_request}, TypeError, "'request' is no single tensor"),
    ({"function": declared_frame}, TypeError, "'frame' is no single tensor"),
    ({"function": declared_rest}, TypeError, "declares one tensor, but any number may come: use inputs="),
    ({"function": half_declared}, TypeError, "declares some outputs only: give each a TensorSpec, or use outputs="),
    ({"function": declared_many}, TypeError, "declares some outputs only"),
    ({"function": declared_mapping}, TypeError, "declares some outputs only"),
    ({"function": plain, "inputs": [X, X]}, ValueError, r"two inputs have the same name among \['x', 'x'\]"),
    ({"outputs": [Y, Y]}, ValueError, r"two outputs have the same name among \['y', 'y'\]"),
    ({"inputs": X}, TypeError, "inputs=.* must be a list of TensorSpec"),
    ({"outputs": ["y"]}, TypeError, r"outputs=\['y'\] must be a list of TensorSpec"),
    ({"inputs": iter([X])}, TypeError, "inputs=<list_iterator.* must be a list of TensorSpec"),
    ({"inputs": None}, TypeError, "inputs=None must be a list of TensorSpec"),
    ({"name": "\ud800"}, ValueError, "the name holds lone surrogates"),
    ({"run": "process"}, ValueError, 'run=\'process\' must be "thread" or "inline"'),
    ({"function": doubled, "run": "inline"}, ValueError, "an async def always runs on the event loop"),
    ({"load": 5}, TypeError, "load=5 must be a callable"),
    ({"ready": True}, TypeError, "ready=True must be a callable"),
]


@pytest.mark.parametrize(("arguments", "exception", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_what_cannot_work_is_refused_at_once(
    server: InferenceServer, arguments: dict[str, Any], exception: type[Exception], message: str
) -> None:
    with pytest.raises(exception, match=message):
        server.register(**{"name": "m", "function": lambda x: x, **arguments})
    assert get(server, "/models") == (200, {"models": []})


def test_the_same_name_and_version_twice(server: InferenceServer) -> None:
    server.register("m", by_name, version="1")
    with pytest.raises(ValueError, match=r"model 'm' version '1' is registered already: .*, or write replace=True"):
        server.register("m", by_name, version="1")
    with pytest.raises(ValueError, match="both with a version and without"):
        server.register("m", by_name)
    server.register("n", by_name)
    with pytest.raises(ValueError, match="model 'n' is registered already"):
        server.register("n", by_name)
    with pytest.raises(ValueError, match="both with a version and without"):
        server.register("n", by_name, version="1")
    assert get(server, "/models") == (200, {"models": ["m", "n"]})


@pytest.mark.parametrize(
    ("arguments", "exception", "message"),
    [
        (("", "FP32", []), TypeError, "the name must be a non-empty string"),
        ((5, "FP32", []), TypeError, "the name must be a non-empty string"),
        (("\ud800", "FP32", []), ValueError, "the name holds lone surrogates"),
        (("x", ["FP32"], []), TypeError, "the datatype must be a string"),
        (("x", "FP32", None), TypeError, "the shape must be a list of integers"),
        (("x", "FP32", b"ab"), TypeError, "the shape must be a list of integers"),
        (("x", "FP32", {4}), TypeError, "the shape must be a list of integers"),
        (("x", "float32", []), ValueError, r"unknown datatype 'float32': expected one of BOOL.*; did you mean 'FP32'\?"),
        (("x", "TYPE_STRING", []), ValueError, r"unknown datatype 'TYPE_STRING': expected one of BOOL.*; did you mean 'BYTES'\?"),
        (("x", "FP32", 4), TypeError, "the shape must be a list of integers"),
        (("x", "FP32", "-1"), TypeError, "the shape must be a list of integers"),
        (("x", "FP32", [None, 4]), TypeError, "the shape must be a list of integers"),
        (("x", "FP32", [-2]), ValueError, "dimensions must be -1"),
        (("x", "FP32", [2**63]), ValueError, r"or more, below 2\*\*60, and at most 64"),
        (("x", "FP32", [1] * 65), ValueError, "at most 64"),
    ],
)
def test_specs_that_cannot_be(arguments: Any, exception: type[Exception], message: str) -> None:
    with pytest.raises(exception, match=message):
        TensorSpec(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": None}, 'name=None must be a non-empty string .*, such as name="models"'),
        ({"name": "\ud800"}, "without lone surrogates"),
        ({"version": 1}, 'version=1 must be .*, such as version="1.0.0"'),
        ({"max_body_bytes": "1"}, "max_body_bytes='1' must be a number of bytes"),
        ({"max_body_bytes": -1}, "max_body_bytes=-1 must be a number of bytes"),
        ({"max_json_bytes": 1.5}, "max_json_bytes=1.5 must be a number of bytes, 0 or more, or None for no limit"),
        ({"max_json_bytes": -1}, "max_json_bytes=-1 must be a number of bytes"),
        ({"shutdown_timeout": "x"}, "shutdown_timeout='x' must be a number of seconds"),
        ({"shutdown_timeout": -0.5}, "shutdown_timeout=-0.5 must be a number of seconds"),
    ],
)
def test_servers_that_could_not_serve(arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        InferenceServer(**arguments)


def test_declarations_beside_annotations_that_declare_less(server: InferenceServer) -> None:
    server.register("half", half_declared, outputs=[X, Y])
    server.register("mapping", declared_mapping, outputs=[X])
    server.register("rest", declared_rest, inputs={"x": X}.values())  # type: ignore[arg-type]
    assert [output["name"] for output in get(server, "/models/half")[1]["outputs"]] == ["x", "y"]
    assert [tensor["name"] for tensor in get(server, "/models/rest")[1]["inputs"]] == ["x"]


def test_names_of_numpys(server: InferenceServer) -> None:
    labels = np.array(["iris", "x"])
    server.register(labels[0], lambda x: x, inputs=[TensorSpec(labels[1], "FP32", [-1])])
    assert get(server, "/models") == (200, {"models": ["iris"]})
    assert get(server, "/models/iris")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]


def test_the_decorator_without_its_parentheses(server: InferenceServer) -> None:
    with pytest.raises(TypeError, match=r'write @server.model\("by_name"\)'):
        server.model(by_name)  # type: ignore[arg-type]


def test_the_texts_name_the_callable(server: InferenceServer) -> None:
    with pytest.raises(TypeError, match=r"Scaler\.scale\(x, offset\) has no parameter for the declared inputs \['flower'\]"):
        server.register("m", Scaler(1).scale, inputs=[X, TensorSpec("flower", "FP32", [])])
