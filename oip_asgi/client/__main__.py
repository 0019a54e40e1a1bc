"""`python -m oip_asgi.client score ...` and `check ...`: the commands of the client, and what their command
lines share."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Final

from .. import ErrorResponse, InferenceError

_USAGE: Final = """\
usage: python -m oip_asgi.client COMMAND ...

  score URL MODEL ROWS --out FILE   score a file of rows with a model
  check URL --model MODEL           find what a server answers wrongly

python -m oip_asgi.client COMMAND --help has the options."""


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in ("score", "check"):
        wants_help = arguments in (["-h"], ["--help"])
        print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    try:
        command = import_module(f"{__package__}.{name}")
    except ImportError as error:
        sys.stderr.write(f"{error}: {name} needs pandas: pip install pandas\n")
        return 2
    parser = argparse.ArgumentParser(
        f"python -m oip_asgi.client {name}", description=str(command.__doc__).partition("\n")[0]
    )
    parser.add_argument("url", help="where the server's paths begin, such as http://127.0.0.1:8000/v2")
    parser.add_argument("--version", help="the version of the model")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_read_header,
        help='such as "Authorization: Bearer ...", any number of times',
    )
    for argument, settings in command.ARGUMENTS.items():
        parser.add_argument(argument, **settings)
    try:
        return int(command.run(parser.parse_args(arguments[1:])))
    except (InferenceError, ImportError, OSError, ValueError) as error:
        wants_key = isinstance(error, ErrorResponse) and error.response_status == 401
        remedy = "; --header 'Name: value' sends a key" if wants_key else ""
        sys.stderr.write(f"{command.ENDED}: {error}{remedy}\n")
        return 2


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} has no colon: expected 'Name: value'")
    return name.strip(), value.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
