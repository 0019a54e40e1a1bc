"""The registered models of one server, by name and version. Knows no requests and no transport."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..errors import NotFound, listed, shown
from .model import Model

_INTEGER: Final = re.compile("[0-9]+")


class Repository:
    """The registered models, in the order of their registration."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str | None, Model]] = {}
        self._defaults: dict[str, Model] = {}

    def add(self, model: Model) -> None:
        """Take a model in.

        Raises:
            ValueError: It is registered already, or the name is registered with versions and without.
        """
        versions = self._by_name.get(model.name, {})
        if model.version in versions:
            raise ValueError(f"{model} is registered already: give this one another name or version")
        if versions and (model.version is None or None in versions):
            raise ValueError(f"{model} is registered both with a version and without: give each of them a version")
        self._by_name.setdefault(model.name, versions)[model.version] = model
        self._defaults[model.name] = versions[_default(list(versions))]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Model]:
        # a copy: models may be registered while somebody goes through them
        return iter([model for versions in list(self._by_name.values()) for model in list(versions.values())])

    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._by_name)

    def versions(self, name: str) -> list[str]:
        """The versions of a name; none where it is registered without."""
        return [version for version in self._by_name[name] if version is not None]

    def find(self, name: str, version: str | None) -> Model:
        """The model of this name and version.

        Args:
            name: The model's name.
            version: None for the default: the highest where all versions are integers, else the one registered last.

        Raises:
            NotFound: There is none.
        """
        default = self._defaults.get(name)
        if default is None:
            known = f"expected {listed(self.names())}" if self._by_name else "no model is registered"
            raise NotFound(f"Request for unknown model: {shown(name)} is not found: {known}")
        if version is None:
            return default
        model = self._by_name[name].get(version)
        if model is None:
            versions = self.versions(name)
            known = f"expected {listed(versions)}" if versions else "it has no versions"
            raise NotFound(f"Request for unknown model: {shown(name)} version {shown(version)} is not found: {known}")
        return model


def _default(versions: list[str | None]) -> str | None:
    integers = [version for version in versions if version is not None and _INTEGER.fullmatch(version)]
    if len(integers) == len(versions):
        return max(integers, key=int)
    return versions[-1]
