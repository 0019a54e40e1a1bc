"""What is kept of measurements: it can be drawn, stands in a page, and its numbers are those of the tables and of the README."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab.bench import figures
from tests.lab.bench.figures import FIGURES, draw, keep, read
from tests.lab.bench.load import Load
from tests.lab.bench.measure import Cell, Measurement
from tests.lab.bench.refused import KINDS, OURS, malformed_rows, server
from tests.lab.bench.report import values
from tests.lab.bench.rows import rows
from tests.support.processes import ROOT
from tests.support.readme import README, TEXT
from tests.support.ways import ways_into

BENCH = Path(__file__).parent


def read_cells(file: Path, *beginnings: str) -> dict[tuple[str, str], str]:
    """The cells of the tables whose heads begin so, by row and column."""
    found = {}
    lines = file.read_text().splitlines()
    for beginning in beginnings:
        [place] = [number for number, line in enumerate(lines) if line.startswith(f"| {beginning}")]
        names = [cell.strip() for cell in lines[place].strip("|").split("|")]
        for line in lines[place + 2 :]:
            if not line.startswith("|"):
                break
            row, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.update({(row, name): cell for name, cell in zip(names[1:], cells, strict=True)})
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_each_picture_can_be_drawn_and_is_shown(name: str, tmp_path: Path) -> None:
    assert f"tests/lab/bench/{name}.png" in TEXT
    assert f"`{read(name).command}`" in (BENCH / "README.md").read_text()
    kept = (BENCH / f"{name}.png").read_bytes()
    assert kept.startswith(b"\x89PNG")
    assert len(kept) < 60_000
    pytest.importorskip("matplotlib")
    draw(name, read(name), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_measured_is_kept_and_drawn_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figures, "HERE", tmp_path)
    (tmp_path / "kept").mkdir()
    [row] = rows(["digits"])
    cells = [Cell(row, count, {"def": [Measurement(Load(150, 1.0, 1.0, 1.0), 0.004)], "Triton": "fails"}) for count in (1, 8)]
    keep("rates", "python -m somebody", values(cells, ["def", "Triton", "KServe"]))
    kept = json.loads((tmp_path / "kept/rates.json").read_text())
    assert kept["values"] == {"digits": {"def": 150.0, "Triton": None}}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept["day"])
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_the_tables_say_what_is_kept() -> None:
    for kept, table in (("rates", "row                | echo"), ("cpu", "CPU of a request, us |")):
        cells = read_cells(BENCH / "README.md", table)
        for row, found in read(kept).values.items():
            for name, value in found.items():
                cell = cells[row, "FastAPI by hand" if name == "FastAPI" else name]
                assert cell == (f"{value:,.0f}" if value else cell)
    memory = read_cells(ROOT / "examples/guide/one-copy.md", "four workers")
    for row, found in read("memory").values.items():
        assert memory[row, "memory beyond the workers' own"] == f"{found['MB']} MB"


def test_the_malformed_requests_are_as_many_as_is_said_and_every_host_refuses_them() -> None:
    malformed, kept = malformed_rows(), read("refused").values
    assert f"{len(malformed)} malformed requests" in README
    table = read_cells(BENCH / "README.md", f"{len(malformed)} malformed requests")
    for name, found in kept.items():
        assert sum(filter(None, found.values())) == len(malformed)
        assert {kind: table[name, kind] for kind in KINDS} == {kind: f"{found[kind]}" for kind in KINDS}
    assert kept[OURS]["refused, 4xx"] == len(malformed)
    ways = ways_into(server)
    assert len(ways) > 5
    for name, way in ways.items():
        assert {row.name: way(row.request).status // 100 for row in malformed} == {row.name: 4 for row in malformed}, name
