"""Docstrings as the page shows them, and links that carry a request."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.support.node import Scripts, needs_node

pytestmark = needs_node

DOCSTRING = """How likely each customer is to leave.
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


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def test_a_docstring_has_its_paragraphs_and_lists(scripts: Scripts) -> None:
    blocks = scripts.value_of("prose.blocksOf(text)", text=DOCSTRING)
    shown = [block.get("items") or [block["kind"], *block["lines"]] for block in blocks]
    assert shown == [
        ["text", "How likely each customer is to leave.", "Trained in 2024."],
        ["text", "It reads:"],
        ["the *account*: `age` and more", "what was done"],
        ["first", "second"],
        ["code", "code = here", "", "more"],
        ["text", "The end."],
    ]
    assert [block["isNumbered"] for block in blocks if block["kind"] == "list"] == [False, True]


def test_a_docstring_in_the_style_of_numpy_has_headings_and_sessions(scripts: Scripts) -> None:
    parameters = "x : int\n    A number,\n    or none.\n\n    More.\ny : int\n"
    text = f"Add.\n\nParameters\n----------\n{parameters}\nNotes\n-----\n>>> add(1)\n2\n\n>>> add(2)\n\nTwo\nlines\n---\n"
    blocks = scripts.value_of("prose.blocksOf(text)", text=text)
    assert [[block["kind"], *block["lines"]] for block in blocks] == [
        ["text", "Add."],
        ["heading", "Parameters"],
        ["text", "x : int"],
        ["inner", "A number,", "or none."],
        ["inner", "More."],
        ["text", "y : int"],
        ["heading", "Notes"],
        ["code", ">>> add(1)", "2", "", ">>> add(2)"],
        ["text", "Two", "lines", "---"],
    ]


def test_a_docstring_in_the_style_of_google_has_headings(scripts: Scripts) -> None:
    text = """Add.

Args:
    x: A number,
        or none.
    y: Another.

Returns:
    The sum.

Example:
    add(1)

Note: this is none."""
    blocks = scripts.value_of("prose.blocksOf(text)", text=text)
    assert [[block["kind"], *block["lines"]] for block in blocks] == [
        ["text", "Add."],
        ["heading", "Args"],
        ["text", "x: A number,", "or none."],
        ["text", "y: Another."],
        ["heading", "Returns"],
        ["text", "The sum."],
        ["heading", "Example"],
        ["code", "add(1)"],
        ["text", "Note: this is none."],
    ]


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (".. versionadded:: 1.3", ["text", "Added in version 1.3."]),
        (".. deprecated:: 1.1\n   Use `y`,\n   not `x`.", ["text", "Deprecated since version 1.1.", "Use `y`,", "not `x`."]),
        (".. note::\n\n    Take care.", ["text", "Note:", "Take care."]),
        ("see :func:`~sklearn.set_config` and :ref:`the\nguide <routing>`", ["text", "see `set_config` and the"]),
        ("by `Platt <https://example.org>`_, `others`_ and [1]_", ["text", "by Platt, others and [1]"]),
        ("``x_``, `y` and :math:`a_b`", ["text", "``x_``, `y` and `a_b`"]),
        ("As follows::\n\n    f()", ["text", "As follows:"]),
        (".. _label:\n\nText.", ["text", "Text."]),
        (":param int x: A number,\n    or none.\n:returns: The sum.", ["`x` (int): A number, or none."]),
    ],
)
def test_marks_of_restructuredtext_are_words(scripts: Scripts, text: str, block: list[str]) -> None:
    first = scripts.value_of("prose.blocksOf(text)[0]", text=text)
    shown = first.get("items") or [first["kind"], *first["lines"]]
    assert shown[: len(block)] == block


@pytest.mark.parametrize(
    ("datatype", "content_type", "word"),
    [
        ("BYTES", None, "text"),
        ("BYTES", "str", "text"),
        ("BYTES", "np", "text"),
        ("BYTES", "datetime", "date"),
        ("BYTES", "base64", "BYTES base64"),
        ("FP32", None, "FP32"),
    ],
)
def test_a_type_has_one_word(scripts: Scripts, datatype: str, content_type: str | None, word: str) -> None:
    assert scripts.value_of("cells.typeOf(datatype, type ?? undefined)", datatype=datatype, type=content_type) == word


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"inputs": [}', 12), ("", 0), (" ", 1), ('{"a": 1', 7), ('{"a": 1,}', 8), ("[1, 2,]", 6), ("[1 2]", 3), ('{"a" 1}', 5),
        ("{a: 1}", 1), ('{"a": 01}', 7), ('["a\nb"]', 1), ('["a', 1), ("[tru]", 1), ("[True]", 1), ("[NaN]", 1), ("[-]", 1),
        ("[1.]", 2), ("{} x", 3), ("[[1], 2}", 7), (r'["\x"]', 1), ("]", 0), ('{"a": {"b": [1, {}, []]}, "c": [}', 32), ("['a']", 1),
    ],
)  # fmt: skip
def test_where_a_text_stops_being_json(scripts: Scripts, text: str, place: int) -> None:
    assert scripts.value_of("[json.mistakeIn(text), json.isJSON(text)]", text=text) == [place, False]


@pytest.mark.parametrize("text", [r'{"a": [1, -2.5e+3, "\u00e9\\\"", true, false, null, {}, []], "": {"b": 0}}', " 1 ", '"a"', "[]\n"])
def test_json_has_no_mistake(scripts: Scripts, text: str) -> None:
    assert scripts.value_of("[json.mistakeIn(text), json.isJSON(text)]", text=text) == [len(text), True]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("plain", [["plain", "plain"]]),
        ("a **b c** d", [["plain", "a "], ["strong", "b c"], ["plain", " d"]]),
        ("*a*, `b*c*`", [["em", "a"], ["plain", ", "], ["code", "b*c*"]]),
        ("``x`` of *args and **kwargs", [["code", "x"], ["plain", " of *args and **kwargs"]]),
        ("2 * 3 * 4", [["plain", "2 * 3 * 4"]]),
        ("a*b*c", [["plain", "a*b*c"]]),
        ("<b>no</b>", [["plain", "<b>no</b>"]]),
    ],
)
def test_words_are_emphasized(scripts: Scripts, line: str, parts: Any) -> None:
    assert scripts.value_of("prose.partsOf(line)", line=line) == parts


def test_a_link_carries_a_model_and_a_request(scripts: Scripts) -> None:
    request = {"name": "org/m & é", "version": "1", "action": "infer", "body": '{"inputs": [\n  1.50, "#&=+ %"\n]}'}
    link = scripts.value_of("visit.linkOf(asked)", asked=request)
    assert link.startswith("#model=org%2Fm")
    assert parse_qs(link[1:])["version"] == ["1"]
    read = scripts.value_of("visit.readLink(link)", link=link)
    assert read.pop("body") == '{"inputs":[1.50,"#&=+ %"]}'
    assert read == {name: value for name, value in request.items() if name != "body"}
    assert scripts.value_of("visit.linkOf({ name: 'm' })") == "#model=m"
    long = {**request, "body": json.dumps(["a" * 10_000])}
    assert scripts.value_of("visit.linkOf(asked)", asked=long) is None


def test_what_is_below_a_heading_is_text_but_for_examples(scripts: Scripts) -> None:
    text = "Sum.\n\nArgs:\n    x: One.\n\n    y: Two.\n\nReturns:\n\n    Three.\n\nExample:\n    f(1)\n\nEnd.\n\n    g()"
    blocks = scripts.value_of("prose.blocksOf(text)", text=text)
    kinds = [(block["kind"], block["lines"]) for block in blocks]
    assert kinds == [
        ("text", ["Sum."]),
        ("heading", ["Args"]),
        ("text", ["x: One."]),
        ("text", ["y: Two."]),
        ("heading", ["Returns"]),
        ("text", ["Three."]),
        ("heading", ["Example"]),
        ("code", ["f(1)"]),
        ("text", ["End."]),
        ("code", ["g()"]),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "\u2013"), (0.0000123, "0.0123\xa0ms"), (0.0999, "99.9\xa0ms"), (0.09996, "100\xa0ms"), (1.05, "1.05\xa0s"), (120, "120\xa0s")],
)
def test_a_duration_has_three_digits(scripts: Scripts, seconds: float | None, text: str) -> None:
    assert scripts.value_of("words.duration(seconds)", seconds=seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "second"), (0.9, "second"), (19.2, "20 s"), (119, "119 s"), (119.8, "2\u00a0minutes"), (600, "10\u00a0minutes")],
)
def test_how_long_one_has_looked(scripts: Scripts, seconds: float, text: str) -> None:
    assert scripts.value_of("words.lately(seconds)", seconds=seconds) == f"in the last {text}"


@pytest.mark.parametrize(("count", "text"), [(0, "0 rows"), (1, "1 row"), (1234, "1,234 rows")])
def test_one_is_no_plural(scripts: Scripts, count: int, text: str) -> None:
    assert scripts.value_of("words.counted(count, 'row')", count=count) == text


@pytest.mark.parametrize(
    ("name", "words"), [("pd", "a data frame (pd)"), ("str", "texts (str)"), ("picture", "picture"), ("toString", "toString")]
)
def test_a_content_type_is_said_in_words(scripts: Scripts, name: str, words: str) -> None:
    told = scripts.value_of("options.wordsOf({ content_type: name })", name=name)
    assert told == [["content_type", "Content type, if a request names none", words]]


@pytest.mark.parametrize(
    ("count", "text"), [(2, "0, 1"), (20, ", ".join(map(str, range(20)))), (1000, f"{', '.join(map(str, range(20)))}, … (1,000 in all)")]
)
def test_many_words_are_listed_as_the_first_ones_and_their_number(scripts: Scripts, count: int, text: str) -> None:
    assert scripts.value_of("words.listed(each)", each=[str(number) for number in range(count)]) == text
