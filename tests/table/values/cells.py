"""The columns of the table: the values, and what the model gets of them, by family of kinds.

What no family names is refused: 400. In an outcome, `{d}` stands for the dtype of the kind, or `list`, and `{na}` for
a missing value; a kind that has none refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from tests.table.values.kinds import Kind

REFUSED: Final = "400"

BIG: Final = 2**53 + 1
"""The first whole number that a float would round."""

GROUPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "its own": {"right": None, "edge": None, "too large": None, "empty": [], "no list": None},
    "missing": {
        "one missing": None,
        "edge, one missing": None,
        "all missing": [None, None],
        "a whole number, one missing": [7, None],
        "a whole float, one missing": [2.0, None],
        "a fraction, one missing": [0.5, None],
        "true, one missing": [True, None],
        "a text of digits, one missing": ["12", None],
        "a date, one missing": [datetime(2026, 1, 31), None],
    },
    "of another type": {
        "a whole number": [7],
        "a whole float": [2.0],
        "a large whole float": [2.0**60],
        "a fraction": [0.5],
        "true": [True],
        "a text of digits": ["12"],
        "a number and a text": [1, "a"],
        "a large whole number and a fraction": [BIG, 0.5],
        "a date": [datetime(2026, 1, 31)],
        "a day": [date(2026, 1, 31)],
        "a date with a zone": [datetime(2026, 1, 31, tzinfo=UTC)],
        "a date as text": ["2026-01-31"],
        "bytes": [b"\xff"],
        "base64": ["/w=="],
        "an object": [{"a": 1}],
        "a huge whole number": [10**400],
        "half a character": ["\ud800"],
    },
    "no finite number": {"NaN": [math.nan], "infinity": [math.inf], "the text NaN": ["NaN"], "the text NaT": ["NaT"]},
    "nested": {"nested [N, 1]": None, "nested [N, 2]": None, "ragged": None},
}
"""The names of the values, and the values where all kinds are asked with the same ones."""

WHERE_NOTHING_IS_DECLARED: Final = {"a large whole number and a fraction"}
"""Those that are asked only there, as the values decide."""


@dataclass(frozen=True)
class Family:
    """What kinds have in common.

    Args:
        right: Values as they should be.
        edge: The largest, smallest or strangest of them.
        outcomes: What the model gets, by the name of the values.
        too_large: Values of the right type that it does not hold.
    """

    right: list[Any]
    edge: list[Any]
    outcomes: Mapping[str, str]
    too_large: list[Any] | None = None


_NUMBERS: Final = {
    "right": "{d} [1.5, -2.25]",
    "edge": "{d} [-0.0, 9007199254740992.0]",
    "one missing": "{d} [1.5, {na}]",
    "edge, one missing": "{d} [-0.0, {na}]",
    "all missing": "{d} [{na}, {na}]",
    "a whole number": "{d} [7.0]",
    "a whole float": "{d} [2.0]",
    "a large whole float": "{d} [1.152921504606847e+18]",
    "a fraction": "{d} [0.5]",
    "empty": "{d} []",
    "NaN": "{d} [{na}]",
    "infinity": "{d} [inf]",
    "the text NaN": "{d} [{na}]",
    "no list": "{d} [1.5]",
}


def _integers(right: str, edge: str, missing: str) -> Mapping[str, str]:
    return {
        "right": f"{{d}} [{right}]",
        "edge": f"{{d}} [{edge}]",
        "one missing": f"{{d}} [{missing}, {{na}}]",
        "edge, one missing": f"{{d}} [{edge.split(', ')[0]}, {{na}}]",
        "all missing": "{d} [{na}, {na}]",
        "a whole number": "{d} [7]",
        "a whole float": "{d} [2]",
        "no list": "{d} [1]",
        "empty": "{d} []",
    }


_TEXTS: Final = {
    "right": "{d} ['a', 'é']",
    "edge": "{d} ['', 'NaN', 'null', 'None']",
    "one missing": "{d} ['a', {na}]",
    "edge, one missing": "{d} ['', {na}]",
    "all missing": "{d} [{na}, {na}]",
    "a text of digits": "{d} ['12']",
    "a date as text": "{d} ['2026-01-31']",
    "base64": "{d} ['/w==']",
    "the text NaN": "{d} ['NaN']",
    "the text NaT": "{d} ['NaT']",
    "no list": "{d} ['a']",
    "empty": "{d} []",
}

_DATES: Final = {
    "right": "{d} [2026-01-31 00:00:00, 2026-01-31 12:30:00]",
    "edge": "{d} [0001-01-01 00:00:00, 9999-12-31 23:59:59.999999]",
    "one missing": "{d} [2026-01-31 00:00:00, {na}]",
    "edge, one missing": "{d} [0001-01-01 00:00:00, {na}]",
    "all missing": "{d} [{na}, {na}]",
    "a date": "{d} [2026-01-31 00:00:00]",
    "a day": "{d} [2026-01-31 00:00:00]",
    "a date as text": "{d} [2026-01-31 00:00:00]",
    "the text NaT": "{d} [{na}]",
    "no list": "{d} [2026-01-31 00:00:00]",
    "empty": "{d} []",
}

_ANY: Final = {
    "right": "float64 [1.5, -2.25]",
    "edge": "int64 [9007199254740993, -9223372036854775808]",
    "one missing": "float64 [1.5, nan]",
    "a whole number, one missing": "float64 [7.0, nan]",
    "a whole float, one missing": "float64 [2.0, nan]",
    "a fraction, one missing": "float64 [0.5, nan]",
    "edge, one missing": REFUSED,
    "true, one missing": REFUSED,
    "a text of digits, one missing": REFUSED,
    "a date, one missing": REFUSED,
    "a text of digits": "object [b'12']",
    "a whole number": "int64 [7]",
    "a whole float": "float64 [2.0]",
    "a large whole float": "float64 [1.152921504606847e+18]",
    "a fraction": "float64 [0.5]",
    "true": "bool [True]",
    "empty": "float64 []",
    "NaN": "float64 [nan]",
    "infinity": "float64 [inf]",
    "a date": "list [2026-01-31 00:00:00]",
    "a day": "list [2026-01-31 00:00:00]",
    "a date with a zone": "list [2026-01-31 00:00:00+00:00]",
    "bytes": "object [b'\\xff']",
    "a date as text": "object [b'2026-01-31']",
    "base64": "object [b'/w==']",
    "the text NaN": "object [b'NaN']",
    "the text NaT": "object [b'NaT']",
    "no list": "float64 [1.5]",
    "nested [N, 2]": "float64 [[1.5, 1.5], [-2.25, -2.25]]",
    "nested [N, 1]": "float64 [[1.5], [-2.25]]",
}

FAMILIES: Final[Mapping[str, Family]] = {
    "number": Family([1.5, -2.25], [-0.0, BIG], _NUMBERS, [10**400]),
    "half number": Family(
        [1.5, -2.25], [-0.0, 65504.0], {**_NUMBERS, "edge": "{d} [-0.0, 65504.0]", "a large whole float": REFUSED}, [65520.0]
    ),
    "small number": Family([1.5, -2.25], [-0.0, BIG], _NUMBERS, [1e39]),
    "matrix": Family(
        [1.5, -2.25],
        [-0.0, BIG],
        {
            "right": "{d} [[1.5], [-2.25]]",
            "edge": "{d} [[-0.0], [9007199254740992.0]]",
            "one missing": "{d} [[1.5], [{na}]]",
            "edge, one missing": "{d} [[-0.0], [{na}]]",
            "all missing": "{d} [[{na}], [{na}]]",
            "a whole number": "{d} [[7.0]]",
            "a whole float": "{d} [[2.0]]",
            "a large whole float": "{d} [[1.152921504606847e+18]]",
            "a fraction": "{d} [[0.5]]",
            "empty": "{d} []",
            "NaN": "{d} [[{na}]]",
            "infinity": "{d} [[inf]]",
            "the text NaN": "{d} [[{na}]]",
            "no list": "{d} [[1.5]]",
            "nested [N, 1]": "{d} [[1.5], [-2.25]]",
        },
        [10**400],
    ),
    "integer": Family([1, -2], [BIG, -(2**63)], _integers("1, -2", "9007199254740993, -9223372036854775808", "1"), [2**63]),
    "any integer": Family([1, -2], [2**64 - 1, 2**63], _integers("1, -2", "18446744073709551615, 9223372036854775808", "1"), [2**64]),
    "small integer": Family([1, -2], [127, -128], _integers("1, -2", "127, -128", "1"), [128]),
    "unsigned integer": Family([1, 2], [255, 0], _integers("1, 2", "255, 0", "1"), [-1]),
    "large integer": Family([1, 2], [2**64 - 1, 0], _integers("1, 2", "18446744073709551615, 0", "1"), [2**64]),
    "boolean": Family(
        [True, False],
        [0, 1],
        {
            "right": "{d} [True, False]",
            "edge": "{d} [False, True]",
            "one missing": "{d} [True, {na}]",
            "edge, one missing": "{d} [False, {na}]",
            "all missing": "{d} [{na}, {na}]",
            "true": "{d} [True]",
            "no list": "{d} [True]",
            "empty": "{d} []",
        },
        [2],
    ),
    "text": Family(["a", "é"], ["", "NaN", "null", "None"], _TEXTS),
    "raw text": Family(
        ["a", "é"],
        ["", "NaN", "null", "None"],
        {
            "right": "{d} [b'a', b'\\xc3\\xa9']",
            "edge": "{d} [b'', b'NaN', b'null', b'None']",
            "a text of digits": "{d} [b'12']",
            "a date as text": "{d} [b'2026-01-31']",
            "base64": "{d} [b'/w==']",
            "the text NaN": "{d} [b'NaN']",
            "the text NaT": "{d} [b'NaT']",
            "no list": "{d} [b'a']",
            "bytes": "{d} [b'\\xff']",
            "empty": "{d} []",
        },
    ),
    "category": Family(
        ["a", "é"],
        ["é", "é"],
        {
            "right": "{d} ['a', 'é']",
            "edge": "{d} ['é', 'é']",
            "edge, one missing": "{d} ['é', {na}]",
            "no list": "{d} ['a']",
            "one missing": "{d} ['a', {na}]",
            "all missing": "{d} [{na}, {na}]",
            "empty": "{d} []",
        },
        ["z"],
    ),
    "category of numbers": Family(
        [1, 2],
        [2, 2],
        {
            "right": "{d} [1, 2]",
            "edge": "{d} [2, 2]",
            "edge, one missing": "{d} [2, {na}]",
            "one missing": "{d} [1, {na}]",
            "all missing": "{d} [{na}, {na}]",
            "a whole float": "{d} [2]",
            "no list": "{d} [1]",
            "empty": "{d} []",
        },
        [3],
    ),
    "bytes": Family(
        [b"a", b"\xff\x00"],
        [b""],
        {
            "right": "{d} [b'a', b'\\xff\\x00']",
            "edge": "{d} [b'']",
            "base64": "{d} [b'\\xff']",
            "bytes": "{d} [b'\\xff']",
            "no list": "{d} [b'a']",
            "empty": "{d} []",
        },
    ),
    "date": Family(
        [datetime(2026, 1, 31), datetime(2026, 1, 31, 12, 30)], [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)], _DATES
    ),
    "date in nanoseconds": Family(
        [datetime(2026, 1, 31), datetime(2026, 1, 31, 12, 30)],
        [datetime(1677, 9, 22), datetime(2262, 4, 11)],
        {
            **_DATES,
            "edge": "{d} [1677-09-22 00:00:00, 2262-04-11 00:00:00]",
            "edge, one missing": "{d} [1677-09-22 00:00:00, {na}]",
        },
        [datetime(1677, 9, 21)],
    ),
    "date of any zone": Family(
        [datetime(2026, 1, 31), datetime(2026, 1, 31, 12, 30)],
        [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
        {**_DATES, "a date with a zone": "{d} [2026-01-31 00:00:00+00:00]"},
    ),
    "date in Berlin": Family(
        [datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 7, 31, tzinfo=UTC)],
        [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2200, 1, 1, microsecond=1, tzinfo=UTC)],
        {
            "right": "{d} [2026-01-31 01:00:00+01:00, 2026-07-31 02:00:00+02:00]",
            "edge": "{d} [2026-03-29 03:00:00+02:00, 2200-01-01 01:00:00.000001+01:00]",
            "one missing": "{d} [2026-01-31 01:00:00+01:00, {na}]",
            "edge, one missing": "{d} [2026-03-29 03:00:00+02:00, {na}]",
            "all missing": "{d} [{na}, {na}]",
            "a date with a zone": "{d} [2026-01-31 01:00:00+01:00]",
            "the text NaT": "{d} [{na}]",
            "no list": "{d} [2026-01-31 01:00:00+01:00]",
            "empty": "{d} []",
        },
    ),
    "JSON": Family(
        ["a", {"a": 1}, [2]],
        ["", "NaN", BIG],
        {
            "right": "{d} ['a', {'a': 1}, [2]]",
            "edge": "{d} ['', 'NaN', 9007199254740993]",
            "edge, one missing": "{d} ['', {na}]",
            "one missing": "{d} ['a', {na}]",
            "all missing": "{d} [{na}, {na}]",
            "a text of digits": "{d} ['12']",
            "a whole number": "{d} [7]",
            "a whole float": "{d} [2.0]",
            "a large whole float": "{d} [1.152921504606847e+18]",
            "a fraction": "{d} [0.5]",
            "true": "{d} [True]",
            "empty": "{d} []",
            "a date as text": "{d} ['2026-01-31']",
            "base64": "{d} ['/w==']",
            "the text NaN": "{d} ['NaN']",
            "the text NaT": "{d} ['NaT']",
            "no list": "{d} ['a']",
            "nested [N, 2]": "{d} [['a', 'a'], [{'a': 1}, {'a': 1}], [[2], [2]]]",
            "ragged": "{d} [['a'], ['a', 'a']]",
            "nested [N, 1]": "{d} [['a'], [{'a': 1}], [[2]]]",
            "a number and a text": "{d} [1, 'a']",
            "an object": "{d} [{'a': 1}]",
            "a huge whole number": f"{{d}} [{10**400}]",
        },
    ),
    "any": Family([1.5, -2.25], [BIG, -(2**63)], _ANY, [2**64]),
    "column of any": Family(
        [1.5, -2.25],
        [BIG, -(2**63)],
        {
            **_ANY,
            "all missing": "object [None, None]",
            "a text of digits": "object ['12']",
            "a date as text": "object ['2026-01-31']",
            "base64": "object ['/w==']",
            "the text NaN": "object ['NaN']",
            "the text NaT": "object ['NaT']",
            "nested [N, 2]": REFUSED,
            "a date": "datetime64 [2026-01-31 00:00:00]",
            "a day": "datetime64 [2026-01-31 00:00:00]",
            "a date with a zone": "datetime64 [2026-01-31 00:00:00+00:00]",
            "bytes": REFUSED,
            "nested [N, 1]": "float64 [1.5, -2.25]",
            "true, one missing": "object [True, None]",
            "a text of digits, one missing": "object ['12', None]",
            "a date, one missing": "datetime64 [2026-01-31 00:00:00, NaT]",
        },
        [2**64],
    ),
}


def values_of(kind: Kind, group: str) -> dict[str, Any]:
    """The values of a group that a kind is asked with, by their names."""
    family = FAMILIES[kind.family]
    right = family.right
    own = {
        "right": right,
        "edge": family.edge,
        "too large": family.too_large,
        "no list": right[0],
        "one missing": [right[0], None],
        "edge, one missing": [family.edge[0], None],
        "nested [N, 1]": [[each] for each in right],
        "nested [N, 2]": [[each, each] for each in right],
        "ragged": [[right[0]], [right[0]] * 2],
    }
    return {
        name: own.get(name, values)
        for name, values in GROUPS[group].items()
        if not (kind.is_declared and name in WHERE_NOTHING_IS_DECLARED) and not (name == "too large" and family.too_large is None)
    }


def expect(kind: Kind, name: str) -> str:
    """What the model gets of the values of this name."""
    outcomes = FAMILIES[kind.family].outcomes
    outcome = outcomes.get(name, REFUSED)
    if name == "nested [N, 1]" and name not in outcomes and kind.is_flattened:
        outcome = outcomes["right"]
    first, _, more = name.partition(", ")
    if more == "one missing" and first in outcomes and name not in outcomes:
        end = "]]" if outcomes[first].endswith("]]") else "]"
        outcome = outcomes[first].removesuffix(end) + f"{end[1:]}, {end[1:].replace(']', '[')}{{na}}{end}"
    return fill(outcome, kind)


def fill(outcome: str, kind: Kind) -> str:
    """An outcome with the words of a kind."""
    if "{na}" in outcome and kind.missing is None:
        return REFUSED
    return outcome.replace("{d}", kind.writes).replace("{na}", kind.missing or "")
