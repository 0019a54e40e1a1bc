"""Reads the files of the page, which are data of the package, also where that is in an archive."""

from __future__ import annotations

from importlib.resources import files

from .. import _docs as pages


def read_page(name: str) -> bytes:
    """The content of a file of the page."""
    return files(pages).joinpath("static", name).read_bytes()
