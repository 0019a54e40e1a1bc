"""A plot of the table: for each row one bar for each server, as a part of what the row's floor does. Knows matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from .measure import Cell
from .servers import Server

TARGETS: Final = {
    "JSON 1x4": 0.80,
    "JSON 1x784": 0.45,
    "JSON 1000x1000": 0.15,
    "binary 1x4": 0.85,
    "binary 1x150528": 0.90,
    "binary 64 MiB": 0.90,
    "gRPC 1x4": 0.75,
    "gRPC 1x150528": 0.90,
}
"""What the design promises of each row, drawn as a line."""

_SHOWN: Final = 8
"""Of the numbers of connections, the one that is drawn where a row has it."""


def draw(cells: Sequence[Cell], servers: Sequence[Server], file: Path) -> None:
    """Write the plot as PNG."""
    cells = _one_for_each_row(cells)
    compared = [server for server in servers if server.name not in server.floors.values()]
    figure = Figure(figsize=(11, 1.5 + sum(0.6 + 0.22 * len(_bars(cell, compared)) for cell in cells)), layout="constrained")
    axes = figure.add_subplot()
    place, ticks, labels = 0.0, [], []
    for cell in cells:
        bars = _bars(cell, compared)
        for number, (index, share) in enumerate(bars):
            axes.barh(place + number, share, color=f"C{index % 10}", hatch="//" if index >= 10 else None)
            label = f" {share:.2f} {compared[index].name}"
            axes.annotate(
                label, (share, place + number), va="center", fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            )
        target = TARGETS.get(cell.row.name)
        if target is not None:
            axes.vlines(target, place - 0.6, place + len(bars) - 0.4, colors="black", linestyles="dashed", linewidth=1)
        ticks.append(place + (len(bars) - 1) / 2)
        labels.append(f"{cell.row.name}\n{cell.connections} connection{'s' * (cell.connections > 1)}")
        place += len(bars) + 1
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.set_ylim(place - 0.5, -1)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("requests per second as a part of a bare echo of the same bytes (dashed: what is aimed at)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def _one_for_each_row(cells: Sequence[Cell]) -> list[Cell]:
    by_row: dict[str, Cell] = {}
    for cell in cells:
        if cell.row.name not in by_row or cell.connections == _SHOWN:
            by_row[cell.row.name] = cell
    return list(by_row.values())


def _bars(cell: Cell, servers: Sequence[Server]) -> list[tuple[int, float]]:
    """The place of each server that has a bar in this row, and the bar's length."""
    shares = [cell.ratio(server.name, server.floors.get(cell.row.transport, "")) for server in servers]
    return [(index, share) for index, share in enumerate(shares) if share is not None]
