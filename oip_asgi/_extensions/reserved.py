"""The parameters of requests that the protocol and its extensions define, and their types. Knows no models.

`timeout` is checked in `_serving.decoding`. Parameters of sequences reach the model, and change nothing here.

Specification: Triton's Sequence, Schedule Policy and Generate Extensions; `triton_` begins the names that it
reserves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from .._protocol.errors import InvalidRequest, find_near, list_names, show
from .._protocol.tensors import ELSEWHERE

WANTS_FINAL: Final = "triton_enable_empty_final_response"
"""Whether a stream ends with a response without outputs, which says that it is the last one."""

FINAL: Final = "triton_final_response"
"""The parameter of a response that says so."""

_FLAG: Final = ((bool,), "true or false")
_EXPECTED: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "sequence_id": ((int, str), "an integer, 0 or more, or a string"),
    "sequence_start": _FLAG,
    "sequence_end": _FLAG,
    "priority": ((int,), "an integer, 0 or more"),
    WANTS_FINAL: _FLAG,
}
"""The types of each parameter. Integers have 64 bits, and no sign."""

OF_TREATMENT: Final = frozenset({*_EXPECTED, "timeout", "binary_data_output"})
"""Parameters that say how a request is treated, not what is computed."""

OF_PROTOCOL: Final = OF_TREATMENT | {"content_type", "headers", *ELSEWHERE}
"""Parameters that mean something else than an argument of the model."""

_RESERVED: Final = "triton_"


def check_parameters(
    parameters: Mapping[str, object], scalars: Collection[str], refused: Collection[str]
) -> None:
    """Check a request's parameters. The model reads its `scalars` there; other parameters of its callable are
    `refused`.

    If it has scalars, and reads no others, an unknown name may be a misspelled one, which would keep its
    default.
    """
    for name, value in parameters.items():
        if name in _EXPECTED:
            kinds, expected = _EXPECTED[name]
            if type(value) not in kinds or (type(value) is int and not 0 <= value < 2**64):
                raise InvalidRequest(f"parameters.{name} is {show(value)}: expected {expected}")
        elif name.startswith(_RESERVED):
            raise InvalidRequest(
                f"parameters[{show(name)}] is unknown, and names that begin with {_RESERVED} are reserved: "
                "leave it out"
            )
        elif name in scalars or name in OF_PROTOCOL:
            continue
        elif name in refused:
            raise InvalidRequest(
                f"parameters[{show(name)}]: the model reads only what it annotates float, int, bool or str "
                "from there: send an input, or "
                "leave it out"
            )
        elif scalars:
            near = find_near(name, scalars)
            hint = "" if near is None else f"; did you mean {show(near)}?"
            raise InvalidRequest(
                f"unknown parameter {show(name)}: expected {list_names(sorted(scalars))}{hint}"
            )
