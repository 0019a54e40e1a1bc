"""The headers that a model adds to its answer, and those that it may not add. Knows no transport."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Final

from .errors import is_header_value, show

_NAME: Final = re.compile("[0-9a-z_.-]+")
"""Names that gRPC takes too, in lower case."""

_OF_THE_BODY: Final = (
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "inference-header-content-length",
)
_OF_THE_CONNECTION: Final = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "trailers", "transfer-encoding", "upgrade"),
)
_REFUSED: Final = {
    **dict.fromkeys(_OF_THE_BODY, "it says how the body is written, which the server decides"),
    **dict.fromkeys(_OF_THE_CONNECTION, "it belongs to one connection, which proxies and the server manage"),
}
"""The headers that no model can give, and why."""


class ResponseHeaders(MutableMapping[str, str]):
    """Headers by name, whatever its case. Those that cannot be sent over each transport raise ValueError when
    they are written."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self.is_sent = False
        """Whether the head of the answer has left."""

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        key = _check_name(name)
        if not is_header_value(value):
            raise ValueError(
                f"response header {name} is {show(value)}: expected a str of printable ASCII without spaces "
                "around it"
            )
        self._check_open(name)
        self._values[key] = str.__str__(value)

    def __delitem__(self, name: str) -> None:
        self._check_open(name)
        del self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def send(self) -> list[tuple[str, str]]:
        """Return the names and values for the head of the answer. From then on nothing can be written."""
        self.is_sent = True
        return list(self._values.items())

    def _check_open(self, name: str) -> None:
        if self.is_sent:
            raise RuntimeError(
                f"response header {name} is too late, as the head of the answer has left: write it before "
                "the first item"
            )


def _check_name(name: str) -> str:
    """The name in lower case, if a model may give this header."""
    key = name.lower() if isinstance(name, str) else ""
    why = _REFUSED.get(key)
    if why is None and key.startswith("grpc-"):
        why = "it belongs to gRPC itself"
    elif why is None and key.endswith("-bin"):
        why = "gRPC has bytes under such a name"
    elif why is None and not _NAME.fullmatch(key):
        why = 'expected a name of letters, digits, "-", "_" and "."'
    if why is not None:
        raise ValueError(f"response header {show(name)} cannot be written: {why}")
    return str.__str__(key)
