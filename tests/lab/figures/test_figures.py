"""The guide's figures are what is drawn, and what is drawn is what the code says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tests.lab.figures.__main__ import FIGURES, FOLDER
from tests.lab.figures.batch import plan
from tests.lab.figures.states import PLACES, list_moves
from tests.support.inside.models import TRANSITIONS

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_is_drawn(name: str) -> None:
    drawn = str(FIGURES[name]())
    assert (FOLDER / f"{name}.svg").read_text() == drawn, "run python -m tests.lab.figures"
    assert "prefers-color-scheme: dark" in drawn
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_each_figure_stands_in_the_guide() -> None:
    pages = "".join(page.read_text() for page in FOLDER.parent.glob("*.md"))
    assert [name for name in FIGURES if f"](figures/{name}.svg)" not in pages] == []
    assert {file.stem for file in FOLDER.iterdir()} == set(FIGURES)


def test_the_arrows_are_those_of_the_table_of_states() -> None:
    moves = {(before, event, after) for (before, event), (_, after) in TRANSITIONS.items() if before != after}
    assert list_moves() == moves
    assert set(PLACES) == {state for state, _ in TRANSITIONS}


def test_requests_that_come_during_a_call_share_the_next_one() -> None:
    assert plan((0, 20, 55, 80, 150), 0) == [(0, [0]), (100, [1, 2, 3]), (200, [4])]
    assert plan((0, 20, 55), 40) == [(40, [0, 1]), (140, [2])]
