"""A plot of the rates: a panel for each row, in it one bar for each server and number of connections. Knows matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ..measure import Cell

_COLUMNS: Final = 2


def draw(cells: Sequence[Cell], servers: Sequence[str], file: Path) -> None:
    """Write the plot of these servers as PNG. Floors are left out: beside them the others could not be told apart."""
    by_row: dict[str, list[Cell]] = {}
    for cell in cells:
        by_row.setdefault(cell.row.name, []).append(cell)
    lines = -(-len(by_row) // _COLUMNS)
    figure = Figure(figsize=(12, 2.8 * lines + 1), layout="constrained")
    panels = figure.subplots(lines, _COLUMNS, squeeze=False).flat
    for (name, row), panel in zip(by_row.items(), panels, strict=False):
        width = 0.8 / len(servers)
        for index, server in enumerate(servers):
            rates = [cell.median(server, lambda turn: turn.rate) or 0.0 for cell in row]
            places = [place + (index - (len(servers) - 1) / 2) * width for place in range(len(row))]
            hatch = "//" if index >= 10 else None
            panel.bar(places, rates, width, color=f"C{index % 10}", hatch=hatch, label=server)
        panel.set_title(name, fontsize=10)
        panel.set_xticks(range(len(row)), [f"{cell.connections} connection{'s' * (cell.connections > 1)}" for cell in row])
        panel.set_ylabel("requests per second", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels:
        panel.set_visible(False)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(servers), 10))
    figure.savefig(file, dpi=120)
