"""What the tests of folders share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.mlserver_folders import SUMS, write


@pytest.fixture(autouse=True)
def modules() -> Any:
    """Leave no module of a folder for the next test."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(("/tmp", os.environ.get("TMPDIR", "/tmp"))):
            del sys.modules[name]


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    folder = write(tmp_path / "sums", {"implementation": "models.Sums"}, models=SUMS)
    (folder / "weights.json").write_text("[1, 10]")
    return tmp_path
