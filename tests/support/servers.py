"""Server processes of tests."""

from __future__ import annotations

import subprocess


def ready_url(process: subprocess.Popen[str]) -> str:
    """The address that a server process prints once its port listens."""
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "the server process ended before it served"
    return address
