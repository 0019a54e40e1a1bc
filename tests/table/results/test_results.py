"""A result leaves as `cells.py` says, whichever way it goes out: each row is asked with each column."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pandas as pd
import pytest

from tests.table.results.cells import DECLARED, REFUSED, ROWS
from tests.table.results.fields import CLASSES, FIELDS
from tests.table.results.ways import NAME, Ways

ASKED: Final = [name for name, spec in DECLARED.items() if spec.content_type is not None]
"""The columns whose content type a client may ask for, where the model declares nothing."""

WRITTEN: Final = re.compile(r"(?:(\w+): )?(\w+)(?: (\w+))? \[[\d, ]*\] (\[.*?\])(?: pd_.*)?")
"""An outcome: the name, the datatype, the content type, the elements."""


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    with Ways() as ways:
        yield ways


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("column", ["nothing", *DECLARED])
def test_a_result_leaves_as_the_same_by_each_way(ways: Ways, column: str, kind: str) -> None:
    ways.declare([DECLARED[column]] if column in DECLARED else [])
    assert _find_wrong(ways, kind, column, None) == []


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("column", ASKED)
def test_what_a_client_asks_for_is_written_as_what_is_declared(ways: Ways, column: str, kind: str) -> None:
    ways.declare([])
    assert _find_wrong(ways, kind, column, column) == []


@pytest.mark.parametrize("kind", ROWS)
def test_a_content_type_that_a_result_cannot_have_is_the_clients_mistake(ways: Ways, kind: str) -> None:
    ways.declare([])
    for name, row in ROWS[kind].items():
        if row.expect("nothing") is not None and name != "arrays":
            assert "500" not in ways.ask(row.value, "np").values(), name


@pytest.mark.parametrize("library", CLASSES)
def test_rows_of_a_class_leave_as_columns(ways: Ways, library: str) -> None:
    wrong = []
    for annotation, row in FIELDS.items():
        cls = CLASSES[library](annotation)
        ways.declare(annotation=list[cls])  # type: ignore[valid-type]  # made above
        for way, outcome in ways.ask([cls(**{NAME: value}) for value in row.value]).items():
            expected = _expect(row.expect("nothing"), way)
            if outcome != expected:
                wrong.append(f"{annotation}, by {way}: {outcome} and not {expected}")
    assert wrong == []


def _find_wrong(ways: Ways, kind: str, column: str, asked: str | None) -> list[str]:
    wrong = []
    for name, row in ROWS[kind].items():
        right = row.expect(column if asked is None or row.expect(f"asked {asked}") is None else f"asked {asked}")
        for value in (row.value, pd.DataFrame({NAME: row.value})) if kind == "columns" else (row.value,):
            for way, outcome in ways.ask(value, asked).items():
                is_unclear = name == "arrays" and way == "batch" and (asked is not None or column == "nothing")
                is_fault = is_unclear or asked is None or row.expect("nothing") is None
                # rows or outputs: nothing shows it
                expected = _expect(None if is_unclear else right, way, "500" if is_fault else "400")
                if outcome != expected:
                    wrong.append(f"{kind}, {name}, {column}, by {way}: {outcome} and not {expected}")
    return wrong


def _expect(right: str | None, way: str, refusal: str = "500") -> str:
    """What is right by this way."""
    if right in (None, REFUSED):
        return refusal
    assert right is not None
    if way in ("binary", "gRPC", "Python"):
        return right
    outputs: dict[str, Any] = {}
    for each in right.split("; "):
        matched = WRITTEN.fullmatch(each)
        assert matched is not None
        elements = eval(matched[4], {"nan": None, "inf": float("inf")})
        if any(type(element) is bytes and not _is_text(element) for element in elements):
            return "400"  # no JSON text has these bytes
        outputs[matched[1] or NAME] = [_generate(element, matched[3]) for element in elements]
    if way in ("generate", "generate_stream"):
        return json.dumps({name: data[0] if len(data) == 1 else data for name, data in outputs.items()})
    return right


def _is_text(element: bytes) -> bool:
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True


def _generate(element: Any, content_type: str | None) -> Any:
    """An element as `generate` writes it: where it is JSON text already, as that; and a missing date as null."""
    if type(element) is bytes:
        return json.loads(element) if content_type == "pd_json" else None if element == b"NaT" else element.decode()
    return "-Infinity" if element == float("-inf") else element
