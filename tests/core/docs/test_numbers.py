"""What the page makes of the numbers that it reads again and again: what happened in the time that it knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.node import Scripts, needs_node

pytestmark = needs_node


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def reading(second: float, count: int) -> dict[str, Any]:
    """What the server says at a second: how many requests there were, of half a second each."""
    histogram = {"bounds": [1], "counts": [count, 0], "sum": count / 2}
    return {"now": second * 1000, "durations": histogram, "queues": histogram}


@pytest.mark.parametrize(
    ("readings", "newest", "recent"),
    [
        ([], (1, 4), None),
        ([(0, 4)], (0, 4), (0, 0)),
        ([(0, 4), (2, 5), (4, 9)], (5, 10), (5, 6)),
        ([(0, 4), None, (4, 9), (6, 9)], (6, 9), (2, 0)),
        ([(0, 4), (2, 5), None], (5, 10), None),
        ([(0, 9), (2, 1), (4, 2)], (4, 2), (2, 1)),
        ([(0, 9)], (2, 1), None),
    ],
    ids=["nothing yet", "the first", "all known", "a gap", "nothing since a gap", "one that began anew", "one that begins anew"],
)
def test_what_is_recent_began_with_the_first_reading_since_which_all_is_known(
    scripts: Scripts, readings: list[tuple[int, int] | None], newest: tuple[int, int], recent: tuple[int, int] | None
) -> None:
    given = [each and reading(*each) for each in readings]
    found = scripts.value_of("statistics.recentChange(readings, newest)", readings=given, newest=reading(*newest))
    assert (found and (found["seconds"], found["durations"]["counts"][0])) == recent
    if recent:
        assert found["durations"]["sum"] == recent[1] / 2


@pytest.mark.parametrize(
    ("counts", "expected"), [([4, 5, 0, 1], False), ([4, 90, 5, 91, 6], True), ([4, None, 1, None, 0], False), ([], False)]
)
def test_several_processes_are_known_by_counters_that_go_down_again(scripts: Scripts, counts: list[int | None], expected: bool) -> None:
    readings = [None if count is None else reading(place, count) for place, count in enumerate(counts)]
    assert scripts.value_of("statistics.areOfSeveral(readings)", readings=readings) is expected
