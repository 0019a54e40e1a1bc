"""Rows for a host of which something reads each request's body first, and does not keep it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import ECHOED, GOOD, Row, answer, infer, inputs

TAKEN = "something of the application has read the body of the request first: see the server's log"
_BODY = inputs(GOOD)
_LONG = _BODY.ljust(18_000)
"""Too long to be read before anything is decided."""


def taken_rows(*headers: tuple[str, str]) -> Iterator[Row]:
    """What needs a body is answered 500, and anything else as ever. The headers make the host read."""
    for path in ("infer", "infer_stream", "generate", "generate_stream"):
        yield Row(f"taken, {path}", Request("POST", f"/models/echo/{path}", headers, _BODY), 500, text=(TAKEN,))
    yield Row("taken, long", infer("echo", _LONG, *headers), 500, text=(TAKEN,))
    yield Row("taken, async model", infer("two", _BODY, *headers), 500, text=(TAKEN,))
    yield Row("taken, index", Request("POST", "/repository/index", headers, b"{}"), 500, text=(TAKEN,))
    yield Row("taken, unknown model", infer("nobody", _BODY, *headers), 404, text=("unknown model: 'nobody'",))
    yield Row("taken, live", Request("GET", "/health/live", headers), 200, b'{"live":true}')
    yield Row("taken, nothing sent", infer("echo", b"", *headers), 400, text=("the body is empty",))


def kept_rows(*headers: tuple[str, str]) -> Iterator[Row]:
    """If the host keeps what it reads."""
    yield Row("kept", infer("echo", _BODY, *headers), 200, answer("echo", ECHOED))
    yield Row("kept, long", infer("echo", _LONG, *headers), 200, answer("echo", ECHOED))
