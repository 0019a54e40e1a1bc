"""A drawing as SVG: boxes, arrows and words, in colors that change with the reader's system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, TypeAlias

Point: TypeAlias = tuple[float, float]

_STYLE: Final = """\
svg { --ground: #ffffff; --ink: #1f2328; --soft: #57606a; --line: #8c959f; --box: #f6f8fa; --wait: #d4a72c }
@media (prefers-color-scheme: dark) {
  svg { --ground: #131416; --ink: #e6edf3; --soft: #9da7b3; --line: #6e7681; --box: #21262d; --wait: #9e7a15 }
}
text { font: 14px system-ui, sans-serif; fill: var(--ink) }
.soft { fill: var(--soft); font-size: 13px }
.name { font-family: ui-monospace, monospace; font-size: 13px }
.light { fill: #ffffff }
.ground { fill: var(--ground) }
.box { fill: var(--box); stroke: var(--line) }
.group { fill: none; stroke: var(--line); stroke-dasharray: 4 4 }
.busy { fill: #1f6feb }
.wait { fill: var(--wait) }
.line { fill: none; stroke: var(--line); stroke-width: 1.5 }
.tip { fill: var(--line) }"""


@dataclass
class Drawing:
    """What is drawn on an area of so many pixels, and a sentence that says it to those who do not see it."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def rectangle(self, left: float, top: float, width: float, height: float, kind: str) -> None:
        self.parts.append(f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>')

    def dot(self, center: Point, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{center[0]:g}" cy="{center[1]:g}" r="6"/>')

    def words(self, place: Point, text: str, kind: str = "", anchor: str = "start") -> None:
        self.parts.append(f'<text class="{kind}" x="{place[0]:g}" y="{place[1]:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def line(self, points: Sequence[Point]) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="line" points="{path}"/>')

    def arrow(self, points: Sequence[Point]) -> None:
        """A line through points, with a tip at the last."""
        self.line(points)
        (from_x, from_y), (x, y) = points[-2:]
        length = ((x - from_x) ** 2 + (y - from_y) ** 2) ** 0.5
        across, along = (x - from_x) / length, (y - from_y) / length
        left, right = ((x - 9 * across + side * along, y - 9 * along - side * across) for side in (5, -5))
        tip = " ".join(f"{a:.5g},{b:.5g}" for a, b in ((x, y), left, right))
        self.parts.append(f'<polygon class="tip" points="{tip}"/>')

    def __str__(self) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" width="{self.width}">'
        ground = f'<rect class="ground" width="{self.width}" height="{self.height}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>\n{_STYLE}\n</style>", ground, *self.parts, "</svg>\n"])
