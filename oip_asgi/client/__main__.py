"""`python -m oip_asgi.client score ...` and `check ...`: the two commands of the client, which are modules
that run by themselves too."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

_USAGE: Final = """\
usage: python -m oip_asgi.client COMMAND ...

  score URL MODEL ROWS --out FILE   score a file of rows with a model
  check URL                         find what a server answers wrongly

python -m oip_asgi.client COMMAND --help has the options."""


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("score", "check"):
        try:
            return int(import_module(f"{__package__}.{arguments[0]}").main(arguments[1:]))
        except ImportError as error:  # such as that of pandas
            sys.stderr.write(f"{error}\n")
            return 2
    wants_help = arguments in (["-h"], ["--help"])
    print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
    return 0 if wants_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
