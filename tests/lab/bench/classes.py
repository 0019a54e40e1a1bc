"""`python -m tests.lab.bench.classes`: what a request with rows of a class costs, and what the same takes as a route of FastAPI by hand.

Both applications answer in this process, without a socket, in turns; the least time of several rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import pydantic
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp

from .in_process import ask_often
from .report import table
from .rows import Row

ROWS: Final = 1, 100
ROUNDS: Final = 15

_CUSTOMER: Final = {"age": 41, "plan": "paid", "city": "Bonn", "fee": 9.5, "months": 17, "is_new": False}


class Customer(msgspec.Struct):
    age: Annotated[int, msgspec.Meta(ge=0)]
    plan: Literal["free", "paid"]
    city: str
    fee: float
    months: int
    is_new: bool


class Score(msgspec.Struct):
    label: str
    value: float


class CustomerOfPydantic(pydantic.BaseModel):
    age: Annotated[int, pydantic.Field(ge=0)]
    plan: Literal["free", "paid"]
    city: str
    fee: float
    months: int
    is_new: bool


class ScoreOfPydantic(pydantic.BaseModel):
    label: str
    value: float


async def churn(rows: list[Customer]) -> list[Score]:
    return [Score("leaves" if row.fee > row.months else "stays", row.age / 100) for row in rows]


async def churn_by_hand(rows: list[CustomerOfPydantic]) -> list[ScoreOfPydantic]:
    return [ScoreOfPydantic(label="leaves" if row.fee > row.months else "stays", value=row.age / 100) for row in rows]


def make_applications() -> dict[str, tuple[Any, str]]:
    """Each application, and the path that is asked."""
    server, by_hand = InferenceServer(), FastAPI()
    server.register("churn", churn)
    by_hand.post("/churn")(churn_by_hand)
    return {"oip_asgi": (OIPApp(server), "/models/churn/generate"), "FastAPI by hand": (by_hand, "/churn")}


def measure(rows: int, number: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds of a request, by application."""
    body, headers = json.dumps([_CUSTOMER] * rows).encode(), {"content-type": "application/json"}
    applications = make_applications()
    least = dict.fromkeys(applications, float("inf"))
    with asyncio.Runner() as runner:
        for _ in range(rounds):
            for name, (app, path) in applications.items():
                row = Row(name, "POST", path, headers, body, check=lambda _: None, connections=[1])
                since = time.process_time()
                runner.run(ask_often(app, row, number))
                least[name] = min(least[name], (time.process_time() - since) / number * 1e6)
    return least


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.classes", description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="requests of each round")
    parsed = parser.parse_args(arguments)
    lines = []
    for rows in ROWS:
        costs = measure(rows, max(parsed.requests // rows, 10))
        ours, theirs = costs.values()
        lines.append([str(rows), f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}"])
    print(table(["rows of six fields", *(f"{name}, us" for name in costs), "share"], lines))


if __name__ == "__main__":
    main()
