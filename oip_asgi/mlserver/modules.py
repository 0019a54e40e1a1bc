"""Imports the modules of a model's folder under names of their own. Knows no models and no server.

In the files of a folder, `import helpers` is the folder's own module, and everywhere else it is that of the
host, also while a model is loaded: the import statement of these files is another one. A module has its plain
name too if nobody else has one of that name, so that pickles find its classes.
"""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Final

_importing: Final = threading.RLock()


class _Folder:
    """Finds the modules of one folder, each below a package without a file that stands for the folder."""

    def __init__(self, folder: Path, names: Collection[str], shared: Collection[str]) -> None:
        self.package = f"oip_asgi_folder_{zlib.crc32(str(folder).encode()):08x}"
        self.shared = shared
        self._path, self._names = str(folder), names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.package:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [self._path]
            return spec
        if not self.has(fullname):
            return None
        source = PathFinder.find_spec(fullname, path)
        if source is not None and type(source.loader) is SourceFileLoader:
            source.loader = _Loader(fullname, source.loader.path, self)
        return source

    def has(self, fullname: str) -> bool:
        return fullname.startswith(f"{self.package}.")

    def import_(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  (as Python calls it)
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What `import` does in a file of the folder."""
        top = name.partition(".")[0]
        # a list comes from code in C, such as that of pickle, which takes from `sys.modules` then what has
        # the plain name
        if level or top not in self._names or (type(fromlist) is list and top in self.shared):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        try:
            module = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or ())
        except ModuleNotFoundError as error:
            error.msg = error.msg.replace(f"{self.package}.", "")
            # the first part alone: to write an error that names a module, Python 3.15 imports what is around
            # that
            error.name = str(error.name).removeprefix(f"{self.package}.").partition(".")[0]
            raise
        return module if fromlist else sys.modules[f"{self.package}.{top}"]


class _Loader(SourceFileLoader):
    """Runs a file of a folder."""

    def __init__(self, fullname: str, path: str, folder: _Folder) -> None:
        super().__init__(fullname, path)
        self._folder = folder

    def exec_module(self, module: ModuleType) -> None:
        # `get_code` takes a file of the same size and second for the same file
        folder, code = self._folder, self.source_to_code(self.get_data(self.path), self.path)
        plain = self.name.removeprefix(f"{folder.package}.")
        is_shared = plain.partition(".")[0] in folder.shared
        if not is_shared:
            module.__name__ = plain
            names = list(accumulate(plain.split("."), "{}.{}".format))  # packages without a file are not run
            sys.modules.update({name: sys.modules[f"{folder.package}.{name}"] for name in names})
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": folder.import_}
        try:
            exec(code, vars(module))
        except BaseException:
            if not is_shared:
                sys.modules.pop(plain, None)
            raise


def import_from(folder: Path, name: str, folders: Collection[Path]) -> ModuleType:
    """Import a module from a folder of models, again if it was imported before. `folders` are those of all
    models of the server."""
    names, top = list_modules(folder), name.partition(".")[0]
    importlib.invalidate_caches()
    if PathFinder.find_spec(top, [str(folder)]) is not None:
        names.add(top)
    with _importing:
        finder = _Folder(folder, names, _find_shared(folders))
        for present, module in list(sys.modules.items()):
            if (
                present == finder.package
                or finder.has(present)
                or (present.partition(".")[0] in names and _is_from(module, [folder]))
            ):
                sys.modules.pop(present, None)
        sys.meta_path[:] = [
            finder,
            *(other for other in sys.meta_path if getattr(other, "package", None) != finder.package),
        ]
        if top in names:
            return importlib.import_module(f"{finder.package}.{name}")
        module = importlib.import_module(name)
        # that of another model, which has the plain name
        if type(getattr(module.__spec__, "loader", None)) is _Loader:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return module


def _find_shared(folders: Collection[Path]) -> set[str]:
    """The names of modules that two folders have, or a folder and the host."""
    names = Counter(name for folder in list(folders) for name in list_modules(folder))
    return {name for name, count in names.items() if count > 1 or _is_of_host(name, folders)}


def _is_of_host(name: str, folders: Collection[Path]) -> bool:
    module = sys.modules.get(name)
    if module is not None and not _is_from(module, folders):
        return True
    spec = PathFinder.find_spec(name)  # the host would import it
    return spec is not None and not _is_below(spec, folders)


def drop_shared(folders: Collection[Path]) -> None:
    """Let modules of models lose the plain name that two folders have, or a folder and the host: one would be
    taken for the other."""
    with _importing:
        shared = _find_shared(folders)
        # all are found before one goes: a package without a file finds its folders through the one above it
        dropped = [
            name
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in shared and _is_from(module, folders)
        ]
        for name in dropped:
            sys.modules.pop(name, None)


def _is_from(module: ModuleType, folders: Collection[Path]) -> bool:
    """True if a module was imported from one of some folders."""
    spec = getattr(module, "__spec__", None)  # one that a test has made has none
    return spec is not None and _is_below(spec, folders)


def _is_below(spec: ModuleSpec, folders: Collection[Path]) -> bool:
    paths = [Path(path) for path in [spec.origin or "", *(spec.submodule_search_locations or ())]]
    return any(path.is_relative_to(folder) for path in paths for folder in list(folders))


def list_modules(folder: Path) -> set[str]:
    """The names of modules in a folder, if it is still there. A folder of data is none, though it may be
    called like a library."""
    names = {module.name for module in pkgutil.iter_modules([str(folder)])}
    for pattern in ("*/*.py", "*/*/*.py"):  # packages, also those without a file of their own
        names |= {path.relative_to(folder).parts[0] for path in folder.glob(pattern)}
    return names - sys.stdlib_module_names
