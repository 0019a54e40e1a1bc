"""Headers and metadata of requests. Knows none of their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import AnyStr


def join_repeated(headers: Iterable[tuple[AnyStr, AnyStr]], comma: AnyStr) -> dict[AnyStr, AnyStr]:
    """Headers by name. The values of a repeated header are joined by a comma."""
    lines: dict[AnyStr, list[AnyStr]] = {}
    for name, value in headers:
        lines.setdefault(name, []).append(value)
    return {name: comma.join(values) for name, values in lines.items()}
