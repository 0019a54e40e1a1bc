"""Where the microseconds of one small request go, in one process and without a socket: `python -m tests.bench.micro`.

Parts are the core's own functions, called alone; what lies between them is the difference of two measurements, one of which holds the
other. Each number is the best of many repeats, which is what the code costs when nothing else disturbs it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from oip_asgi import OIPApp
from tests.support.inside import parts_of_http

from .machine import described
from .models import make_server
from .report import table
from .rows import HEADER_LENGTH, Row, rows
from .serve import echo

ROWS: Final = ("JSON 1x4", "binary 1x4")
HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Costs:
    """What one request takes, in seconds, whole and in pieces that lie inside of each other.

    Args:
        app: Through `OIPApp`, from scope to the last message.
        exchange: In the core alone, from the request's head and body to the response.
        decode: From the body to tensors.
        infer: From tensors to tensors: a place, checks, arguments, the model, its result.
        encode: From tensors to the body.
        echo: A bare ASGI callable that sends back what it read.
        functions: The Python functions that are entered, through `OIPApp`.
    """

    app: float
    exchange: float
    decode: float
    infer: float
    encode: float
    echo: float
    functions: list[str]

    def parts(self) -> dict[str, float]:
        """The whole, cut into what each layer takes."""
        return {
            "ASGI: scope, read, drive, send": self.app - self.exchange,
            "route, headers, response": self.exchange - self.decode - self.infer - self.encode,
            "split and decode": self.decode,
            "admit, check, bind, call, take the result": self.infer,
            "encode": self.encode,
        }


def best(function: Callable[[], Any], repeats: int, number: int) -> float:
    """The seconds of one call, as the least over the repeats."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            function()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / number


def best_of_app(app: Any, row: Row, repeats: int, number: int) -> float:
    """The same for an ASGI application, with one message in."""
    scope = _scope(row)
    message = {"type": "http.request", "body": row.body, "more_body": False}
    sent: list[Any] = []

    async def receive() -> Any:
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    async def repeat() -> float:
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(number):
                sent.clear()
                await app(scope, receive, send)
            seconds.append(time.perf_counter() - start)
        return min(seconds) / number

    found = asyncio.run(repeat())
    if sent[0]["status"] != 200:
        raise AssertionError(f"{row.name}: {sent}")
    return found


def functions_entered(app: Any, row: Row) -> list[str]:
    """The Python functions that an ASGI application enters for one warm request, each once, in the order of their first calls.

    Those of the package, of the standard library and of others count; the model and what is in this folder do not.
    """
    scope = _scope(row)
    entered: dict[str, None] = {}

    async def receive() -> Any:
        return {"type": "http.request", "body": row.body, "more_body": False}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and Path(code.co_filename).parent != HERE:
            entered[f"{Path(code.co_filename).stem}.{code.co_qualname}"] = None

    async def count() -> None:
        for _ in range(20):
            await app(scope, receive, send)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            await app(scope, receive, send)
        finally:
            sys.setprofile(before)

    asyncio.run(count())
    return list(entered)


def _scope(row: Row) -> dict[str, Any]:
    return {
        "type": "http",
        "method": row.method,
        "path": row.path,
        "raw_path": row.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": _headers(row),
        "extensions": {"http.response.trailers": {}},
    }


def _headers(row: Row) -> list[tuple[bytes, bytes]]:
    """Those of wrk, beside the row's own."""
    named = {"host": "127.0.0.1:8000", **row.headers, "content-length": str(len(row.body))}
    return [(name.encode(), value.encode()) for name, value in named.items()]


def costs(row: Row, repeats: int, number: int) -> Costs:
    """Measure one row."""
    server = make_server("inline")
    server.start()
    try:
        size = row.headers.get(HEADER_LENGTH)
        parts = parts_of_http(server, "identity", row.path, _headers(row), row.body, None if size is None else int(size))
        return Costs(
            best_of_app(OIPApp(server), row, repeats, number),
            best(parts.exchange, repeats, number),
            best(parts.decode, repeats, number),
            best(parts.infer, repeats, number),
            best(parts.encode, repeats, number),
            best_of_app(echo, row, repeats, number),
            functions_entered(OIPApp(server), row),
        )
    finally:
        server.stop()


def report(found: Costs, name: str) -> str:
    """The costs of one row as a table."""
    lines = [[part, f"{seconds * 1e6:.2f}", f"{seconds / found.app:.0%}"] for part, seconds in found.parts().items()]
    lines.append(["the whole", f"{found.app * 1e6:.2f}", "100%"])
    lines.append(["a bare echo through the same messages", f"{found.echo * 1e6:.2f}", f"{found.echo / found.app:.0%}"])
    return table([name, "µs", "share"], lines) + f"\n{len(found.functions)} Python functions are entered"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.micro", description=__doc__)
    parser.add_argument("--rows", nargs="+", default=ROWS, metavar="PATTERN")
    parser.add_argument("--repeats", type=int, default=1000, metavar="N")
    parser.add_argument("--number", type=int, default=20, metavar="N", help="of requests in each repeat")
    parser.add_argument("--functions", action="store_true", help="name the functions that are entered")
    parsed = parser.parse_args(arguments)
    print(described())
    for row in rows(parsed.rows):
        found = costs(row, parsed.repeats, parsed.number)
        print("", report(found, row.name), *(found.functions if parsed.functions else ()), sep="\n")


if __name__ == "__main__":
    main()
