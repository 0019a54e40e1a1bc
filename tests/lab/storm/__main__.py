"""`python -m tests.lab.storm [--seconds 600] [--seed 0]`: rounds of random requests at models with batches, each answer compared with
that of the same model without.

The requests are good, bad, too large for a batch, poisoned, cancelled, and come from two event loops and threads at once. It prints what it
has seen, and fails at the first answer that differs, with the seed of its round, by which that round can be played again.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from tests.support.batch_models import make_server
from tests.support.batch_rounds import Servers, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.storm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first round; each round has the next")
    arguments = parser.parse_args()
    logging.getLogger("oip_asgi").setLevel(logging.CRITICAL)
    settings = [
        make_server(is_batched=True, delay=0.0),
        make_server(is_batched=True, delay=0.002),
        make_server(is_batched=True, delay=0.002, max_concurrency=3, max_batch_size=4),
    ]
    storms = [Servers(batched) for batched in settings]
    until, told, seed = time.monotonic() + arguments.seconds, time.monotonic(), arguments.seed
    while time.monotonic() < until:
        for servers in storms:
            try:
                play(servers, random.Random(seed))
            except AssertionError as error:
                print(f"round {seed}: {error}", file=sys.stderr)
                return 1
            seed += 1
        if time.monotonic() - told > 10:
            told = time.monotonic()
            _tell(storms)
    _tell(storms)
    for servers in storms:
        servers.batched.stop()
        if servers.executions() >= servers.answered:
            print("no requests shared a call, so this has shown nothing", file=sys.stderr)
            return 1
    return 0


def _tell(storms: list[Servers]) -> None:
    asked, answered = sum(servers.asked for servers in storms), sum(servers.answered for servers in storms)
    executions = sum(servers.executions() for servers in storms)
    print(f"{asked:,} asked, {answered:,} answered, each as without batches, by {executions:,} calls", flush=True)


if __name__ == "__main__":
    sys.exit(main())
