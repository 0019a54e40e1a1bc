"""The registered models of one server, by name and version. Knows no requests and no transport.

Models may come and go while requests look them up, in any thread. So a list of versions is never changed,
only replaced, and a dict is changed key by key, and copied in one step by those who go through it: a copy for
each change would cost as much as there are models.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from .._protocol.errors import NotFound, describe_expected, find_near, list_names, show
from .model import Model

_INTEGER: Final = re.compile("[0-9]+")

UNVERSIONED: Final = "1"
"""What statistics call the version of a model without versions, and what clients may call it: Triton numbers
all versions, and perf_analyzer reads a number there."""


class Registry:
    """The registered models, in the order of their registration. If not `names_are_told`, errors name none: a
    client may not see all."""

    def __init__(self, *, names_are_told: bool = True) -> None:
        self._names_are_told = names_are_told
        self._models: dict[str, list[Model]] = {}
        """The versions of each name."""
        self._found: dict[tuple[str, str | None], Model] = {}
        """What requests find by a name and a version, or None for a request without one."""
        self.by_path: dict[str, Model] = {}
        """The same by path, such as "/models/iris/versions/2", as clients usually spell it, with the version
        that the path names."""
        self._lock = threading.Lock()

    def add(self, model: Model) -> Model | None:
        """Take a model in, and return the one that it replaces. Raises ValueError if it may not replace one,
        or only some have versions."""
        with self._lock:
            models = self._models.get(model.name, [])
            old = next((other for other in models if other.version == model.version), None)
            if old is not None and not model.options.replace:
                raise ValueError(
                    f"{model} is registered already: give this one another name or version, or write "
                    "replace=True"
                )
            if old is None and models and None in (model.version, models[0].version):
                raise ValueError(
                    f"{model} is registered both with a version and without: give each of them a version"
                )
            self._replace_versions(
                model.name,
                [*models, model] if old is None else [model if other is old else other for other in models],
            )
            return old

    def remove(self, name: str, version: str | None) -> list[Model]:
        """Take a model out, and return it; all versions of the name if none is given. Raises NotFound."""
        with self._lock:
            gone = self.find_versions(name, version)
            self._replace_versions(name, [model for model in self._models[name] if model not in gone])
            return gone

    def _replace_versions(self, name: str, models: list[Model]) -> None:
        before, after = _index_versions(name, self._models.get(name, [])), _index_versions(name, models)
        if models:
            self._models[name] = models
        else:
            del self._models[name]
        for key, model in after.items():
            self._found[key] = model
            self.by_path[path_of(*key)] = model
        for key in before.keys() - after.keys():
            del self._found[key], self.by_path[path_of(*key)]

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[Model]:
        return (model for versions in list(self._models.values()) for model in versions)

    def all(self) -> list[tuple[Model, list[Model]]]:
        """For each name the model of requests that name no version, and the models of all versions."""
        return [(find_default(versions), versions) for versions in list(self._models.values())]

    def list_versions(self, name: str) -> list[str]:
        """The versions of a name; none if it has no versions, or is not registered."""
        return [model.version for model in self._models.get(name, ()) if model.version is not None]

    def find_versions(self, name: str, version: str | None) -> list[Model]:
        """The model of this name and version; all versions of the name if none is given. Raises NotFound."""
        model = self.find(name, version)
        return [model] if version is not None else list(self._models.get(name, [model]))

    def get(self, name: str, version: str | None) -> Model | None:
        """The model of this name and version, if there is one."""
        return self._found.get((name, version))

    def find(self, name: str, version: str | None) -> Model:
        """The model of this name and version, or NotFound."""
        model = self._found.get((name, version))
        if model is not None:
            serves = model.lifecycle.state == "ready" or version is not None or model.lifecycle.will_serve
            return model if serves else self._find_serving(model)
        if version is None or name not in self:
            expected = (
                _describe_names(name, list(self._models))
                if self._names_are_told
                else "the list of models has those that you may see"
            )
            raise NotFound(f"Request for unknown model: {show(name)} is not found: {expected}")
        numbers = self.list_versions(name)
        expected = f"expected {list_names(numbers)}" if numbers else "it has no versions"
        if not self._names_are_told:
            expected = "expected another one"
        # Triton's words for a version that is no number, which one of its examples looks for
        if not _INTEGER.fullmatch(version):
            expected += f"; failed to get model version from specified version string {show(version)}"
        raise NotFound(
            f"Request for unknown model: {show(name)} version {show(version)} is not found: {expected}"
        )

    def _find_serving(self, default: Model) -> Model:
        """The version that answers if the default one does not serve: the highest that serves; the default
        one if none does."""
        serving = [model for model in self._models.get(default.name, ()) if model.lifecycle.is_ready]
        return find_default(serving) if serving else default


def _index_versions(name: str, models: list[Model]) -> dict[tuple[str, str | None], Model]:
    """What requests for a name find, given all its versions."""
    by_path: dict[tuple[str, str | None], Model] = {(name, model.version): model for model in models}
    if models:
        by_path[name, None] = find_default(models)
        if models[0].version is None:
            by_path[name, UNVERSIONED] = models[0]
    return by_path


@lru_cache(256)  # the same from request to request
def path_of(name: str, version: str | int | None = None) -> str:
    """The path of a model, or of one version, percent-encoded: a slash in a name too."""
    path = f"/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(str(version), safe='')}"


def _describe_names(name: str, names: list[str]) -> str:
    """What to ask for in the place of a name that is unknown."""
    if not names:
        return "no model is registered: server.model and server.register do that"
    return describe_expected(names, find_near(name, names))


def find_default(models: list[Model]) -> Model:
    """The version for requests that name none: the highest number, else the one that was registered last."""
    if all(model.version is not None and _INTEGER.fullmatch(model.version) for model in models):
        return max(models, key=lambda model: int(model.version or 0))
    return models[-1]
