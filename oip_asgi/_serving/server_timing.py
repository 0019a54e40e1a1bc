"""`InferenceServer(server_timing=True)`: where the time of a request went, as the header `Server-Timing`. Knows no transport.

Specification: W3C Server Timing.
"""

from __future__ import annotations

from typing import Final

from .._models.statistics import Timings
from .._protocol.response_headers import ResponseHeaders
from .wire_format import Head

_NAME: Final = "server-timing"


def add_server_timing(head: Head, timings: Timings, encoding: float) -> None:
    """Give an answer its header, after what the model has in it already. `encoding` is when the encoding of the response began."""
    headers = head.response_headers
    if headers is None or headers.is_sent:  # with a sign of life, before the first item: these are dropped
        headers = head.response_headers = ResponseHeaders()
    returned = timings.returned or encoding
    queue = run = 0.0
    decode = returned - timings.since - max(timings.lookup, 0.0)  # if the cache had the response
    if timings.called:
        queue, run = timings.started - timings.entered, returned - timings.called
        decode -= queue + run
    stages = {"queue": queue, "decode": decode, "run": run, "encode": timings.answered - returned}
    written = [f"{stage};dur={max(seconds, 0.0) * 1000:.3f}" for stage, seconds in stages.items()]
    headers[_NAME] = ", ".join([headers[_NAME], *written] if _NAME in headers else written)
