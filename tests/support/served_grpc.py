"""A gRPC server process for tests with real clients: `python -m tests.support.served_grpc grpc|grpc.aio` prints its address."""

from __future__ import annotations

import sys
import threading

from tests.support.grpc_ways import SERVINGS
from tests.support.served import make_server


def main() -> None:
    with SERVINGS[sys.argv[1]](make_server()) as address:
        print(address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
