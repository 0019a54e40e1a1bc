"""`python -m tests.lab.fuzz [--seconds 300]`: fuzzes each target for its share of the time, and prints how many runs each had.

Needs atheris. What makes a target fail is written to `found`, where the tests keep it from coming back.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND = Path(__file__).parent / "found"
NAMES = ("exchange", "document", "json_data", "raw", "coding", "message")


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["oip_asgi"]):
        from .targets import TARGETS, checked, seeds

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(name)):
            Path(corpus, str(number)).write_bytes(seed)
        options = [f"-max_total_time={seconds}", f"-artifact_prefix={FOUND}/{name}-", "-max_len=20000", "-timeout=30", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *options, corpus], lambda data: checked(TARGETS[name], data))
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fuzz")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--target", choices=NAMES)
    arguments = parser.parse_args()
    if arguments.target:
        fuzz(arguments.target, arguments.seconds)
    share = max(1, arguments.seconds // len(NAMES))
    failed = False
    rows = []
    for name in NAMES:
        command = [sys.executable, "-m", "tests.lab.fuzz", "--target", name, "--seconds", str(share)]
        print(f"fuzzing {name} for {share} seconds", flush=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace", timeout=share + 120)
        runs = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
        coverage = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
        has_failed = done.returncode != 0 or runs is None
        if has_failed:
            failed = True
            print(done.stdout[-3000:], done.stderr[-6000:])
        covered = " and ".join(coverage[-1]) if coverage else "-"
        count = f"{int(runs[1]):,}" if runs else "-"
        rows.append(f"| {name} | {count} | {covered} | {'SEE ABOVE' if has_failed else 'none'} |")
    print("\n| target | runs | edges and features reached | failures |\n|---|---|---|---|")
    print("\n".join(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
