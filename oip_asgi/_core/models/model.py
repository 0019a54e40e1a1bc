"""A registered model: its options, how its function is called, its slots and its life. Knows no requests and no transport."""

from __future__ import annotations

import math

from ..codecs.registry import Codecs
from ..tensors import plain_name
from .callables import Kind
from .handler import Handler
from .life import Life
from .limiter import Limiter
from .options import NO_TIMEOUT, ModelOptions


class Model:
    """One version of a model.

    Args:
        options: What the user said of it.
        codecs: Those of the server.
        at_once: How many calls may run at once where `options` do not say it: at least, and at most.

    Raises:
        TypeError: As `Handler`.
        ValueError: As `Handler`.
    """

    def __init__(self, options: ModelOptions, codecs: Codecs, at_once: tuple[int, int]) -> None:
        self.options = options
        self.name = plain_name(options.name, options)
        self.version = options.version
        self.handler = Handler(options, codecs)
        self.kind: Kind = options.kind
        self.streams = options.streams
        self.timeout = _seconds(options.timeout)
        self.stream_timeout = _seconds(options.stream_timeout)
        fewest, most = at_once if options.max_concurrency is None else (options.max_concurrency,) * 2
        self.limiter = Limiter(fewest, options.max_queue, most)
        self.life = Life(str(options), options.load)

    def __str__(self) -> str:
        return str(self.options)


def _seconds(timeout: float | None) -> float:
    return math.inf if timeout is None or timeout >= NO_TIMEOUT else timeout
