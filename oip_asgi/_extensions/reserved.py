"""The parameters of requests that the protocol's extensions define, and their types. Knows no models.

`timeout` is checked where it is used. Parameters of sequences reach the model, and change nothing here.

Specification: Triton's Sequence, Schedule Policy and Generate Extensions; `triton_` begins the names that it reserves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .._protocol.errors import InvalidRequest, show

_FLAG: Final = ((bool,), "true or false")
_EXPECTED: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "sequence_id": ((int, str), "an integer, 0 or more, or a string"),
    "sequence_start": _FLAG,
    "sequence_end": _FLAG,
    "priority": ((int,), "an integer, 0 or more"),
    "triton_enable_empty_final_response": _FLAG,
}
"""The types of each parameter. Integers have 64 bits, and no sign."""

OF_TREATMENT: Final = frozenset({*_EXPECTED, "timeout", "binary_data_output"})
"""Parameters that say how a request is treated, not what is computed."""

_RESERVED: Final = "triton_"


def check_reserved(parameters: Mapping[str, object]) -> None:
    for name, value in parameters.items():
        if name in _EXPECTED:
            kinds, expected = _EXPECTED[name]
            if type(value) not in kinds or (type(value) is int and not 0 <= value < 2**64):
                raise InvalidRequest(f"parameters.{name} is {show(value)}: expected {expected}")
        elif name.startswith(_RESERVED):
            raise InvalidRequest(f"parameters[{show(name)}] is unknown, and names that begin with {_RESERVED} are reserved: leave it out")
