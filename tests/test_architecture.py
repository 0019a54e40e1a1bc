"""Who may import whom: the core without I/O, and the order of its layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--config", "pyproject.toml", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_importing_the_package_imports_no_extra_and_touches_nothing() -> None:
    script = (
        "import logging, sys, threading, warnings; before = set(sys.modules);"
        "import oip_asgi; new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new & {'ml_dtypes', 'pandas', 'flask', 'django', 'grpc', 'werkzeug', 'starlette', 'fastapi',"
        " 'prometheus_client', 'opentelemetry'}),"
        "threading.active_count(), logging.getLogger('oip_asgi').handlers)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 1 []\n"


def test_no_file_of_tests_is_longer_than_600_lines() -> None:
    files = Path(__file__).parent.rglob("*.py")
    assert [file.name for file in files if len(file.read_text().splitlines()) > 600] == []


def test_only_the_door_names_private_modules() -> None:
    """A module that moves costs one line in `tests/support/inside`, and nothing elsewhere."""
    door = ROOT / "tests/support/inside"
    files = [file for folder in ("tests", "examples") for file in (ROOT / folder).rglob("*.py") if door not in file.parents]
    assert len(files) > 200
    assert [(str(file.relative_to(ROOT)), name) for file in files for name in _private_names(file)] == []


_MAY_NAME = re.compile(r"\b_inside\b|oip_asgi[\w.]*\._[a-z]|from oip_asgi[\w.]* import[\s\S]{0,400}?\b_[a-z]|import oip_asgi[\w.]*\._")


def _private_names(file: Path) -> Iterator[str]:
    """What a file imports, or patches by a dotted name, that is private to the package; and each use of a server's inside."""
    text = file.read_text()
    if not _MAY_NAME.search(text):  # to parse all files takes seconds
        return
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = re.findall(r"\boip_asgi[\w.]+", node.value)
        elif isinstance(node, ast.Attribute) and node.attr == "_inside":
            yield node.attr
        yield from (name for name in names if re.match(r"oip_asgi\.(\w+\.)*_[a-z]", name))
