"""The pictures of what was measured: each can be drawn from the table that is kept, stands in a page, and has the numbers of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.figures import FIGURES, draw, read_number, read_table
from tests.support.readme import README, TEXT

BENCH = Path(__file__).parent


@pytest.mark.parametrize("name", FIGURES)
def test_each_picture_can_be_drawn_and_is_shown(name: str, tmp_path: Path) -> None:
    assert f"tests/bench/{name}" in TEXT
    kept = (BENCH / name).read_bytes()
    assert kept.startswith(b"\x89PNG")
    assert len(kept) < 60_000
    pytest.importorskip("matplotlib")
    draw(name, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_readme_and_the_table_say_the_same_of_malformed_requests() -> None:
    for row in read_table(BENCH / "README.md", "198 malformed requests"):
        refused, accepted, failed, crashed = [read_number(row[name]) for name in ("refused, 4xx", "accepted", "answered 5xx", "crashed")]
        assert refused + accepted + failed + crashed == 198
        server = row["198 malformed requests"]
        if server != "oip_asgi":
            assert f"{server} answered {failed:.0f} with 5xx" in README.replace("\n", " ")
            assert f"accepted {accepted:.0f}" in README.replace("\n", " ")


def test_the_numbers_of_a_cell() -> None:
    assert [read_number(cell) for cell in ("11,750", "2,077; 49", "", "fails: 422", "750 MB", "0.10")] == [11750, 2077, 0, 0, 750, 0.1]
