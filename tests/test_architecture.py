"""Who may import whom: the core without I/O, and the order of its layers."""

from __future__ import annotations

import subprocess
import sys
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
        "print(sorted(new & {'ml_dtypes', 'pandas', 'flask', 'django', 'grpc', 'orjson', 'simdjson', 'starlette', 'fastapi',"
        " 'prometheus_client', 'opentelemetry'}),"
        "threading.active_count(), logging.getLogger('oip_asgi').handlers)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 1 []\n"


def test_no_file_of_tests_is_longer_than_600_lines() -> None:
    files = Path(__file__).parent.rglob("*.py")
    assert [file.name for file in files if len(file.read_text().splitlines()) > 600] == []
