"""Programs from Debian's packages, unpacked beside the system: `python -m tests.support.debian FOLDER PACKAGE...`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


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
    unpack(Path(sys.argv[1]), sys.argv[2:])
