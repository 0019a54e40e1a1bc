"""Rows of a model that gives headers to its answers, those of the request's parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import ECHOED, GOOD, Row, answer, infer, inputs


def gives(**headers: str) -> Request:
    parameters = {name.replace("_", "-"): value for name, value in headers.items()}
    return infer("gives%20headers", inputs(GOOD, more=f',"parameters":{json.dumps(parameters)}'))


REFUSED = (
    *("Content-Length", "content_type", "content_encoding", "inference_header_content_length", "connection", "keep_alive", "te", "trailer"),
    *("transfer_encoding", "Upgrade", "proxy_connection", "grpc_status", "trace_bin"),
)


def header_rows() -> Iterator[Row]:
    echoed = answer("gives headers", ECHOED.replace('"x"', '"output_0"'))
    yield Row("headers of a model", gives(x_cost="0.5", X_Trace="a,b c"), 200, echoed, headers=(("x-cost", "0.5"), ("x-trace", "a,b c")))
    for name in REFUSED:
        yield Row(
            f"a header that no model gives, {name}", gives(**{name: "1"}), 500, text=("model 'gives headers' failed: see the server's log",)
        )
    for name, value in (("a space around it", " 1"), ("a line break", "1\r\nx-other: 2"), ("no ASCII", "\u20ac")):
        yield Row(f"a header whose value has {name}", gives(x_cost=value), 500, text=("see the server's log",))
    yield Row("a header without a name", gives(**{"": "1"}), 500, text=("see the server's log",))
    yield Row("a header whose name has a space", gives(**{"x cost": "1"}), 500, text=("see the server's log",))
