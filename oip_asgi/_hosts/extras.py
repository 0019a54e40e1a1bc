"""The error for a module of this package whose extra is not installed."""

from __future__ import annotations


def make_import_error(
    error: ImportError, package: str, install: str, *, beside: str = "", also: str = ""
) -> ImportError:
    if error.name is None or error.name.partition(".")[0] not in (package.partition(".")[0], beside):
        raise error  # the package is there, but something that it needs is not
    return ImportError(f"{package} is not installed: pip install {install}{also}", name=error.name)
