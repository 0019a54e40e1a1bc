"""The registered models of one server, by name and version. Knows no requests and no transport.

Models may come and go while requests look them up, in any thread. So nothing that they look at is changed: it is replaced as a whole.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from .._protocol.errors import NotFound, listed, shown
from .model import Model

_INTEGER: Final = re.compile("[0-9]+")

UNVERSIONED: Final = "1"
"""What statistics call the version of a model without versions, and what clients may call it: Triton numbers all versions, and
perf_analyzer reads a number there."""


class _Registered(NamedTuple):
    """All models at one moment: by name and version, and for each name the model of requests that name no version."""

    by_name: dict[str, dict[str | None, Model]]
    defaults: dict[str, Model]


class Registry:
    """The registered models, in the order of their registration."""

    def __init__(self) -> None:
        self._now = _Registered({}, {})
        self._lock = threading.Lock()
        self.changes = 0
        """How often a model has come or gone."""

    def add(self, model: Model) -> None:
        """Take a model in. Raises ValueError if it is there, or its name is there both with versions and without."""
        with self._lock:
            versions = self._now.by_name.get(model.name, {})
            if model.version in versions:
                raise ValueError(f"{model} is registered already: give this one another name or version")
            if versions and (model.version is None or None in versions):
                raise ValueError(f"{model} is registered both with a version and without: give each of them a version")
            self._replace(model.name, {**versions, model.version: model})

    def remove(self, name: str, version: str | None) -> list[Model]:
        """Take a model out, and return it; all versions of the name if none is given. Raises NotFound."""
        with self._lock:
            gone = self.named(name, version)
            self._replace(name, {key: model for key, model in self._now.by_name[name].items() if model not in gone})
            return gone

    def _replace(self, name: str, versions: dict[str | None, Model]) -> None:
        by_name, defaults = {**self._now.by_name, name: versions}, dict(self._now.defaults)
        if versions:
            defaults[name] = versions[_default(list(versions))]
        else:
            del by_name[name], defaults[name]
        self._now = _Registered(by_name, defaults)
        self.changes += 1

    def __contains__(self, name: str | None) -> bool:
        return name in self._now.by_name

    def __iter__(self) -> Iterator[Model]:
        return (model for versions in self._now.by_name.values() for model in versions.values())

    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._now.by_name)

    def all(self) -> list[tuple[Model, list[Model]]]:
        """For each name the model of requests that name no version, and the models of all versions."""
        by_name, defaults = self._now
        return [(defaults[name], list(versions.values())) for name, versions in by_name.items()]

    def versions(self, name: str) -> list[str]:
        """The versions of a name; none if it has no versions, or is not registered."""
        return [version for version in self._now.by_name.get(name, ()) if version is not None]

    def named(self, name: str, version: str | None) -> list[Model]:
        """The model of this name and version; all versions of the name if none is given. Raises NotFound."""
        found = self.find(name, version)
        return [found] if version is not None else list(self._now.by_name.get(name, {None: found}).values())

    def find(self, name: str, version: str | None) -> Model:
        """The model of this name and version, or NotFound."""
        by_name, defaults = self._now
        default = defaults.get(name)
        if default is None:
            known = f"expected {listed(by_name)}" if by_name else "no model is registered, as server.model and server.register do it"
            raise NotFound(f"Request for unknown model: {shown(name)} is not found: {known}")
        if version is None:
            return default
        versions = by_name[name]
        model = versions.get(version) or (versions.get(None) if version == UNVERSIONED else None)
        if model is None:
            numbers = [known for known in versions if known is not None]
            known = f"expected {listed(numbers)}" if numbers else "it has no versions"
            if not _INTEGER.fullmatch(version):  # Triton's words for a version that is no number, which one of its examples looks for
                known += f"; failed to get model version from specified version string {shown(version)}"
            raise NotFound(f"Request for unknown model: {shown(name)} version {shown(version)} is not found: {known}")
        return model


def _default(versions: list[str | None]) -> str | None:
    integers = [version for version in versions if version is not None and _INTEGER.fullmatch(version)]
    if len(integers) == len(versions):
        return max(integers, key=int)
    return versions[-1]
