"""What the commands of the client have in common on their command lines."""

from __future__ import annotations

import argparse

from .._protocol.errors import ErrorResponse, show


def make_parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """A parser for the address of a server, a version, and headers; `about` is the docstring of the
    command."""
    parser = argparse.ArgumentParser(program, description=about.partition("\n")[0] if about else None)
    parser.add_argument("url", help="where the server's paths begin, such as http://127.0.0.1:8000/v2")
    parser.add_argument("--version", help="the version of the model")
    about_headers = 'such as "Authorization: Bearer ...", any number of times'
    parser.add_argument("--header", action="append", default=[], type=_read_header, help=about_headers)
    return parser


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{show(text)} has no colon: expected 'Name: value'")
    return name.strip(), value.strip()


def describe(error: Exception) -> str:
    """The text of an error, and what to write if the server wants to know who calls."""
    wants_key = isinstance(error, ErrorResponse) and error.response_status == 401
    return f"{error}; --header 'Name: value' sends a key" if wants_key else str(error)
