"""The names of operations and components in an OpenAPI document, each of them unique. Knows no models but by name.

Specification: OpenAPI 3.1, Components Object: a component's name has letters, digits, dots, hyphens and underscores only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_OTHERS: Final = re.compile("[^A-Za-z0-9]+")


def words(text: str) -> str:
    """A text in letters, digits and underscores."""
    return _OTHERS.sub("_", text).strip("_") or "_"


def unique(texts: Iterable[str]) -> list[str]:
    """Each text in letters, digits and underscores, with a number behind those that are there already."""
    taken: set[str] = set()
    found = []
    for text in texts:
        key = word = words(text)
        number = 2
        while key in taken:
            key = f"{word}_{number}"
            number += 1
        taken.add(key)
        found.append(key)
    return found


def namespace(prefix: str) -> str:
    """What the names of one server's operations and components begin with, where a document holds several servers' at other paths."""
    if prefix in ("", "/v2"):
        return "Oip"
    return "Oip" + "".join(part[:1].upper() + part[1:] for part in words(prefix).split("_"))
