"""`python -m tests.lab.differential [--seconds 60] [--seed N]`: compares each pair of ways so long, and fails at the first difference."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random, SystemRandom

from . import pieces

WAYS = {"JSON data, as a whole and in pieces": pieces.compare}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.differential")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    for name, compare in WAYS.items():
        random, end, cases = Random(arguments.seed), time.monotonic() + arguments.seconds, 0
        while time.monotonic() < end:
            compare(random)
            cases += 1
        print(f"{name}: {cases:,} cases alike, seed {arguments.seed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
