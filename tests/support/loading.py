"""A model that is loaded with the parameters of a client."""

from __future__ import annotations

from typing import Any

from oip_asgi import InferenceServer, LoadParameters


def register_made(server: InferenceServer, got: list[LoadParameters]) -> None:
    """The model `made`, which keeps in `got` what it was loaded with, says how often that was, and fails if the configuration says so."""

    def load(parameters: LoadParameters) -> Any:
        got.append(parameters)
        if "fail" in parameters.config:
            raise RuntimeError("a secret")
        return lambda: len(got)

    server.register("made", load=load)
