"""A tracer of one's own, by `server.instrument`: what it hears of each request, and of a call for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, Span, TensorSpec


class Notes:
    """A tracer of one's own, which notes what it hears."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def begin(self, model: str, version: str | None) -> Span:
        self.noted.append(("begin", model, version))
        return NotedSpan(self.noted)

    @contextmanager
    def together(self, model: str, version: str | None, rows: int, spans: Sequence[Span]) -> Iterator[None]:
        self.noted.append(("together", model, version, rows, len(spans)))
        yield


class NotedSpan:
    def __init__(self, noted: list[Any]) -> None:
        self._noted = noted

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def end(self, outcome: str, request_id: str | None, queued: float | None, error: BaseException | None) -> None:
        assert queued is None or 0 <= queued < 20
        self._noted.append(("end", outcome, request_id, queued is not None, str(error)))


def test_a_tracer_of_ones_own_hears_of_each_request() -> None:
    notes, server = Notes(), InferenceServer()
    server.instrument(notes)
    server.register("m", lambda x: 1 / x[0], version="2", inputs=[TensorSpec("x", "INT64", [-1])], run="inline")
    server.register("b", lambda x: x, max_batch_size=2, max_batch_delay=60.0)
    server.infer_sync("m", {"x": np.array([2])}, id="7")
    with pytest.raises(InferenceError) as caught:
        server.infer_sync("m", {})
    failed = str(caught.value)
    begin = ("begin", "m", "2")
    assert notes.noted == [begin, ("end", "ok", "7", True, "None"), begin, ("end", "invalid", None, False, failed)]
    notes.noted.clear()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: server.infer_sync("b", {"x": np.array([1.0])}), range(2)))
    assert notes.noted.count(("begin", "b", None)) == notes.noted.count(("end", "ok", None, True, "None")) == 2
    assert ("together", "b", None, 2, 2) in notes.noted


def test_what_is_no_tracer_is_refused() -> None:
    wrong: Any = object()
    with pytest.raises(TypeError, match=r"is no Tracer: .* write oip_asgi\.opentelemetry\.instrument\(server, tracer_provider\)"):
        InferenceServer().instrument(wrong)
