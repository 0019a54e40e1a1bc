"""Add-ons stand on the public face: their own tests, against a copy of the package in which each private module has another name.

All that imports one is changed with it, but for the add-ons, which have to work as they are.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment
from tests.test_architecture import ADD_ONS

pytestmark = pytest.mark.ci

TESTS = {
    "_command": ["test_command.py"],
    "client/check": ["client/test_check.py"],
    "client/score": ["client/test_score_of_cut_runs.py", "client/test_score_of_estimators.py", "client/test_score_of_refused_rows.py"],
    "mlserver": ["mlserver/test_codecs.py", "mlserver/test_folders.py"],
    "opentelemetry": ["test_opentelemetry.py"],
    "prometheus": ["test_prometheus.py"],
}
"""Of each add-on, below `tests/adapters`: those that reach all of its files."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("moved")
    for name in ("oip_asgi", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "lab"))
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "examples").symlink_to(ROOT / "examples")
    package = root / "oip_asgi"
    own = [package / add_on for add_on in ADD_ONS] + [package / f"{add_on}.py" for add_on in ADD_ONS]
    private = [path for path in package.rglob("_[a-z]*") if path.suffix in ("", ".py") and path not in own]
    private = [path for path in private if path.suffix or any(path.glob("*.py"))]
    names = {path.stem for path in private}
    assert len(names) > 20
    for file in [*package.rglob("*.py"), *(root / "tests/support/inside").rglob("*.py")]:
        if not any(file == each or each in file.parents for each in own):
            file.write_text(_rename_imports(file.read_text(), names))
    for path in sorted(private, reverse=True):  # a folder after what is in it
        path.rename(path.with_name(f"{path.stem}_moved{path.suffix}"))
    return root


def _rename_imports(text: str, names: set[str]) -> str:
    """A file whose imports have the new names."""
    lines = text.splitlines(keepends=True)
    name = re.compile(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and name.search(ast.unparse(node))):
            for at in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[at] = name.sub(r"\1_moved", lines[at])
    return "".join(lines)


def test_each_add_on_has_tests_here() -> None:
    assert TESTS.keys() == set(ADD_ONS)


@pytest.mark.parametrize("add_on", TESTS)
def test_an_add_on_needs_no_private_module(copy: Path, add_on: str) -> None:
    files = [f"tests/adapters/{name}" for name in TESTS[add_on]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command, cwd=copy, env=environment({"PYTHONPATH": str(copy)}), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^[0-9]+ passed", done.stdout, re.MULTILINE)


def test_a_private_module_has_moved(copy: Path) -> None:
    """The tests above ask the copy."""
    script = "import oip_asgi; from oip_asgi import _protocol_moved; print(oip_asgi.__file__); from oip_asgi import _protocol"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=copy, env=environment({"PYTHONPATH": str(copy)}), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (1, str(copy / "oip_asgi/__init__.py"))
    assert "cannot import name '_protocol' from 'oip_asgi'" in done.stderr
