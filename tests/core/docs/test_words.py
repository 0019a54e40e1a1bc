"""Docstrings as the page shows them, and links that carry a request."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from tests.support.node import Scripts, needs_node

pytestmark = needs_node

PLAIN = """How likely each customer is to leave.
Trained in 2024.

It reads:

- the *account*: `age`
  and more
- what was done
1. first
2) second

    code = here

    more

The end."""
NUMPY = """Add.

Parameters
----------
x : int
    A number,
    or none.

    More.
y : int

Notes
-----
>>> add(1)
2

>>> add(2)

Two
lines
---
"""
GOOGLE = """Add.

Args:
    x: A number,
        or none.

    y: Another.

Returns:

    The sum.

Example:
    add(1)

Note: this is none.

    g()"""

BLOCKS: dict[str, list[list[Any]]] = {
    PLAIN: [
        ["text", "How likely each customer is to leave.", "Trained in 2024."],
        ["text", "It reads:"],
        [False, "the *account*: `age` and more", "what was done"],
        [True, "first", "second"],
        ["code", "code = here", "", "more"],
        ["text", "The end."],
    ],
    NUMPY: [
        ["text", "Add."],
        ["heading", "Parameters"],
        ["text", "x : int"],
        ["inner", "A number,", "or none."],
        ["inner", "More."],
        ["text", "y : int"],
        ["heading", "Notes"],
        ["code", ">>> add(1)", "2", "", ">>> add(2)"],
        ["text", "Two", "lines", "---"],
    ],
    # what is below a heading is text but for examples
    GOOGLE: [
        ["text", "Add."],
        ["heading", "Args"],
        ["text", "x: A number,", "or none."],
        ["text", "y: Another."],
        ["heading", "Returns"],
        ["text", "The sum."],
        ["heading", "Example"],
        ["code", "add(1)"],
        ["text", "Note: this is none."],
        ["code", "g()"],
    ],
    ".. versionadded:: 1.3": [["text", "Added in version 1.3."]],
    ".. deprecated:: 1.1\n   Use `y`,\n   not `x`.": [["text", "Deprecated since version 1.1.", "Use `y`,", "not `x`."]],
    ".. note::\n\n    Take care.": [["text", "Note:", "Take care."]],
    "see :func:`~sklearn.set_config` and :ref:`the\nguide <routing>`": [["text", "see `set_config` and the", "guide"]],
    "by `Platt <https://example.org>`_, `others`_ and [1]_": [["text", "by Platt, others and [1]"]],
    "``x_``, `y` and :math:`a_b`": [["text", "``x_``, `y` and `a_b`"]],
    "As follows::\n\n    f()": [["text", "As follows:"], ["code", "f()"]],
    ".. _label:\n\nText.": [["text", "Text."]],
    ":param int x: A number,\n    or none.\n:returns: The sum.": [[False, "`x` (int): A number, or none."], ["text", "Returns: The sum."]],
}
"""Docstrings, and their blocks: the kind, which of a list is whether it is numbered, and the lines."""


def test_a_docstring_has_paragraphs_lists_headings_and_code(scripts: Scripts) -> None:
    shown = "prose.blocksOf(given).map(({ kind, lines, isNumbered, items }) => kind === 'list' ? [isNumbered, ...items] : [kind, ...lines])"
    assert dict(zip(BLOCKS, scripts.values_of(shown, [*BLOCKS]), strict=True)) == BLOCKS


def test_a_link_carries_a_model_and_a_request(scripts: Scripts) -> None:
    request = {"name": "org/m & é", "version": "1", "action": "infer", "body": '{"inputs": [\n  1.50, "#&=+ %"\n]}'}
    long = {**request, "body": json.dumps(["a" * 10_000])}
    link, *others = scripts.values_of("request.linkOf(given)", [request, {"name": "m"}, long])
    assert link.startswith("#model=org%2Fm")
    assert parse_qs(link[1:])["version"] == ["1"]
    assert others == ["#model=m", None]
    assert scripts.value_of("request.readLink(link)", link=link) == {**request, "body": '{"inputs":[1.50,"#&=+ %"]}'}
