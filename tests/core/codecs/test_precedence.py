"""What decides how a tensor is read: each pair of the places that can say a content type, with each pair of content types.

The one element that is sent can be read as any of them, so what the model receives tells which place has decided.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from inspect import formatannotation
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceServer, Tensor, TensorSpec
from oip_asgi.codecs import InputCodec
from tests.support.asking import error
from tests.support.content_types import PairCodec, assert_same, make_tensor, send

pytestmark = pytest.mark.ci  # as no machine breaks it

ELEMENT: Final = b"20220111"


class Own(NamedTuple):
    """What a codec of the user's makes."""

    text: str


class OwnCodec(InputCodec[list[Own]]):
    """One for tensors."""

    content_type = "own"
    type_hint = list[Own]

    @classmethod
    def encode_input(cls, name: str, payload: list[Own], use_bytes: bool = True) -> Tensor:
        return make_tensor(name, [own.text.encode() for own in payload], content_type=cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Own]:
        return [Own(element.decode()) for element in request_input.array.ravel().tolist()]


class Whole(NamedTuple):
    """What the other codec of the user's makes."""

    names: list[str]


class WholeCodec(PairCodec):
    """One for whole requests."""

    content_type = "whole"
    type_hint = Whole

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return Whole([tensor.name for tensor in request.inputs])


OF_TENSORS: Final[dict[str, Any]] = {
    "np": np.array([ELEMENT], object),
    "str": ["20220111"],
    "base64": [b"\xdbM\xb6\xd3]u"],
    "datetime": [datetime(2022, 1, 11)],
    "pd_json": [20220111],
    "own": [Own("20220111")],
}
"""The content types of one tensor, and what each makes of the element."""

COLUMNS: Final[dict[str | None, Any]] = {
    **{name: pd.Series(OF_TENSORS[name], dtype=object) for name in ("np", "base64", "pd_json")},
    "str": pd.Series(["20220111"]),
    None: pd.Series(["20220111"]),
    "datetime": pd.Series([datetime(2022, 1, 11)]),
}
"""What each makes of it as the column of a frame. A codec of the user's makes none."""

ANNOTATIONS: Final[dict[str, Any]] = {
    "np": np.ndarray,
    "str": list[str],
    "base64": list[bytes],
    "datetime": list[datetime],
    "own": list[Own],
    "pd": pd.DataFrame,
    "whole": Whole,
}
WHOLE: Final = ("pd", "whole")


class Said(NamedTuple):
    """What each place says; None for nothing."""

    tensor: str | None = None
    request: str | None = None
    spec: str | None = None
    model: str | None = None


def said() -> Iterator[Said]:
    """Nothing, each place alone, and each pair of places."""
    yield Said()
    choices = {"tensor": [*OF_TENSORS], "request": [*OF_TENSORS, *WHOLE], "spec": [*OF_TENSORS], "model": [*OF_TENSORS, *WHOLE]}
    for place in choices:
        yield from (Said(**{place: one}) for one in choices[place])
    for first, second in itertools.combinations(choices, 2):
        yield from (Said(**{first: one, second: other}) for one in choices[first] for other in choices[second])


def expected(places: Said) -> Any:
    """The rule: tensor, request, declaration. A frame is of columns, for which the tensor decides, else the declaration of it. Nothing
    where no frame can be made."""
    whole = places.request if places.request is not None else places.model
    if whole == "whole":
        return Whole(["x"])
    if whole == "pd":
        column = COLUMNS.get(places.tensor or places.spec)
        return None if column is None else pd.DataFrame({"x": column})
    return OF_TENSORS[next((one for one in places if one is not None), "np")]


def ask_for(places: Said, annotation: Any = None) -> tuple[Any, Any]:
    """The answer, and what a model received that says and is asked what `places` does; nothing where it received none."""
    seen: list[Any] = []

    def model(x):  # type: ignore[no-untyped-def]
        seen.append(x)
        return 1

    if annotation is not None:
        model.__annotations__["x"] = annotation
    server = InferenceServer(codecs=[OwnCodec, WholeCodec])
    specs = [] if places.spec is None else [TensorSpec("x", "BYTES", [-1], content_type=places.spec)]
    server.register("m", model, inputs=specs, content_type=places.model)
    tensor = make_tensor("x", [ELEMENT], **({} if places.tensor is None else {"content_type": places.tensor}))
    request = InferenceRequest([tensor], parameters={} if places.request is None else {"content_type": places.request})
    answer = send(server, "m", request)
    return answer, seen[0] if seen else None


def test_of_two_places_the_nearer_one_to_the_tensor_decides() -> None:
    for places in said():
        made = expected(places)
        answer, value = ask_for(places)
        assert answer.status == (400 if made is None else 200), (places, answer.body)
        try:
            assert_same(value, made)
        except AssertionError as problem:
            raise AssertionError(f"{places}: {value!r}") from problem


@pytest.mark.parametrize("wanted", ANNOTATIONS)
def test_an_annotation_gets_its_type_or_a_400_that_names_both(wanted: str) -> None:
    annotation = ANNOTATIONS[wanted]
    for place, one in [("tensor", one) for one in OF_TENSORS] + [("request", one) for one in [*OF_TENSORS, *WHOLE]]:
        answer, value = ask_for(Said(**{place: one}), annotation)
        if place == "tensor" and (one, wanted) == ("own", "pd"):
            assert error(answer) == (400, "column 'x' has the content_type 'own': expected one of np, str, base64, datetime, pd_json")
        elif place == "tensor" and wanted in WHOLE:
            assert_same(value, expected(Said(tensor=one, model=wanted)))
        elif one == wanted:
            assert_same(value, expected(Said(model=wanted)))
        elif one == "pd" and wanted not in WHOLE:  # column by column
            assert_same(value, ask_for(Said(), annotation)[1])
        else:
            status, text = error(answer)
            assert (status, f"content_type {one!r}" in text) == (400, True), (place, one, text)
            assert formatannotation(annotation).replace("typing.", "") in text.replace("typing.", ""), (place, one, text)


@pytest.mark.parametrize("wanted", ANNOTATIONS)
def test_a_declaration_that_contradicts_the_annotation_fails_at_registration(wanted: str) -> None:
    for place, one in [("spec", one) for one in OF_TENSORS if wanted not in WHOLE] + [("model", one) for one in [*OF_TENSORS, *WHOLE]]:
        places = Said(**{place: one})
        if one == wanted:
            assert_same(ask_for(places, ANNOTATIONS[wanted])[1], expected(places))
        else:
            with pytest.raises(TypeError, match=f"content_type.*{one}"):
                ask_for(places, ANNOTATIONS[wanted])
