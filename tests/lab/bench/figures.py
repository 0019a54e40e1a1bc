"""What is kept of a measurement, and the picture that is drawn from it: `python -m tests.lab.bench.figures` draws all of them anew.

The commands that measure call `keep`, with their option --keep: it writes kept/NAME.json, with the day and the machine, and the picture
beside this file. Knows matplotlib, and measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .machine import described

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE: Final = Path(__file__).parent

Values = Mapping[str, Mapping[str, float | None]]
"""Numbers by the row and the column that they have in a table; None where nothing was measured."""


@dataclass(frozen=True)
class Kept:
    """A measurement.

    Args:
        command: What measured it.
        day: When, such as "2026-11-24".
        machine: On what, and with which versions.
        note: What else a reader of the picture must know.
        values: What came out.
    """

    command: str
    day: str
    machine: str
    note: str
    values: Values


def read(name: str) -> Kept:
    """What is kept under a name."""
    return Kept(**json.loads((HERE / "kept" / f"{name}.json").read_text()))


def keep(name: str, command: str, values: Values) -> None:
    """Write what was measured just now, and its picture."""
    kept = Kept(command, datetime.now(UTC).date().isoformat(), described(), "", values)
    file = HERE / "kept" / f"{name}.json"
    file.write_text(json.dumps(asdict(kept), indent=2) + "\n")
    draw(name, kept, HERE / f"{name}.png")


_SHOWN_ROWS: Final = {"digits": "scikit-learn", "clicks 1x39": "data frame", "ONNX": "ONNX", "JSON 1x4": "returns its input"}
_TRITON: Final = "Triton, Python backend"
_SHOWN_SERVERS: Final = {
    "def": "oip_asgi",
    "FastAPI": "FastAPI by hand",
    "Triton": _TRITON,
    "MLServer": "MLServer",
    "KServe": "KServe",
}
_SHOWN_WAYS: Final = {"unbatched": "plain", "batched": "max_batch_size=64", "MLServer": "MLServer", "Triton": _TRITON}
_SHOWN_MODELS: Final = {"mlp, 64": "network (MLP)", "boosted, 64": "boosted forest"}
_OURS: Final = "#1f6feb"
_COLORS: Final = {
    "oip_asgi": _OURS,
    "max_batch_size=64": _OURS,
    "plain": "#8ab4f8",
    "FastAPI by hand": "#8c959f",
    _TRITON: "#2da44e",
    "MLServer": "#bf8700",
    "KServe": "#a475f9",
    "a bare echo": "#d0d7de",
}
_KINDS: Final = {
    "refused, 4xx": "#2da44e",
    "accepted": "#bf8700",
    "answered 5xx": "#cf222e",
    "no answer": "#8c959f",
    "crashed": "#24292f",
}


def _draw_groups(axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(groups))]
        bars = axes.bar(places, values, width, label=name, color=_COLORS[name])
        axes.bar_label(bars, [f"{value:,.0f}" if value else "" for value in values], fontsize=6, rotation=90, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.margins(y=0.18)
    axes.legend(fontsize=8, frameon=False)


def draw_rates(axes: Axes, values: Values) -> str:
    shown = {row: name for row, name in _SHOWN_ROWS.items() if row in values}
    _draw_groups(
        axes,
        list(shown.values()),
        {name: [values[row].get(server) or 0.0 for row in shown] for server, name in _SHOWN_SERVERS.items()},
    )
    return "Requests per second, one core, eight connections"


def draw_cpu(axes: Axes, values: Values) -> str:
    servers = {"echo": "a bare echo", **_SHOWN_SERVERS}
    _draw_groups(axes, list(values), {name: [found.get(server) or 0.0 for found in values.values()] for server, name in servers.items()})
    axes.set_yscale("log")
    return "Microseconds of CPU for a request whose input comes back; FastAPI has no binary data"


def draw_refused(axes: Axes, values: Values) -> str:
    left = [0.0] * len(values)
    for kind, color in _KINDS.items():
        counts = [found.get(kind) or 0.0 for found in values.values()]
        if any(counts):
            bars = axes.barh(list(values), counts, left=left, color=color, label=kind)
            axes.bar_label(bars, [f"{count:.0f}" if count else "" for count in counts], label_type="center", color="white", fontsize=8)
        left = [before + count for before, count in zip(left, counts, strict=True)]
    axes.invert_yaxis()
    axes.legend(fontsize=8, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return f"What {left[0]:.0f} malformed requests are answered"


def draw_batching(axes: Axes, values: Values) -> str:
    series = {name: [values.get(way, {}).get(model) or 0.0 for model in _SHOWN_MODELS] for way, name in _SHOWN_WAYS.items()}
    _draw_groups(axes, list(_SHOWN_MODELS.values()), series)
    return "Requests per second with 64 connections, one core"


def draw_memory(axes: Axes, values: Values) -> str:
    bars = axes.barh(list(values), [found["MB"] or 0.0 for found in values.values()], color=_OURS)
    axes.bar_label(bars, fmt="{:,.0f} MB", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    return "Memory of a model of 205 MB in four workers, beyond their own"


FIGURES: Final[Mapping[str, tuple[Any, tuple[float, float]]]] = {
    "rates": (draw_rates, (7.5, 3.6)),
    "cpu": (draw_cpu, (7.5, 3.6)),
    "refused": (draw_refused, (7.5, 2.6)),
    "batching": (draw_batching, (7.5, 3.2)),
    "memory": (draw_memory, (7.5, 1.7)),
}
"""The pictures beside this file: what draws each and gives its title, and its size in inches."""


def draw(name: str, kept: Kept, file: Path) -> None:
    """Write one picture as PNG. Its title says when it was measured, and on what."""
    from matplotlib.figure import Figure

    function, size = FIGURES[name]
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    title = function(axes, kept.values)
    machine = kept.machine.partition(",")[0].partition(";")[0]
    axes.set_title(f"{title}\nmeasured on {kept.day}, {machine}{', ' * bool(kept.note)}{kept.note}", fontsize=8)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    for each in FIGURES:
        draw(each, read(each), HERE / f"{each}.png")
