"""Print the table as Markdown: as the guide has it, or with `--all` each kind with each of its values. `--write` writes the guide's page.

python -m tests.table.values --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.table.values.cells import GROUPS, WHERE_NOTHING_IS_DECLARED, expect, values_of
from tests.table.values.differences import BY_DESIGN, decide, find_ways
from tests.table.values.kinds import KINDS, Kind

SHOWN: Final = ["FP64", "INT64", "BOOL", "list[str]", "BYTES base64", "list[datetime]", "BYTES pd_json", "nothing declared"]
"""The kinds that the guide's table shows."""

OWN: Final = {"right", "edge", "no list", "one missing", "edge, one missing", "too large", "nested [N, 1]", "nested [N, 2]", "ragged"}
"""The values that are other ones for each kind."""


PAGE: Final = Path(__file__).parents[3] / "examples/guide/values.md"

FIRST: Final = "## What the model gets\n"
"""The heading of the page where the printed part begins."""


def print_for_the_guide() -> str:
    """The page's part that is printed."""
    return "\n".join(
        [
            FIRST,
            *_list_values(),
            "",
            "## A missing value",
            "",
            *_list_missing(),
            "",
            "## Where a way in differs",
            "",
            *_list_reasons(),
            "",
        ]
    )


def _list_values() -> Iterator[str]:
    yield _row("values", *map(_code, SHOWN[:-1]), SHOWN[-1])
    yield _row(*["---"] * (len(SHOWN) + 1))
    for group in GROUPS:
        for name in GROUPS[group]:
            if name not in WHERE_NOTHING_IS_DECLARED and not name.endswith(", one missing"):
                yield _row(_describe(name, group), *(_show(KINDS[kind], name, group) for kind in SHOWN))


def _describe(name: str, group: str) -> str:
    """The values, or what they are called where each kind has its own."""
    return f"{name}" if name in OWN else f"{name}, {_code(_write(values_of(KINDS['FP64'], group)[name]))}"


def _show(kind: Kind, name: str, group: str) -> str:
    """The outcome, without the dtype that the head of the column has; and the values, where each kind has its own."""
    values = values_of(kind, group)
    if name not in values:
        return ""
    outcome = expect(kind, name)
    outcome = outcome if kind.writes == "" or outcome == "400" else outcome.removeprefix(f"{kind.writes} ")
    asked = str(values[name]) if name == "too large" and outcome == "400" else ""
    return f"{outcome}: {_code(asked)}" if asked else outcome if outcome == "400" else _code(outcome)


def _list_missing() -> Iterator[str]:
    yield _row("beside others, in", "None, null or an empty cell becomes")
    yield _row("---", "---")
    becomes: dict[str, list[str]] = {}
    for kind in KINDS.values():
        outcome = expect(kind, "one missing")
        becomes.setdefault("400" if outcome == "400" else _code(outcome.rstrip("]").replace("[", "").rsplit(", ")[-1]), []).append(
            kind.name
        )
    for missing, names in becomes.items():
        yield _row(_name(names), missing)


def _name(names: Sequence[str]) -> str:
    """Names of kinds, with "columns" and "fields" written once."""
    plain = [name for name in names if not name.startswith(("column", "field"))]
    found = [", ".join(name if name == "nothing declared" else _code(name) for name in plain)] if plain else []
    for word in ("column", "field"):
        some = [name.removeprefix(word).lstrip(", ") for name in names if name.startswith(word)]
        if some:
            found.append(f"{word}s: {', '.join(name if name == 'nothing declared' else _code(name) for name in some)}")
    return "; ".join(found)


def _list_reasons() -> Iterator[str]:
    for reason, rows in BY_DESIGN.items():
        ways = dict.fromkeys(cell.way for row in rows for cell, _ in row.list_cells())
        named = ", ".join(dict.fromkeys(map(_WAYS.__getitem__, ways)))
        yield f"- {reason}" if named in reason else f"- {named}: {reason}"


_WAYS: Final = {
    "infer": "`infer`",
    "binary": "binary data",
    "gRPC": "gRPC",
    "generate": "`generate`",
    "Python": "Python",
    "Client": "`Client`",
    "score": "`score`",
    "rows": "instances",
    "Client, rows": "instances",
}


def print_all() -> str:
    """Each kind with each of its values."""
    lines = [_row("declared", "values", "", "the model gets", "by another way in"), _row(*["---"] * 5)]
    for kind in KINDS.values():
        for group in GROUPS:
            for name, values in values_of(kind, group).items():
                others = [f"{way}: {decide(kind, name, way)}" for way in sorted(find_ways(kind, name))]
                lines.append(_row(_code(kind.name), name, _code(_write(values)), _code(expect(kind, name)), "; ".join(others)))
    return "\n".join([*lines, ""])


def _write(values: Any) -> str:
    return repr(values).replace("datetime.", "").replace(str(10**400), "10**400")


def _code(text: str) -> str:
    return f"`{text.replace(str(10**400), '10**400')}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(PAGE.read_text().partition(FIRST)[0] + print_for_the_guide())
    else:
        sys.stdout.write(print_all() if "--all" in sys.argv[1:] else print_for_the_guide())
