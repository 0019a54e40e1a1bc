"""`python -m tests.lab.hostile`: sends every hostile request to real servers, prints what each cost, and fails where one cost too much.

How long health waited is measured by the clock: a row for which it was too long is told, and does not fail.
"""

from __future__ import annotations

import argparse
import sys

from .known import known
from .measure import MOST_WAIT, TRIES, Cost, faults, is_slow, measured
from .points import points
from .rows import MEGABYTE, Hostile, all_rows

HEAD = "| request | bytes sent | answer | CPU time | memory | wait of health |\n|---|---|---|---|---|---|"


def shown(row: Hostile, cost: Cost) -> str:
    """A row of the table."""
    statuses = sorted({"closed" if outcome.status is None else str(outcome.status) for outcome in cost.outcomes})
    numbers = f"{cost.cpu * 1000:,.0f} ms | {cost.grown / MEGABYTE:,.1f} MB | {cost.waited * 1000:,.0f} ms"
    return f"| {row} | {row.sent:,} | {', '.join(statuses)} | {numbers} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.hostile")
    parser.add_argument("--server", choices=["uvicorn", "gunicorn"], action="append")
    parser.add_argument("--only", default="", help="rows whose names hold this")
    arguments = parser.parse_args()
    rows = [row for row in [*all_rows(), *known(), *points()] if arguments.only in row.name]
    found, slow = [], []
    for name in arguments.server or ["uvicorn", "gunicorn"]:
        print(f"\n{name}\n\n{HEAD}")
        with measured(name) as server:
            for row in rows:
                cost = server.cost(row)
                print(shown(row, cost), flush=True)
                found += [f"{name}, {row}: {fault}" for fault in faults(row, cost)]
                if is_slow(cost):
                    slow.append(f"{name}, {row}: health waited {cost.waited * 1000:,.0f} ms, {TRIES} times")
    print("\n".join(["", *slow, f"{len(slow)} of {len(rows)} rows had health wait for more than {MOST_WAIT * 1000:.0f} ms"]))
    print("\n".join([*found, f"{len(found)} faults"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
