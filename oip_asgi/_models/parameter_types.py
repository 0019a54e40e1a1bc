"""Which type of an annotation a parameter gets, and what to write in the place of one that no tensor can
become. Knows no callables."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from datetime import date, time, timedelta
from enum import Enum
from inspect import Parameter, formatannotation
from itertools import compress
from types import NoneType, UnionType
from typing import Any, Final, Literal

import numpy as np

from .._codecs.base import find_class
from .._codecs.content_types import UNTYPED, Codecs
from .annotations import ParsedAnnotation, parse_annotation


def choose_type(parsed: ParsedAnnotation, codecs: Codecs) -> ParsedAnnotation:
    """Choose the member of a union that a parameter gets: the array or the data frame. With both, a request's
    content type decides."""
    types = _list_members(parsed.wanted)
    members = list(map(parse_annotation, types))
    modules = (str(getattr(typing.get_origin(kind) or kind, "__module__", "")) for kind in types)
    # the latter is a part of numpy.typing.ArrayLike
    are_arrays = (
        each.wanted is np.ndarray or module.startswith("numpy._typing")
        for each, module in zip(members, modules, strict=True)
    )
    array = next(compress(members, are_arrays), None)
    frames = [
        member.wanted
        for member in members
        if member.wanted in UNTYPED or codecs.request_codec_for_annotation(member.wanted)
    ]
    if array is not None and frames:
        return parsed._replace(wanted=Parameter.empty)
    if array is not None:
        return array._replace(wanted=np.ndarray, declared=parsed.declared or array.declared)
    if frames:
        return parsed._replace(wanted=frames[0])
    if {member.wanted for member in members} == {int, float}:
        return parsed._replace(wanted=float)
    return parsed


def find_instead(annotation: Any, codecs: Codecs) -> str | None:
    """What to write in the place of a type that a client may want to send. None if it could not be sent in
    any form."""
    members = list(map(parse_annotation, _list_members(annotation)))
    readable = [
        member.wanted for member in members if codecs.make_reader(member.wanted, member.codec) is not None
    ]
    if readable:
        return f"annotate one of these types, such as {formatannotation(readable[-1])}"
    arguments = typing.get_args(annotation)
    element = arguments[0] if typing.get_origin(annotation) is list and arguments else annotation
    return next((text for is_meant, text in _INSTEAD if is_meant(element)), None)


def _list_members(annotation: Any) -> Sequence[Any]:
    """The types of a union, but for None."""
    members = (
        typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, UnionType) else ()
    )
    return [member for member in members if member is not NoneType]


def _match_types(*kinds: Any) -> Callable[[Any], bool]:
    return lambda element: isinstance(element, type) and issubclass(element, kinds)


def _match_class(module: str, name: str) -> Callable[[Any], bool]:
    """The same for a class of a library, which is not imported for that."""
    return lambda element: isinstance(element, type) and issubclass(element, find_class(module, name))


_INSTEAD: Final[Sequence[tuple[Callable[[Any], bool], str]]] = (
    (_match_types(bytes, bytearray, memoryview), "annotate list[bytes], or str for one text"),
    (_match_types(np.bool_), "annotate bool for one value, or npt.NDArray[np.bool_] for an array"),
    (
        _match_types(np.integer),
        "annotate int for one number, or npt.NDArray[np.int64] or the like for an array",
    ),
    (
        _match_types(np.number),
        "annotate float for one number, or npt.NDArray[np.float32] or the like for an array",
    ),
    (
        _match_types(np.generic),
        "annotate np.ndarray for an array, str for one text, or list[datetime] for dates",
    ),
    (
        _match_types(date, time, timedelta),
        "annotate list[datetime]: dates are BYTES, with the content type datetime",
    ),
    (_match_types(Enum), "annotate str or int, and make the member of it in the function"),
    (
        lambda element: typing.get_origin(element) is Literal,
        "annotate str or int, and check the value in the function",
    ),
    (_match_class("polars", "DataFrame"), "annotate pd.DataFrame, and write polars.from_pandas(frame)"),
    (_match_class("pyarrow", "Table"), "annotate pd.DataFrame, and write pyarrow.Table.from_pandas(frame)"),
    (
        _match_class("xgboost", "DMatrix"),
        "register the booster's inplace_predict, which takes arrays and data frames",
    ),
)
"""What to write, by the type, or by that of the elements of a list."""
