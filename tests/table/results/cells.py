"""The rows of the table: a result, and what leaves of it where nothing is declared, and by each datatype or content type.

What is not listed is refused: with 500, as it is the model's fault, or with 400 where the client asks for a content type that the result
cannot have. An outcome is written as `describe` writes it: datatype, content type, shape, elements, and what a column has beside these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd

from oip_asgi import TensorSpec
from tests.table.results.ways import NAME

REFUSED: Final = "refused"
"""What is said of a content type that is refused though a model may declare it."""

BIG: Final = 2**53 + 1
"""The first whole number that a float would round."""

NOON: Final = datetime(2026, 1, 31, 12, 30)
ZONED: Final = NOON.replace(tzinfo=UTC)

OF_OBJECTS: Final = "" if pd.Series(["a"]).dtype == object else " pd_dtype object"
"""What a column of objects says: since pandas 3, that is not the dtype that texts have by themselves."""

DECLARED: Final[Mapping[str, TensorSpec]] = {
    **{each: TensorSpec(NAME, each, [-1]) for each in ("FP64", "INT8", "UINT64", "BYTES")},
    **{each: TensorSpec(NAME, "BYTES", [-1], each) for each in ("str", "base64", "datetime", "pd_json")},
}
"""What `outputs=` says, by the name of the column. The content types are those that a client may ask for, too."""


@dataclass(frozen=True)
class Row:
    """A result.

    Args:
        value: What the model returns.
        outcomes: What leaves, and by which columns, with semicolons between them. `asked str` is what a client gets that asks for `str` of
            what leaves where nothing is declared, if that is not the same as where the model declares `str`.
    """

    value: Any
    outcomes: Mapping[str, str] = field(default_factory=dict)

    def expect(self, column: str) -> str | None:
        """What leaves by this column; None if it is refused."""
        return next((outcome for outcome, columns in self.outcomes.items() if column in columns.split("; ")), None)


ROWS: Final[Mapping[str, Mapping[str, Row]]] = {
    "arrays": {
        "floats": Row(
            np.array([1.5, -2.25]), {"FP64 [2] [1.5, -2.25]": "nothing; FP64", "BYTES pd_json [2] [b'1.5', b'-2.25']": "pd_json"}
        ),
        "FP32 with NaN": Row(
            np.array([1.5, np.nan], "f4"),
            {"FP32 [2] [1.5, nan]": "nothing", "FP64 [2] [1.5, nan]": "FP64", "BYTES pd_json [2] [b'1.5', b'null']": "pd_json"},
        ),
        "FP16": Row(
            np.array([1.5, 65504], "f2"),
            {"FP16 [2] [1.5, 65504.0]": "nothing", "FP64 [2] [1.5, 65504.0]": "FP64", "BYTES pd_json [2] [b'1.5', b'65504.0']": "pd_json"},
        ),
        "big-endian": Row(
            np.array([1, 2], ">i4"),
            {
                "INT32 [2] [1, 2]": "nothing",
                "FP64 [2] [1.0, 2.0]": "FP64",
                "INT8 [2] [1, 2]": "INT8",
                "BYTES pd_json [2] [b'1', b'2']": "pd_json",
            },
        ),
        "of no rank": Row(np.array(1.5), {"FP64 [] [1.5]": "nothing"}),
        "[2, 1]": Row(
            np.array([[1.5], [2]]),
            {
                "FP64 [2, 1] [1.5, 2.0]": "nothing",
                "BYTES pd_json [2] [b'1.5', b'2.0']": "pd_json",
                "BYTES pd_json [2, 1] [b'1.5', b'2.0']": "asked pd_json",
            },
        ),
        "[1, 2]": Row(np.array([[1.5, 2]]), {"FP64 [1, 2] [1.5, 2.0]": "nothing", "BYTES pd_json [1] [b'[1.5,2.0]']": "pd_json"}),
        "whole numbers": Row(
            np.array([1, 200]),
            {"INT64 [2] [1, 200]": "nothing", "FP64 [2] [1.0, 200.0]": "FP64", "BYTES pd_json [2] [b'1', b'200']": "pd_json"},
        ),
        "INT8": Row(
            np.array([1, -2], "i1"),
            {"INT8 [2] [1, -2]": "nothing; INT8", "FP64 [2] [1.0, -2.0]": "FP64", "BYTES pd_json [2] [b'1', b'-2']": "pd_json"},
        ),
        "UINT64": Row(
            np.array([2**64 - 1, 1], "u8"),
            {
                "UINT64 [2] [18446744073709551615, 1]": "nothing; UINT64",
                "FP64 [2] [1.8446744073709552e+19, 1.0]": "FP64",
                "BYTES pd_json [2] [b'18446744073709551615', b'1']": "pd_json",
            },
        ),
        "longdouble": Row(np.array([1.5, 2], np.longdouble)),
        "complex": Row(np.array([1j, 2])),
        "booleans": Row(
            np.array([True, False]),
            {
                "BOOL [2] [True, False]": "nothing",
                "FP64 [2] [1.0, 0.0]": "FP64",
                "INT8 [2] [1, 0]": "INT8",
                "UINT64 [2] [1, 0]": "UINT64",
                "BYTES pd_json [2] [b'true', b'false']": "pd_json",
            },
        ),
        "texts": Row(
            np.array(["a", "é"]),
            {
                "BYTES [2] [b'a', b'\\xc3\\xa9']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'\\xc3\\xa9']": "str",
                "BYTES pd_json [2] [b'\"a\"', b'\"\\xc3\\xa9\"']": "pd_json",
                "BYTES base64 [2] [b'YQ==', b'w6k=']": "asked base64",
            },
        ),
        "bytes": Row(
            np.array([b"a", b"\xff"]), {"BYTES [2] [b'a', b'\\xff']": "nothing; BYTES", "BYTES base64 [2] [b'YQ==', b'/w==']": "base64"}
        ),
        "objects, texts": Row(
            np.array(["a", "é"], object),
            {
                "BYTES [2] [b'a', b'\\xc3\\xa9']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'\\xc3\\xa9']": "str",
                "BYTES pd_json [2] [b'\"a\"', b'\"\\xc3\\xa9\"']": "pd_json",
                "BYTES base64 [2] [b'YQ==', b'w6k=']": "asked base64",
            },
        ),
        "objects, one missing": Row(
            np.array(["a", None], object), {"BYTES pd_json [2] [b'\"a\"', b'null']": "pd_json", "refused": "asked pd_json"}
        ),
        "objects, mixed": Row(np.array(["a", 1], object), {"BYTES pd_json [2] [b'\"a\"', b'1']": "pd_json", "refused": "asked pd_json"}),
        "objects, numbers": Row(np.array([1, 2], object), {"BYTES pd_json [2] [b'1', b'2']": "pd_json", "refused": "asked pd_json"}),
        "StringDType": Row(
            np.array(["a", "é"], np.dtypes.StringDType()),
            {
                "BYTES [2] [b'a', b'\\xc3\\xa9']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'\\xc3\\xa9']": "str",
                "BYTES pd_json [2] [b'\"a\"', b'\"\\xc3\\xa9\"']": "pd_json",
                "BYTES base64 [2] [b'YQ==', b'w6k=']": "asked base64",
            },
        ),
        "days": Row(
            np.array(["2026-01-31", "2026-02-01"], "M8[D]"),
            {"BYTES datetime [2] [b'2026-01-31T00:00:00', b'2026-02-01T00:00:00']": "nothing; BYTES; datetime"},
        ),
        "dates, one missing": Row(
            np.array(["2026-01-31T12:30", "NaT"], "M8[us]"),
            {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'NaT']": "nothing; BYTES; datetime"},
        ),
        "nanoseconds": Row(
            np.array([0, 1], "M8[ns]"),
            {"BYTES datetime [2] [b'1970-01-01T00:00:00.000000000', b'1970-01-01T00:00:00.000000001']": "nothing; BYTES; datetime"},
        ),
        "durations": Row(np.array([1, 2], "m8[s]")),
        "empty": Row(
            np.empty(0),
            {
                "FP64 [0] []": "nothing; FP64",
                "BYTES str [0] []": "str",
                "BYTES base64 [0] []": "base64",
                "BYTES datetime [0] []": "datetime",
                "BYTES pd_json [0] []": "pd_json",
            },
        ),
        "empty [0, 3]": Row(
            np.empty((0, 3), "f4"),
            {
                "FP32 [0, 3] []": "nothing",
                "BYTES str [0] []": "str",
                "BYTES base64 [0] []": "base64",
                "BYTES datetime [0] []": "datetime",
                "BYTES pd_json [0] []": "pd_json",
            },
        ),
        "masked": Row(np.ma.array([1, 2], mask=[True, False])),
    },
    "no lists": {
        "a whole number": Row(
            7,
            {
                "INT64 [1] [7]": "nothing",
                "FP64 [1] [7.0]": "FP64",
                "INT8 [1] [7]": "INT8",
                "UINT64 [1] [7]": "UINT64",
                "BYTES pd_json [1] [b'7']": "pd_json",
            },
        ),
        "a fraction": Row(1.5, {"FP64 [1] [1.5]": "nothing; FP64", "BYTES pd_json [1] [b'1.5']": "pd_json"}),
        "true": Row(
            True,
            {
                "BOOL [1] [True]": "nothing",
                "FP64 [1] [1.0]": "FP64",
                "INT8 [1] [1]": "INT8",
                "UINT64 [1] [1]": "UINT64",
                "BYTES pd_json [1] [b'true']": "pd_json",
            },
        ),
        "NaN": Row(math.nan, {"FP64 [1] [nan]": "nothing; FP64", "BYTES pd_json [1] [b'null']": "pd_json"}),
        "a large whole number": Row(
            2**63,
            {
                "UINT64 [1] [9223372036854775808]": "nothing; UINT64",
                "FP64 [1] [9.223372036854776e+18]": "FP64",
                "BYTES pd_json [1] [b'9223372036854775808']": "pd_json",
            },
        ),
        "a huge whole number": Row(
            2**64,
            {
                "FP64 [1] [1.8446744073709552e+19]": "FP64",
                "BYTES pd_json [1] [b'18446744073709551616']": "pd_json",
                "refused": "asked pd_json",
            },
        ),
        "a text": Row(
            "é",
            {
                "BYTES [1] [b'\\xc3\\xa9']": "nothing; BYTES",
                "BYTES str [1] [b'\\xc3\\xa9']": "str",
                "BYTES pd_json [1] [b'\"\\xc3\\xa9\"']": "pd_json",
                "BYTES base64 [1] [b'w6k=']": "asked base64",
            },
        ),
        "bytes": Row(b"\xff", {"BYTES [1] [b'\\xff']": "nothing; BYTES", "BYTES base64 [1] [b'/w==']": "base64"}),
        "a date": Row(NOON, {"BYTES datetime [1] [b'2026-01-31T12:30:00']": "nothing; BYTES; datetime"}),
        "a day": Row(NOON.date()),
        "a Decimal": Row(Decimal("1.5")),
        "numpy's FP32": Row(
            np.float32(1.5), {"FP32 [1] [1.5]": "nothing", "FP64 [1] [1.5]": "FP64", "BYTES pd_json [1] [b'1.5']": "pd_json"}
        ),
        "numpy's text": Row(
            np.str_("a"),
            {
                "BYTES [1] [b'a']": "nothing; BYTES",
                "BYTES str [1] [b'a']": "str",
                "BYTES pd_json [1] [b'\"a\"']": "pd_json",
                "BYTES base64 [1] [b'YQ==']": "asked base64",
            },
        ),
        "None": Row(None),
    },
    "lists": {
        "floats": Row([1.5, -2.25], {"FP64 [2] [1.5, -2.25]": "nothing; FP64", "BYTES pd_json [2] [b'1.5', b'-2.25']": "pd_json"}),
        "whole numbers": Row(
            [1, 2],
            {
                "INT64 [2] [1, 2]": "nothing",
                "FP64 [2] [1.0, 2.0]": "FP64",
                "INT8 [2] [1, 2]": "INT8",
                "UINT64 [2] [1, 2]": "UINT64",
                "BYTES pd_json [2] [b'1', b'2']": "pd_json",
            },
        ),
        "0 and 1": Row(
            [0, 1],
            {
                "INT64 [2] [0, 1]": "nothing",
                "FP64 [2] [0.0, 1.0]": "FP64",
                "INT8 [2] [0, 1]": "INT8",
                "UINT64 [2] [0, 1]": "UINT64",
                "BYTES pd_json [2] [b'0', b'1']": "pd_json",
            },
        ),
        "large whole numbers": Row(
            [BIG, 1],
            {
                "INT64 [2] [9007199254740993, 1]": "nothing",
                "FP64 [2] [9007199254740992.0, 1.0]": "FP64",
                "UINT64 [2] [9007199254740993, 1]": "UINT64",
                "BYTES pd_json [2] [b'9007199254740993', b'1']": "pd_json",
            },
        ),
        "of UINT64": Row(
            [2**64 - 1, 1],
            {
                "UINT64 [2] [18446744073709551615, 1]": "nothing; UINT64",
                "FP64 [2] [1.8446744073709552e+19, 1.0]": "FP64",
                "BYTES pd_json [2] [b'18446744073709551615', b'1']": "pd_json",
            },
        ),
        "too large": Row(
            [2**64, 1],
            {
                "FP64 [2] [1.8446744073709552e+19, 1.0]": "FP64",
                "BYTES pd_json [2] [b'18446744073709551616', b'1']": "pd_json",
                "refused": "asked pd_json",
            },
        ),
        "too large, and below 0": Row(
            [2**63, -1],
            {
                "FP64 [2] [9.223372036854776e+18, -1.0]": "FP64",
                "BYTES pd_json [2] [b'9223372036854775808', b'-1']": "pd_json",
                "refused": "asked pd_json",
            },
        ),
        "a large whole number and a fraction": Row(
            [BIG, 0.5],
            {
                "FP64 [2] [9007199254740992.0, 0.5]": "FP64",
                "BYTES pd_json [2] [b'9007199254740993', b'0.5']": "pd_json",
                "refused": "asked pd_json",
            },
        ),
        "NaN and infinity": Row(
            [math.nan, -math.inf], {"FP64 [2] [nan, -inf]": "nothing; FP64", "BYTES pd_json [2] [b'null', b'\"-Infinity\"']": "pd_json"}
        ),
        "booleans": Row(
            [True, False],
            {
                "BOOL [2] [True, False]": "nothing",
                "FP64 [2] [1.0, 0.0]": "FP64",
                "INT8 [2] [1, 0]": "INT8",
                "UINT64 [2] [1, 0]": "UINT64",
                "BYTES pd_json [2] [b'true', b'false']": "pd_json",
            },
        ),
        "a boolean and a number": Row(
            [True, 2],
            {
                "INT64 [2] [1, 2]": "nothing",
                "FP64 [2] [1.0, 2.0]": "FP64",
                "INT8 [2] [1, 2]": "INT8",
                "BYTES pd_json [2] [b'true', b'2']": "pd_json",
                "BYTES pd_json [2] [b'1', b'2']": "asked pd_json",
            },
        ),
        "texts": Row(
            ["a", "é"],
            {
                "BYTES [2] [b'a', b'\\xc3\\xa9']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'\\xc3\\xa9']": "str",
                "BYTES pd_json [2] [b'\"a\"', b'\"\\xc3\\xa9\"']": "pd_json",
                "BYTES base64 [2] [b'YQ==', b'w6k=']": "asked base64",
            },
        ),
        "half a character": Row(["a", "\ud800"]),
        "bytes": Row([b"a", b"\xff"], {"BYTES [2] [b'a', b'\\xff']": "nothing; BYTES", "BYTES base64 [2] [b'YQ==', b'/w==']": "base64"}),
        "a text and bytes": Row(
            ["a", b"b"],
            {
                "BYTES [2] [b'a', b'b']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'b']": "str",
                "BYTES base64 [2] [b'YQ==', b'Yg==']": "asked base64",
                "BYTES pd_json [2] [b'\"a\"', b'\"b\"']": "asked pd_json",
            },
        ),
        "dates as texts": Row(
            ["2026-01-31", "2026-02-01"],
            {
                "BYTES [2] [b'2026-01-31', b'2026-02-01']": "nothing; BYTES",
                "BYTES str [2] [b'2026-01-31', b'2026-02-01']": "str",
                "BYTES datetime [2] [b'2026-01-31', b'2026-02-01']": "datetime",
                "BYTES pd_json [2] [b'\"2026-01-31\"', b'\"2026-02-01\"']": "pd_json",
                "BYTES base64 [2] [b'MjAyNi0wMS0zMQ==', b'MjAyNi0wMi0wMQ==']": "asked base64",
            },
        ),
        "base64": Row(
            ["YQ==", "/w=="],
            {
                "BYTES [2] [b'YQ==', b'/w==']": "nothing; BYTES",
                "BYTES str [2] [b'YQ==', b'/w==']": "str",
                "BYTES pd_json [2] [b'\"YQ==\"', b'\"/w==\"']": "pd_json",
                "BYTES base64 [2] [b'WVE9PQ==', b'L3c9PQ==']": "asked base64",
            },
        ),
        "a number and a text": Row([1, "a"], {"BYTES pd_json [2] [b'1', b'\"a\"']": "pd_json", "refused": "asked pd_json"}),
        "missing ones alone": Row([None, None], {"BYTES pd_json [2] [b'null', b'null']": "pd_json", "refused": "asked pd_json"}),
        "a fraction, one missing": Row(
            [1.5, None], {"FP64 [2] [1.5, nan]": "nothing; FP64", "BYTES pd_json [2] [b'1.5', b'null']": "pd_json"}
        ),
        "a whole number, one missing": Row(
            [1, None],
            {
                "FP64 [2] [1.0, nan]": "nothing; FP64",
                "BYTES pd_json [2] [b'1', b'null']": "pd_json",
                "BYTES pd_json [2] [b'1.0', b'null']": "asked pd_json",
            },
        ),
        "a large whole number, one missing": Row(
            [BIG, None],
            {
                "FP64 [2] [9007199254740992.0, nan]": "FP64",
                "BYTES pd_json [2] [b'9007199254740993', b'null']": "pd_json",
                "refused": "asked pd_json",
            },
        ),
        "a text, one missing": Row(["a", None], {"BYTES pd_json [2] [b'\"a\"', b'null']": "pd_json", "refused": "asked pd_json"}),
        "a date, one missing": Row([NOON, None]),
        "dates": Row(
            [NOON, datetime(1, 1, 1)], {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'0001-01-01T00:00:00']": "nothing; BYTES; datetime"}
        ),
        "dates with a zone": Row(
            [ZONED, ZONED], {"BYTES datetime [2] [b'2026-01-31T12:30:00+00:00', b'2026-01-31T12:30:00+00:00']": "nothing; BYTES; datetime"}
        ),
        "days": Row([NOON.date(), NOON.date()]),
        "Decimals": Row([Decimal("1.5"), Decimal(2)]),
        "objects": Row([{"a": 1}, {"a": 2}], {"BYTES pd_json [2] [b'{\"a\":1}', b'{\"a\":2}']": "pd_json", "refused": "asked pd_json"}),
        "empty": Row(
            [],
            {
                "FP64 [0] []": "nothing; FP64",
                "INT8 [0] []": "INT8",
                "UINT64 [0] []": "UINT64",
                "BYTES [0] []": "BYTES",
                "BYTES str [0] []": "str",
                "BYTES base64 [0] []": "base64",
                "BYTES datetime [0] []": "datetime",
                "BYTES pd_json [0] []": "pd_json",
            },
        ),
        "nested [2, 2]": Row(
            [[1, 2], [3, 4]], {"INT64 [2, 2] [1, 2, 3, 4]": "nothing", "BYTES pd_json [2] [b'[1,2]', b'[3,4]']": "pd_json"}
        ),
        "nested [2, 1]": Row(
            [[1.5], [2.0]],
            {
                "FP64 [2, 1] [1.5, 2.0]": "nothing",
                "BYTES pd_json [2] [b'[1.5]', b'[2.0]']": "pd_json",
                "BYTES pd_json [2, 1] [b'1.5', b'2.0']": "asked pd_json",
            },
        ),
        "nested, texts": Row(
            [["a"], ["b"]],
            {
                "BYTES [2, 1] [b'a', b'b']": "nothing",
                "BYTES pd_json [2] [b'[\"a\"]', b'[\"b\"]']": "pd_json",
                "BYTES str [2, 1] [b'a', b'b']": "asked str",
                "BYTES base64 [2, 1] [b'YQ==', b'Yg==']": "asked base64",
                "BYTES pd_json [2, 1] [b'\"a\"', b'\"b\"']": "asked pd_json",
            },
        ),
        "nested, dates": Row([[NOON], [NOON]]),
        "nested, empty": Row(
            [[], []],
            {
                "FP64 [2, 0] []": "nothing",
                "BYTES pd_json [2] [b'[]', b'[]']": "pd_json",
                "BYTES str [0] []": "asked str",
                "BYTES base64 [0] []": "asked base64",
                "BYTES datetime [0] []": "asked datetime",
            },
        ),
        "ragged": Row([[1], [2, 3]], {"BYTES pd_json [2] [b'[1]', b'[2,3]']": "pd_json", "refused": "asked pd_json"}),
        "arrays": Row(
            [np.ones(2), np.zeros(2)],
            {"FP64 [2, 2] [1.0, 1.0, 0.0, 0.0]": "nothing", "BYTES pd_json [2] [b'[1.0,1.0]', b'[0.0,0.0]']": "pd_json"},
        ),
        "numpy's FP32": Row(
            [np.float32(1.5), np.float32(2)],
            {"FP32 [2] [1.5, 2.0]": "nothing", "FP64 [2] [1.5, 2.0]": "FP64", "BYTES pd_json [2] [b'1.5', b'2.0']": "pd_json"},
        ),
        "numpy's texts": Row(
            [np.str_("a"), np.str_("b")],
            {
                "BYTES [2] [b'a', b'b']": "nothing; BYTES",
                "BYTES str [2] [b'a', b'b']": "str",
                "BYTES pd_json [2] [b'\"a\"', b'\"b\"']": "pd_json",
                "BYTES base64 [2] [b'YQ==', b'Yg==']": "asked base64",
            },
        ),
        "pandas' dates": Row(
            [pd.Timestamp(NOON), pd.Timestamp(1)],
            {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'1970-01-01T00:00:00.000000001']": "nothing; BYTES; datetime"},
        ),
        "pandas' dates, one missing": Row([pd.Timestamp(NOON), pd.NaT]),
    },
    "other collections": {
        "a tuple of one": Row(
            [1.5, 2],
            {
                "FP64 [2] [1.5, 2.0]": "nothing; FP64",
                "BYTES pd_json [2] [b'1.5', b'2']": "pd_json",
                "BYTES pd_json [2] [b'1.5', b'2.0']": "asked pd_json",
            },
        ),
        "a range": Row(
            range(2),
            {
                "INT64 [2] [0, 1]": "nothing",
                "FP64 [2] [0.0, 1.0]": "FP64",
                "INT8 [2] [0, 1]": "INT8",
                "BYTES pd_json [2] [b'0', b'1']": "pd_json",
            },
        ),
        "a set": Row({1, 2}),
        "a dict": Row(
            {NAME: [1.5, 2]},
            {
                "FP64 [2] [1.5, 2.0]": "nothing; FP64",
                "BYTES pd_json [2] [b'1.5', b'2']": "pd_json",
                "BYTES pd_json [2] [b'1.5', b'2.0']": "asked pd_json",
            },
        ),
        "a dict within": Row({NAME: {"a": 1}}),
        "a dict, one missing": Row({NAME: None}),
        "a dict of numbers": Row({5: 1}),
    },
    "columns": {
        "floats": Row(pd.Series([1.5, 2]), {"FP64 [2] [1.5, 2.0]": "nothing; FP64", "BYTES pd_json [2] [b'1.5', b'2.0']": "pd_json"}),
        "whole numbers": Row(
            pd.Series([1, 2]),
            {
                "INT64 [2] [1, 2]": "nothing",
                "FP64 [2] [1.0, 2.0]": "FP64",
                "INT8 [2] [1, 2]": "INT8",
                "BYTES pd_json [2] [b'1', b'2']": "pd_json",
            },
        ),
        "texts": Row(
            pd.Series(["a", "b"], dtype=object),
            {
                f"BYTES str [2] [b'a', b'b']{OF_OBJECTS}": "nothing; BYTES; str; pd_json",
                "BYTES pd_json [2] [b'\"a\"', b'\"b\"']": "asked pd_json",
            },
        ),
        "a text, one missing": Row(
            pd.Series(["a", None], dtype=object),
            {f"BYTES pd_json [2] [b'\"a\"', b'null']{OF_OBJECTS}": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "string": Row(
            pd.Series(["a", None], dtype="string"),
            {"BYTES pd_json [2] [b'\"a\"', b'null'] pd_dtype string": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "Int64": Row(
            pd.Series([1, 2], dtype="Int64"),
            {
                "INT64 [2] [1, 2] pd_dtype Int64": "nothing",
                "FP64 [2] [1.0, 2.0]": "FP64",
                "INT8 [2] [1, 2]": "INT8",
                "BYTES pd_json [2] [b'1', b'2']": "pd_json",
            },
        ),
        "Int64, one missing": Row(
            pd.Series([1, None], dtype="Int64"),
            {"BYTES pd_json [2] [b'1', b'null'] pd_dtype Int64": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "boolean, one missing": Row(
            pd.Series([True, None], dtype="boolean"),
            {"BYTES pd_json [2] [b'true', b'null'] pd_dtype boolean": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "dates": Row(
            pd.Series([NOON, NOON], dtype="M8[us]"),
            {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'2026-01-31T12:30:00'] pd_dtype datetime64[us]": "nothing; BYTES; datetime"},
        ),
        "a date, one missing": Row(
            pd.Series([NOON, None], dtype="M8[us]"),
            {"BYTES datetime [2] [b'2026-01-31T12:30:00', b'NaT'] pd_dtype datetime64[us]": "nothing; BYTES; datetime"},
        ),
        "dates in Berlin": Row(
            pd.Series([NOON, NOON], dtype="M8[us]").dt.tz_localize("Europe/Berlin"),
            {
                "BYTES datetime [2] [b'2026-01-31T11:30:00+00:00', b'2026-01-31T11:30:00+00:00'] "
                "pd_dtype datetime64[us, Europe/Berlin]": "nothing; BYTES; datetime"
            },
        ),
        "categories": Row(
            pd.Series(["a", "b"], dtype="category"),
            {
                "BYTES str [2] [b'a', b'b'] "
                'pd_categories {"datatype":"BYTES","data":["a","b"],"content_type":"str"} '
                "pd_dtype category": "nothing; BYTES; str; pd_json",
                "BYTES pd_json [2] [b'\"a\"', b'\"b\"']": "asked pd_json",
            },
        ),
        "mixed": Row(
            pd.Series([1, "a"], dtype=object),
            {f"BYTES pd_json [2] [b'1', b'\"a\"']{OF_OBJECTS}": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "bytes": Row(pd.Series([b"a", b"\xff"], dtype=object), {"BYTES base64 [2] [b'YQ==', b'/w==']": "nothing; BYTES; base64"}),
        "a fraction, one missing": Row(
            pd.Series([1.5, None], dtype=object),
            {f"BYTES pd_json [2] [b'1.5', b'null']{OF_OBJECTS}": "nothing; BYTES; str; pd_json", "refused": "asked str"},
        ),
        "empty": Row(
            pd.Series([], dtype=object),
            {
                f"BYTES str [0] []{OF_OBJECTS}": "nothing; BYTES; str; pd_json",
                "BYTES base64 [0] []": "base64",
                "BYTES datetime [0] []": "datetime",
                "BYTES pd_json [0] []": "asked pd_json",
            },
        ),
        "durations": Row(pd.Series([timedelta(1), timedelta(2)])),
    },
}
"""The rows, by the kind of the result and by its name."""
