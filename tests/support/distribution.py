"""What is in the wheel and in the source distribution: `python -m tests.support.distribution FOLDER`. Needs no extra."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

TOP = {".ci", ".github", ".gitignore", "examples", "oip_asgi", "tests", "PKG-INFO", "README.md", "pyproject.toml", "tox.ini"}
IN_WHEEL = {"CHANGELOG.md", "LICENSE", "py.typed", "client/checks.json", "_docs/static/page.html", "_docs/static/page.js"}


def check_wheel(path: Path) -> None:
    """The package, its changes and its licence, and no other text; a description whose links lead somewhere from any place."""
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        [metadata] = [wheel.read(name) for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert {name.partition("/")[0] for name in names} == {"oip_asgi"}, names
    assert {f"oip_asgi/{name}" for name in IN_WHEEL} <= set(names), names
    assert [name for name in names if name.endswith(".md")] == ["oip_asgi/CHANGELOG.md"], names
    description = str(BytesParser().parsebytes(metadata).get_payload())
    assert description.startswith("# oip_asgi\n")
    assert re.findall(r"\]\((?!https?://)[^)]*\)|<img", description) == []


def check_source(path: Path) -> None:
    """All of the repository that is needed to test it."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {name.partition("/")[0] for name in names} == TOP, names
    assert {"tests/README.md", "tests/table/test_table.py", "examples/quickstart.py", "examples/guide/models.md"} <= set(names)
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    [built], [source] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(built)
    check_source(source)
