"""The parameters of requests that the protocol's extensions define, and their types. Knows no models.

`timeout` is checked where it is used. Parameters of sequences reach the model, and change nothing here.

Specification: Triton's Sequence, Schedule Policy and Generate Extensions; `triton_` begins the names that it reserves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from .._protocol.errors import InvalidRequest, show

OF_TREATMENT: Final = frozenset(
    {
        *("timeout", "priority", "sequence_id", "sequence_start", "sequence_end", "binary_data_output"),
        "triton_enable_empty_final_response",
    }
)
"""Parameters that say how a request is treated, not what is computed."""

_MAX_UINT64: Final = 2**64 - 1
_RESERVED: Final = "triton_"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_UINT64


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_sequence(value: object) -> bool:
    return isinstance(value, str) or _is_count(value)


_EXPECTED: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = MappingProxyType(
    {
        "sequence_id": (_is_sequence, "an integer, 0 or more, or a string"),
        "sequence_start": (_is_flag, "true or false"),
        "sequence_end": (_is_flag, "true or false"),
        "priority": (_is_count, "an integer, 0 or more"),
        "triton_enable_empty_final_response": (_is_flag, "true or false"),
    }
)


def check_reserved(parameters: Mapping[str, object]) -> None:
    """Check the types of a request's reserved parameters."""
    for name, value in parameters.items():
        if name in _EXPECTED:
            is_expected, expected = _EXPECTED[name]
            if not is_expected(value):
                raise InvalidRequest(f"parameters.{name} is {show(value)}: expected {expected}")
        elif name.startswith(_RESERVED):
            raise InvalidRequest(f"parameters[{show(name)}] is unknown, and names that begin with {_RESERVED} are reserved: leave it out")
