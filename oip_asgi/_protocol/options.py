"""The check of an option, which stands beside its field in a struct. Knows no model and no server.

The struct's field has the type and the default; the docstring of the function that takes the option has the
sentence. Checks, signatures and the tables of the documentation are made from both.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from .errors import find_near, show

T = TypeVar("T")

_MODULES: Final = re.compile(r"\b[a-z_]+(\.[a-z_]+)*\.")


class Check(NamedTuple):
    """What a value must be, and the words for that after "must be"."""

    expected: str
    holds: Callable[[Any], bool]
    error: type[TypeError] | type[ValueError] = ValueError


class Field(NamedTuple):
    """One option as the documentation shows it."""

    name: str
    check: Check | None
    type: str
    default: Any
    may_be_none: bool


def text(example: str) -> Check:
    return Check(f"a non-empty string without lone surrogates, such as {example}", is_text, TypeError)


def is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() != b""
    except UnicodeEncodeError:
        return False


def integer(least: int, expected: str = "", most: float = math.inf) -> Check:
    return Check(
        expected or f"an integer, {least} or more",
        lambda value: type(value) is int and least <= value <= most,
    )


def number(expected: str, holds: Callable[[float], bool]) -> Check:
    return Check(
        expected,
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and holds(value),
    )


def one_of(*values: str) -> Check:
    return Check(" or ".join(f'"{value}"' for value in values), lambda value: value in values)


def instance_of(cls: type, example: str) -> Check:
    return Check(f"a {cls.__name__}, such as {example}", lambda value: isinstance(value, cls), TypeError)


BYTES: Final = integer(0, "a number of bytes, 0 or more, or None for no limit")
BOOLEAN: Final = Check("True or False", lambda value: type(value) is bool, TypeError)
CALLABLE: Final = Check("a callable", callable, TypeError)
SECONDS: Final = number(
    "a positive number of seconds, or None for no limit", lambda value: 0 < value < math.inf
)


@functools.cache
def list_fields(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """The options of a struct by name, in the order of its fields."""
    hints, fields = get_type_hints(struct, include_extras=True), {}
    for info in msgspec.structs.fields(struct):
        if info.required:
            continue
        hint = hints[info.name]
        base, check = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        text = _MODULES.sub("", base.__name__ if isinstance(base, type) and not get_args(base) else str(base))
        fields[info.name] = Field(info.name, check, text, info.default, type(None) in get_args(base))
    return fields


def check_options(options: msgspec.Struct, owner: str) -> None:
    for field in list_fields(type(options)).values():
        check, value = field.check, getattr(options, field.name)
        if check is not None and not (value is None and field.may_be_none) and not check.holds(value):
            raise check.error(f"{owner}{field.name}={show(value)} must be {check.expected}")


def check_names(options: Collection[str], struct: type[msgspec.Struct], owner: str) -> None:
    names = list_fields(struct).keys()
    for name in options:
        if name not in names:
            near = find_near(name, names)
            instead = f"did you mean {near}=?" if near else f"the options are {', '.join(names)}"
            raise TypeError(f"{owner}{name}= is not an option: {instead}")


def document(struct: type[msgspec.Struct]) -> Callable[[T], T]:
    """For `help()`: replace `**options` in a signature by the options of a struct. A test holds the docstring
    to them."""

    def fill_in(documented: T) -> T:
        signature = inspect.signature(documented)  # type: ignore[arg-type]
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for field in list_fields(struct).values()
            if field.name not in signature.parameters
        ]
        documented.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return documented

    return fill_in
