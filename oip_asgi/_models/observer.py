"""An observer, as models and the server know it: what takes observations, and never holds a request up.
`_runtime` has the only one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .._io import Signal
from .._protocol.observation import Observation


class Observer(Protocol):
    """Hands what is put into its queue to one function of a user."""

    def hears(self, model: str, /) -> bool:
        """Whether it observes the models of a name."""

    def wants_one(self) -> bool:
        """Whether it wants the observation of a request: asked once for each, before anything of the request
        is copied."""

    def put(self, observation: Observation, /) -> None:
        """Put an observation into the queue, if there is room."""

    def make_idle_signal(self) -> Signal:
        """A signal that is set once all that is in the queue was handed over."""

    def drop(self) -> None:
        """Drop what is in the queue, and log how much that was."""

    def count_drops(self) -> Mapping[tuple[str, str | None], int]:
        """How many observations were dropped, by the name and the version of the model."""

    def stop(self) -> None:
        """End its thread."""
