"""What single functions of the page's scripts make of what is typed, sent and answered."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.support.node import Scripts, needs_node

pytestmark = needs_node

X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
Y = {"name": "y", "shape": [1], "datatype": "FP32", "data": [3]}
ROWS_OF_LISTS = [["1", "2"], ["3", "4"]]
MOST = 2**63


def reading(second: float, count: int) -> dict[str, Any]:
    """What the server says at a second: how many requests there were, of half a second each."""
    histogram = {"bounds": [1], "counts": [count, 0], "sum": count / 2}
    return {"now": second * 1000, "durations": histogram, "queues": histogram}


def readings(*counts: int | None) -> list[Any]:
    return [None if count is None else reading(place, count) for place, count in enumerate(counts)]


def change(known: list[Any], newest: tuple[float, int]) -> tuple[Any, Any]:
    return [each and reading(*each) for each in known], reading(*newest)


def tensor(datatype: str, data: list[Any], **more: Any) -> dict[str, Any]:
    return {"datatype": datatype, "data": data, **more}


def texts(*data: str) -> dict[str, Any]:
    return tensor("BYTES", [*data], parameters={"content_type": "pd_json"})


OF_WORDS: dict[str, list[tuple[Any, Any]]] = {
    # what is typed
    "String(cells.numberIn(given))": [
        *((word, word) for word in ("1", "-2.5e3", "9007199254740993", "true", "NaN", "-Infinity")),
        *(("+3", "3"), (".5", "0.5"), ("007", "7"), ("2.", "2"), ("+9007199254740993", "9007199254740993")),
    ],
    "cells.numberIn(given)": [
        *(("True", True), ("False", False), ("None", None), ("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")),
        *((word, None) for word in ("x", "1,5", "0x1", "", "NAN", "1_000")),
    ],
    "[true, false].map((pairs) => cells.wordsOf(given, pairs))": [
        (text, [ROWS_OF_LISTS] * 2)
        for text in ("[[1,2],[3,4]]", "[[1, 2], [3, 4]]", "[[1 2]\n [3 4]]", "[[1,\n  2],\n [3,\n  4]]")
    ],
    "cells.numbersOf(given)": [
        ([["a", "b"], ["1", " 2.5"], ["", "-3e2"]], [[1, 2.5], [None, -300]]),  # JSON has no NaN
        ([["1", "2"]], [[1, 2]]),
        ([["1", "2"], ["3"]], "line 2 has 1 number, and the first 2"),
        ([["a", "b"]], "it has no numbers"),
    ],
    "(tensors.bytesOf(given[0], cells.numbersOf([['1', given[1]]]).flat()), null)": [
        *((each, None) for each in (("INT8", "-128"), ("UINT8", "255"), ("INT64", f"{MOST - 1}"), ("UINT64", f"{2 * MOST - 1}"))),
        (("FP32", ""), None),
        (("INT8", "128"), "128 is no INT8"),
        (("UINT8", "-1"), "-1 is no UINT8"),
        (("INT32", ""), "NaN is no INT32"),
        (("INT64", f"{MOST}"), f"{MOST} is no INT64"),
    ],
    "request.withMissing(given)": [
        (tensor("FP64", [1.5, None]), tensor("FP64", [1.5, None])),
        (tensor("BYTES", ["2021-03-01T00:00:00", None], contentType="datetime"), tensor("BYTES", ["2021-03-01T00:00:00", "NaT"])),
        (tensor("INT64", [3, None]), texts("3", "null")),
        (tensor("BYTES", ["Bern", None], contentType="str"), texts('"Bern"', "null")),
        (tensor("INT64", [3]), tensor("INT64", [3])),
    ],
    "[json.mistakeIn(given).slice(0, 24), json.isJSON(given)]": [
        *((text, ["The JSON has a mistake: ", False]) for text in ('{"inputs": [}', "", '{"a": 1', "[1, 2,]", "{a: 1}", "[NaN]", "['a']")),
        *((text, ["", True]) for text in (r'{"a": [1, -2.5e+3, "\u00e9\\\"", true, null, {}, []]}', " 1 ", '"a"', "[]\n", "null")),
    ],
    "json.onLines(given)": [
        (
            '{"id":"a, b", "inputs":[{"name":"x","data":[1,2]},\n\n{}]}',
            '{\n  "id": "a, b",\n  "inputs": [\n    {"name": "x", "data": [1, 2]},\n    {}\n  ]\n}',
        ),
        ('{"x": [[1], []], "y": {}}', '{\n  "x": [[1], []],\n  "y": {}\n}'),
        *(('[{"x": 1}, {"x": null}]',) * 2, ("{}", "{}")),
    ],
    "[json.compact(given), json.literal(given)]": [
        (
            '{"a b": [1.50, true],\n "c": "true \\" \\/ \\u00e9 , "}',
            ['{"a b":[1.50,true],"c":"true \\" \\/ \\u00e9 , "}', '{"a b": [1.50, True],\n     "c": "true \\" / é , "}'],
        ),
    ],
    "json.pretty(given)": [
        ({"a": [], "b": {}, "c": [[1, "x"], None]}, '{\n  "a": [],\n  "b": {},\n  "c": [[1, "x"], null]\n}'),
        ([{"a": 1}, 2], '[\n  {\n    "a": 1\n  },\n  2\n]'),
        ([10**9] * 9, "[\n  " + ", ".join(["1000000000"] * 7) + ",\n  1000000000, 1000000000\n]"),
    ],
    # requests
    "request.tensorsOf(given[0], given[1])?.map(({ name }) => name) ?? null": [
        ((json.dumps(body), action), names)
        for body, action, names in [
            ({"inputs": [X, Y]}, "infer", ["x", "y"]), ({"id": "a"}, "infer", []),
            ({"x": [[1, 2]], "y": 3}, "generate", ["x", "y"]), ([{"x": 1}, {"y": 2}], "generate", ["x", "y"]),
            (None, "infer", None), (5, "generate", None), ([], "infer_stream", None), ({"inputs": [None]}, "infer", None),
            ({"inputs": [{"name": 5}]}, "infer", None),
        ]
    ],
    "JSON.parse(request.bodyOf([given[2]], given[1], request.besides(given[0], given[1], ['x'])))": [
        ((json.dumps({"id": "a", "inputs": [X, Y], "outputs": []}), "infer", {**X, "data": [5, 6]}),
         {"id": "a", "inputs": [{**X, "data": [5, 6]}, Y], "outputs": []}),
        ((json.dumps({"id": "a", "x": [[1, 2]], "y": 3}), "generate", {**X, "data": [5, 6]}), {"id": "a", "x": [5, 6], "y": 3}),
    ],
    # words and numbers that are shown
    "cells.typeOf(given[0], given[1] ?? undefined)": [
        *((("BYTES", content_type), "text") for content_type in (None, "str", "np")),
        *((("BYTES", "datetime"), "date"), (("BYTES", "base64"), "BYTES base64"), (("FP32", None), "FP32")),
    ],
    "prose.partsOf(given)": [
        ("plain", [["plain", "plain"]]),
        ("a **b c** d", [["plain", "a "], ["strong", "b c"], ["plain", " d"]]),
        ("*a*, `b*c*`", [["em", "a"], ["plain", ", "], ["code", "b*c*"]]),
        ("``x`` of *args and **kwargs", [["code", "x"], ["plain", " of *args and **kwargs"]]),
        *((text, [["plain", text]]) for text in ("2 * 3 * 4", "a*b*c", "<b>no</b>")),
    ],
    "words.duration(given)": [
        (None, "\u2013"), (0.0000123, "0.0123\xa0ms"), (0.0999, "99.9\xa0ms"), (0.09996, "100\xa0ms"), (1.05, "1.05\xa0s"),
        (120, "120\xa0s"),
    ],
    "words.lately(given)": [
        (seconds, f"in the last {text}")
        for seconds, text in [
            (0, "second"), (0.9, "second"), (19.2, "20 s"), (119, "119 s"), (119.8, "2\u00a0minutes"), (600, "10\u00a0minutes"),
        ]
    ],
    "words.counted(given, 'row')": [(0, "0 rows"), (1, "1 row"), (1234, "1,234 rows")],
    "words.short(given)": [
        (3, "3"), (12345678901, "12345678901"), (0.5, "0.5"), (1 / 3, "0.333333"), (-1234.56789, "-1234.57"), (1.5e-9, "1.5e-9"),
        (246913578.0, "246913578"), (12345678.9, "12345678.9"), (1234567.891, "1234567.9"), (123456.789, "123456.8"),
    ],
    "words.listed([...Array(given).keys()].map(String))": [
        (2, "0, 1"), (20, ", ".join(map(str, range(20)))), (1000, f"{', '.join(map(str, range(20)))}, … (1,000 in all)"),
    ],
    "tensors.digitsOf(given[1], given[0])": [
        *((("FP64", number), f"{number:.0f}") for number in (246913578.0, 1234567890123.0)),
        *((("FP64", number), repr(number)) for number in (1 / 3, float(np.float32(0.1)))),
        *((("FP32", float(np.float32(number))), text) for number, text in [
            (0.1, "0.1"), (1 / 3, "0.33333334"), (16777216.0, "16777216"), (123456.789, "123456.79"),
        ]),
        (("FP32", 0.123456789012), "0.123456789012"),  # was sent, and is no number of 32 bits
        *((("FP32", "NaN"), "NaN"), (("FP32", None), "")),
    ],
    "described.wordsOf({ content_type: given })": [
        (name, [["content_type", "Content type, if a request names none", words]])
        for name, words in [("pd", "a data frame (pd)"), ("str", "texts (str)"), ("picture", "picture"), ("toString", "toString")]
    ],
    # several processes are known by counters that go down again
    "numbers.areOfSeveral(given)": [
        (readings(4, 5, 0, 1), False), (readings(4, 90, 5, 91, 6), True), (readings(4, None, 1, None, 0), False), ([], False),
    ],
    # what is recent began with the first reading since which all is known
    "(({ seconds, durations }) => [seconds, durations.counts[0], durations.sum])(numbers.recentChange(given[0], given[1]) ?? none)": [
        (change([(0, 4)], (0, 4)), [0, 0, 0]), (change([(0, 4), (2, 5), (4, 9)], (5, 10)), [5, 6, 3]),
        (change([(0, 4), None, (4, 9), (6, 9)], (6, 9)), [2, 0, 0]), (change([(0, 9), (2, 1), (4, 2)], (4, 2)), [2, 1, 0.5]),
    ],
    "numbers.recentChange(given[0], given[1]) ?? null": [
        (change([], (1, 4)), None), (change([(0, 4), (2, 5), None], (5, 10)), None), (change([(0, 9)], (2, 1)), None),
    ],
}  # fmt: skip


@pytest.mark.parametrize("expression", OF_WORDS)
def test_what_a_function_makes_of_each_value(scripts: Scripts, expression: str) -> None:
    cases = OF_WORDS[expression]
    found = scripts.values_of(expression, [given for given, _ in cases])
    assert [(given, each) for (given, _), each in zip(cases, found, strict=True)] == cases


@pytest.mark.parametrize(
    "more", [{"outputs": {}}, {"outputs": [None]}, {"inputs": [{**X, "shape": {}}]}, {"inputs": [{**X, "datatype": 'FP32"); print("'}]}]
)
def test_code_of_clients_is_made_of_requests_of_the_protocol_alone(scripts: Scripts, more: Any) -> None:
    asked = """Object.entries(snippets.LANGUAGES).filter(([, { make }]) => make(
        { name: "m", action: "infer", url: "http://h/v2/models/m/infer", headers: {}, body: given, parts: [], sources: [], streams: false }
    )).map(([name]) => name)"""
    every = ["curl", "oip_asgi", "httpx2", "tritonclient", "fetch", "gRPC"]
    assert scripts.values_of(asked, [json.dumps({"inputs": [X]}), json.dumps({"inputs": [X], **more})]) == [
        every,
        ["curl", "httpx2", "fetch"],
    ]
