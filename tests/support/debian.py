"""Programs from Debian's packages, unpacked beside the system: `python -m tests.support.debian [--with-needed] FOLDER PACKAGE...`."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path


def with_needed(packages: list[str]) -> list[str]:
    """Packages, and those that they need and the system does not have."""
    command = ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted({*packages, *(line.split()[1] for line in lines if line.startswith("Inst "))})


def unpack(folder: Path, packages: list[str]) -> None:
    """Download packages, and unpack them into a folder; nothing where it is there already."""
    if folder.exists():
        return
    downloads = folder.with_name(f"{folder.name}.downloads")
    downloads.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *packages], cwd=downloads, check=True)
    for package in downloads.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-needed", action="store_true", help="unpack what they need and the system does not have, too")
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="+")
    given = parser.parse_args()
    unpack(given.folder, with_needed(given.packages) if given.with_needed else given.packages)
