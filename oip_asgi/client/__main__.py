"""`python -m oip_asgi.client score ...` and `check ...`: the two commands of the client, which are modules that run by themselves too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from . import check, score

COMMANDS: Final[dict[str, Callable[[list[str]], int]]] = {"score": score.main, "check": check.main}

_USAGE: Final = """\
usage: python -m oip_asgi.client COMMAND ...

  score URL MODEL ROWS --out FILE   score a file of rows with a model
  check URL                         find what a server answers wrongly

python -m oip_asgi.client COMMAND --help has the options."""


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    wants_help = arguments in (["-h"], ["--help"])
    print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
    return 0 if wants_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
