"""Codecs of a user's: what they may be, what they may do, and whose fault it is when they fail."""

from __future__ import annotations

import inspect
import logging
from datetime import datetime
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, RequestOutput, Tensor, TensorSpec
from oip_asgi.codecs import DatetimeCodec, InputCodec, PandasCodec, RequestCodec, StringCodec
from tests.support.asking import ask, error, get
from tests.support.content_types import (
    COLOURS,
    DATED,
    FLOATS,
    NAMES,
    NOON,
    RED,
    Colour,
    ColourCodec,
    PairCodec,
    assert_same,
    described,
    make_tensor,
    request_of,
    send,
    with_type,
)


class ById(PandasCodec):
    """Frames whose index travels as the column `id`."""

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return super().decode_request(request).set_index("id")

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        return super().encode_response(model_name, payload.reset_index(), model_version, use_bytes)


class Settled(ById):
    """An instance of it has what it decodes under another name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def decode_request(self, request: InferenceRequest) -> pd.DataFrame:  # type: ignore[override]
        return ById.decode_request(request).rename_axis(self.name)


@pytest.mark.parametrize("codec", [ById, Settled("number")], ids=["class", "instance"])
def test_a_subclass_of_the_frames_codec_does_all_that_it_does(codec: Any) -> None:
    seen: list[pd.DataFrame] = []

    def model(df: pd.DataFrame) -> pd.DataFrame:
        seen.append(df)
        return df.rename_axis("id")

    born = TensorSpec("born", "BYTES", [-1], content_type="datetime")
    server = InferenceServer(codecs=[codec])
    server.register("m", model, inputs=[TensorSpec("id", "INT64", [-1]), born, TensorSpec("paint", "BYTES", [-1])])
    paint = with_type(make_tensor("paint", [b"red"]), "str")
    asked = [RequestOutput(name) for name in ("id", "paint")]
    request = request_of(Tensor("id", np.array([7])), Tensor("born", DATED.array), paint, outputs=asked)
    answer = described(send(server, "m", request))
    index = pd.Index([7], name="id" if codec is ById else "number")
    assert_same(seen[0], pd.DataFrame({"born": pd.Series([NOON], index=index), "paint": pd.Series(["red"], index=index)}))
    assert answer[0] == ("id", [1], None, [7])
    assert answer[1] == ("paint", [1], "str", ["red"])


class Careless(ColourCodec):
    """A codec that thinks of its own values only."""

    content_type = "careless"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        if isinstance(payload, str):
            raise ValueError(f"no colour: {payload}")
        return isinstance(payload[0], Colour)


class CarelessPair(PairCodec):
    content_type = "careless pair"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return payload["first"] is not payload["second"]


class Comparing(ColourCodec):
    """A codec that compares, which an array answers with an array."""

    content_type = "comparing"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        result: bool = payload == RED
        return result


def test_a_can_encode_that_raises_or_answers_no_bool_is_no_harm_to_other_models(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer(codecs=[Careless, CarelessPair])
    results: dict[str, Any] = {"number": 5, "colours": RED, "text": "x\nCRITICAL forged\x1b[2J"}
    for name, result in results.items():
        server.register(name, lambda result=result: result)
    assert described(ask(server, "number")) == [("output_0", [1], None, [5])]
    assert [record.getMessage() for record in caplog.records] == [
        "CarelessPair.can_encode raised, so it counts as no",
        "Careless.can_encode raised, so it counts as no",
    ]
    assert caplog.records[1].exc_info is not None
    assert described(ask(server, "colours")) == [("output_0", [1], "careless", ["#ff0001"])]
    assert ask(server, "text").status == 200
    lines = logging.Formatter().format(caplog.records[-1]).splitlines()
    assert lines[0] == "Careless.can_encode raised, so it counts as no"
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])
    server = InferenceServer(codecs=[Comparing])
    server.register("numbers", lambda: np.array([1, 2]))
    assert described(ask(server, "numbers")) == [("output_0", [2], None, [1, 2])]


class Silent(InputCodec[int]):
    """What a codec must define, and nothing else."""

    content_type = "silent"

    @classmethod
    def encode_input(cls, name: str, payload: int, use_bytes: bool = True) -> Tensor:
        return Tensor(name, np.array([payload]))

    @classmethod
    def decode_input(cls, request_input: Tensor) -> int:
        return int(request_input.array[0])


Nameless: Any = type("Nameless", (Silent,), {"content_type": ""})
OnlyReads: Any = type("OnlyReads", (InputCodec,), {"content_type": "reads", "decode_input": Silent.decode_input})
OnlyAnswers: Any = type("OnlyAnswers", (RequestCodec,), {"content_type": "answers", "encode_response": PairCodec.encode_response})
OtherPair: Any = type("OtherPair", (PairCodec,), {})
OneAndWhole: Any = type("OneAndWhole", (Silent, PairCodec), {})


def test_a_codec_that_encodes_by_name_only_is_no_ones_but_by_name() -> None:
    server = InferenceServer(codecs=[Silent])
    server.register("array", lambda x: x * 2)
    server.register("free", lambda x: np.array([x]))
    assert described(send(server, "array", request_of(FLOATS))) == [("output_0", [2], None, [3.0, 5.0])]
    assert described(send(server, "free", request_of(with_type(FLOATS, "silent")))) == [("output_0", [1], None, [1])]


NO_CODECS: list[tuple[list[Any], str]] = [
    ([object], "has no content_type"),
    ([type("C", (), {"content_type": "c"})], "neither an InputCodec nor a RequestCodec"),
    ([OnlyReads], "OnlyReads.* does not define encode_input$"),
    ([OnlyAnswers], "OnlyAnswers.* does not define encode_request, decode_request, decode_response$"),
    ([Nameless], "Nameless.* has no content_type"),
    ([OneAndWhole], "OneAndWhole.* is both an InputCodec and a RequestCodec"),
    ([Silent, Silent()], "two input codecs have the content_type 'silent'"),
    ([PairCodec, OtherPair], "two request codecs have the content_type 'pair'"),
]


def test_what_can_never_work_fails_at_registration_or_when_the_server_is_made() -> None:
    server = InferenceServer()

    class Shade: ...

    def takes(annotation: Any, gives: Any = Any, **rest: Any) -> Any:
        """A function of one annotated parameter, or of any inputs."""

        def model(x: Any) -> Any: ...
        def any_inputs(**inputs: Any) -> Any: ...

        function = any_inputs if rest else model
        function.__annotations__ = {"inputs" if rest else "x": annotation, "return": gives}
        return function

    def takes_two_frames(a: pd.DataFrame, b: pd.DataFrame) -> Any: ...
    def takes_frame_and_rest(a: pd.DataFrame, **inputs: Any) -> Any: ...

    def spec(datatype: Any, content_type: Any) -> dict[str, Any]:
        return {"inputs": [TensorSpec("x", datatype, [1], content_type=content_type)]}

    array = takes(np.ndarray)
    registrations: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (array, {"content_type": "pd"}, TypeError, "no parameter for content_type='pd'"),
        (np.add, {"content_type": "pd"}, TypeError, "wrap it in a def"),
        (takes(complex, rest=True), {}, TypeError, "no tensor can become complex: annotate np.ndarray"),
        (takes(Annotated[Any, PandasCodec], rest=True), {}, TypeError, "a parameter of its own"),
        (takes(list[Shade]), {}, TypeError, "Shade"),
        (takes_two_frames, {}, TypeError, "only one parameter"),
        (takes_frame_and_rest, {}, TypeError, "only one parameter"),
        (array, {"content_type": "nope"}, ValueError, "unknown content_type 'nope': expected one of np"),
        (len, spec("FP32", "str"), ValueError, "needs datatype BYTES"),
        (len, spec("BYTES", "pd"), ValueError, "whole request"),
        (takes(Annotated[Any, OnlyReads]), {}, TypeError, "Annotated.*encode_input"),
        (takes(np.ndarray, Annotated[Any, OnlyAnswers]), {}, TypeError, "Annotated.*encode_request"),
        (takes(np.ndarray, Annotated[Any, Nameless]), {}, TypeError, "Annotated.*content_type"),
    ]
    for function, options, kind, message in registrations:
        with pytest.raises(kind, match=message):
            server.register("m", function, **options)
    assert get(server, "/models")[1] == {"models": []}
    with pytest.raises(TypeError, match="content_type=5 must be a string"):
        spec("BYTES", 5)
    for codecs, message in NO_CODECS:
        with pytest.raises(TypeError, match=message):
            InferenceServer(codecs=codecs)


def test_the_one_declared_input_is_for_the_one_parameter_of_a_named_codec() -> None:
    seen: list[Any] = []

    def look(colours: Annotated[Any, ColourCodec]) -> int:
        seen.append(colours)
        return len(colours)

    server = InferenceServer()
    server.register("m", look, inputs=[TensorSpec("paint", "BYTES", [-1])])
    assert described(send(server, "m", request_of(make_tensor("paint", [b"#ff0001"])))) == [("output_0", [1], None, [1])]
    assert seen == [RED]
    with pytest.raises(TypeError, match="'paint' is declared with datatype FP32, which cannot become what ColourCodec decodes"):
        server.register("numbers", look, inputs=[TensorSpec("paint", "FP32", [-1])])


def test_a_users_codec_is_for_an_input_of_its_own_and_reads_no_column() -> None:
    def frame(df: pd.DataFrame) -> int:
        return len(df)

    def series(x: pd.Series) -> int:
        return len(x)

    server = InferenceServer(codecs=[ColourCodec])
    types, called = "np, str, base64, datetime, pd_json", inspect.formatannotation(pd.Series)
    refused = f"the content_type 'colour', which cannot become {called}, as the model takes it: expected {types}, or none"
    for function, message in (
        (frame, f"column 'x' has the content_type 'colour': expected one of {types}"),
        (series, f"input 'x' has {refused}"),
    ):
        server.register(function.__name__, function)
        assert error(send(server, function.__name__, request_of(COLOURS))) == (400, message)


class Fragile(InputCodec[Any]):
    """A codec with mistakes, which raises what the bytes are called, on its way in or out."""

    content_type = "fragile"

    @classmethod
    def encode_input(cls, name: str, payload: Any, use_bytes: bool = True) -> Tensor:
        raise KeyError("a secret")

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Any:
        raise {b"TypeError": TypeError, b"KeyError": KeyError, b"OSError": OSError}[request_input.array[0]]("a secret")


class FragileWhole(PairCodec):
    content_type = "fragile whole"

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return Fragile.decode_input(request.inputs[0])


def test_what_a_users_codec_raises_beside_value_error_is_its_own_fault(caplog: pytest.LogCaptureFixture) -> None:
    """As of any code of the user's: logged with its traceback, and answered 500 without its text. What it finds wrong is a ValueError."""

    def free(x: Annotated[Any, Fragile]) -> None: ...
    def whole(pair: Annotated[Any, FragileWhole]) -> None: ...
    def encoded(x: np.ndarray) -> int:
        return 1

    server = InferenceServer(codecs=[Fragile])
    kinds: dict[Any, str] = {free: "KeyError", whole: "KeyError", encoded: "KeyError"}
    for function, kind in kinds.items():
        server.register("m", function, replace=True)
        outputs = [RequestOutput("output_0", {"content_type": "fragile"})] if function is encoded else []
        x = make_tensor("x", [kind.encode()], **({} if function in (whole, encoded) else {"content_type": "fragile"}))
        status, text = error(send(server, "m", request_of(x, outputs=outputs)))
        assert (status, "secret" in text) == (500, False)
        [record] = caplog.records
        assert record.exc_info is not None
        assert "a secret" in str(record.exc_info[1])
        caplog.clear()


def test_a_codec_may_extend_one_of_the_package_for_another_type_or_none() -> None:
    class German(DatetimeCodec):
        content_type = "de"
        type_hint = None  # type: ignore[assignment]

        @classmethod
        def encode_input(cls, name: str, payload: Any, use_bytes: bool = True) -> Tensor:
            return super().encode_input(name, [datetime(int(year), int(month), int(day)) for day, month, year in payload])

    tensor = German.encode_input("day", [["31", "01", "2026"]])
    assert (tensor.parameters["content_type"], tensor.array.tolist()) == ("de", [b"2026-01-31T00:00:00"])


def test_an_instance_serves_as_a_codec_and_takes_the_place_of_another() -> None:
    class Shouting(StringCodec):
        content_type = "str"

        def __init__(self, mark: str) -> None:
            self.mark = mark

        def decode_input(self, request_input: Tensor) -> list[str]:  # type: ignore[override]
            return [text.upper() + self.mark for text in StringCodec.decode_input(request_input)]

    server = InferenceServer(codecs=[Shouting("!")])
    server.register("free", lambda x: np.array(x))
    assert described(send(server, "free", request_of(with_type(NAMES, "str")))) == [("output_0", [2], None, ["JOANNE!", "MICHAËL!"])]
