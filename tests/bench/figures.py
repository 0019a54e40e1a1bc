"""Draws the figures that are kept in the documentation: `python -m tests.bench.figures`. Knows matplotlib, and measures nothing.

Each picture is of one table: what a benchmark has printed is pasted there, and drawn here, so that both say the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HERE: Final = Path(__file__).parent
_BENCH: Final = _HERE / "README.md"
_ONE_COPY: Final = _HERE.parents[1] / "examples/guide/one-copy.md"

_SHOWN_ROWS: Final = {"digits": "scikit-learn", "ONNX": "ONNX", "frame 1x39": "data frame", "JSON 1x4": "returns its input"}
_SHOWN_SERVERS: Final = {
    "def": "oip_asgi",
    "FastAPI by hand": "FastAPI by hand",
    "Triton": "Triton",
    "MLServer": "MLServer",
    "KServe": "KServe",
}
_OURS: Final = "#1f6feb"
_COLORS: Final = {
    "oip_asgi": _OURS,
    "max_batch_size=64": _OURS,
    "plain": "#8ab4f8",
    "FastAPI by hand": "#8c959f",
    "Triton": "#2da44e",
    "MLServer": "#bf8700",
    "KServe": "#a475f9",
}

Table = list[dict[str, str]]


def read_table(file: Path, beginning: str) -> Table:
    """The rows of the one table of a file whose head begins with a text, each by the names of the columns."""
    [found] = re.findall(rf"^\| {re.escape(beginning)}.*\n\|[-| ]+\n((?:\|.*\n?)+)", file.read_text(), re.MULTILINE)
    head = next(line for line in file.read_text().splitlines() if line.startswith(f"| {beginning}"))
    names = [cell.strip() for cell in head.strip("|").split("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def read_number(cell: str) -> float:
    """The first number of a cell, 0 if it has none, as where a server was not measured."""
    found = re.match(r"[\d,.]+", cell)
    return float(found[0].replace(",", "")) if found else 0.0


def _draw_groups(axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(groups))]
        bars = axes.bar(places, values, width, label=name, color=_COLORS[name])
        axes.bar_label(bars, [f"{value:,.0f}" if value else "" for value in values], fontsize=6, rotation=90, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.margins(y=0.18)
    axes.legend(fontsize=8, frameon=False)


def draw_rates(axes: Axes) -> None:
    rows = {row["row"]: row for row in read_table(_BENCH, "row                | echo")}
    series = {shown: [read_number(rows[row][name]) for row in _SHOWN_ROWS] for name, shown in _SHOWN_SERVERS.items()}
    _draw_groups(axes, list(_SHOWN_ROWS.values()), series)
    axes.set_title("Requests per second, one core, eight connections (2026-11-24, AMD EPYC)", fontsize=9)


def draw_refused(axes: Axes) -> None:
    rows = read_table(_BENCH, "198 malformed requests")
    servers = [row["198 malformed requests"] for row in rows]
    left = [0.0] * len(rows)
    for kind, color in {"refused, 4xx": "#2da44e", "accepted": "#bf8700", "answered 5xx": "#cf222e", "crashed": "#24292f"}.items():
        values = [read_number(row[kind]) for row in rows]
        bars = axes.barh(servers, values, left=left, color=color, label=kind)
        axes.bar_label(bars, [f"{value:.0f}" if value else "" for value in values], label_type="center", color="white", fontsize=8)
        left = [before + value for before, value in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.legend(fontsize=8, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    axes.set_title("What 198 malformed requests are answered (2026-11-20)", fontsize=9)


def draw_batching(axes: Axes) -> None:
    rows = {row["requests a second; p99 in ms"]: row for row in read_table(_BENCH, "requests a second; p99")}
    ways = {
        "plain": "plain",
        "batched; rows a call": "max_batch_size=64",
        "MLServer 1.7.1": "MLServer",
        "Triton 2.51, Python backend": "Triton",
    }
    columns = {"mlp, 64 connections": "network (MLP)", "forest, 64": "boosted forest"}
    series = {shown: [read_number(rows[name][column].split(";")[0]) for column in columns] for name, shown in ways.items()}
    _draw_groups(axes, list(columns.values()), series)
    axes.set_title("Requests per second with 64 connections (2026-11-24, one core)", fontsize=9)


def draw_memory(axes: Axes) -> None:
    rows = read_table(_ONE_COPY, "four workers")
    bars = axes.barh(
        [row["four workers"] for row in rows], [read_number(row["memory beyond the workers' own"]) for row in rows], color=_OURS
    )
    axes.bar_label(bars, fmt="{:,.0f} MB", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title("Memory of a model of 205 MB in four workers, beyond their own", fontsize=9)


FIGURES: Final[Mapping[str, tuple[Any, tuple[float, float]]]] = {
    "rates.png": (draw_rates, (7.5, 3.6)),
    "refused.png": (draw_refused, (7.5, 2.6)),
    "batching.png": (draw_batching, (7.5, 3.2)),
    "memory.png": (draw_memory, (7.5, 1.6)),
}
"""The pictures beside this file: what draws each, and its size in inches."""


def draw(name: str, file: Path) -> None:
    """Write one picture as PNG."""
    from matplotlib.figure import Figure

    function, size = FIGURES[name]
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    function(axes)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    for each in FIGURES:
        draw(each, _HERE / each)
