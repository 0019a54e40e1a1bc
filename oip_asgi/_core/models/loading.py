"""Which models wait to be loaded, and who loads them. Waits for nothing itself: loading is a generator of steps.

A server is started by its host, or else by the first request; whoever comes while a request loads waits for it.
"""

from __future__ import annotations

import inspect
import logging
import threading

from ..effects import Apart, Call, Steps, Together, Wait, no_coroutine
from ..log import log_raised
from .model import Model, Models


class Loading:
    """The loading of a server's models."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._lock = threading.Lock()
        self._lazy: Apart | None = None

    def start(self) -> Steps[None]:
        """Load the models that wait for it. Requests that come meanwhile are told that they are loading."""
        with self._lock:
            claimed = self._claim()
        yield from _load(claimed)

    def lazily(self) -> Steps[None]:
        """The same on behalf of a request: the first loads, and those that come meanwhile wait for it."""
        while True:
            with self._lock:
                lazy = self._lazy
                if lazy is not None and lazy.is_lost():
                    lazy.part.close()  # its models wait again
                    lazy = None
                is_first = lazy is None or lazy.ended.done()
                if is_first:
                    if all(model.state != "waiting" for model in self._models):
                        return
                    lazy = self._lazy = Apart(self.start())
            assert lazy is not None  # made above, if there was none
            if is_first:
                # others need it too, so it does not end with the request
                yield lazy
            yield Wait(lazy.ended)

    def _claim(self) -> list[Model]:
        claimed = [model for model in self._models if model.state == "waiting"]
        for model in claimed:
            model.state = "loading"
        return claimed

    def forget(self) -> None:
        """Let models be loaded again at the next start."""
        with self._lock:
            for model in self._models:
                if model.load is not None and model.state != "loading":
                    model.state = "waiting"


def _load(models: list[Model]) -> Steps[None]:
    if len(models) == 1:
        yield from _load_one(models[0])
    elif models:
        parts = [_load_one(model) for model in models]
        try:
            yield Together(parts)
        finally:
            for model, part in zip(models, parts, strict=True):
                if inspect.getgeneratorstate(part) == inspect.GEN_CREATED:  # given up before its turn
                    model.state = "waiting"
                part.close()  # given up without its driver's knowledge


def _load_one(model: Model) -> Steps[None]:
    assert model.load is not None  # no other model waits
    try:
        no_coroutine((yield Call.aside(model.load)))
        model.state = "ready"
    except Exception as error:
        model.state = "failed"
        log_raised(logging.ERROR, error, "%s: load= raised, so it will never be ready", model)
    finally:
        if model.state == "loading":  # given up half-way
            model.state = "waiting"
