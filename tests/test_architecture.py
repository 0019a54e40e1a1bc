"""Who may import whom: the core without I/O, and the order of its layers. How long files, functions, classes and ways of requests are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.lab.bench import walks

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[1]

_Documented: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


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


def test_no_circle_of_imports() -> None:
    """Imports inside functions, and those for types only, count too: a file of a circle cannot be understood before the others."""
    package = ROOT / "oip_asgi"
    names = {file: ".".join(file.relative_to(package).with_suffix("").parts).removesuffix(".__init__") for file in package.rglob("*.py")}
    left = {name: set(_imported(file, package, set(names.values()))) - {name} for file, name in names.items()}
    assert len(left) > 150
    assert sum(map(len, left.values())) > 700
    while leaves := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported - leaves for name, imported in left.items() if name not in leaves}
    circles = {frozenset(other for other in left if other in _reach(name, left) and name in _reach(other, left)) for name in left}
    assert [sorted(circle) for circle in circles if len(circle) > 1] == []


def _imported(file: Path, package: Path, modules: set[str]) -> Iterator[str]:
    """The modules of the package that a file names in an import, wherever it stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parents[node.level - 1].relative_to(package).parts
            module = [*folder, *(node.module or "").split(".")] if node.module else [*folder]
            for alias in node.names:
                yield next(name for name in (".".join([*module, alias.name]), ".".join(module), "__init__") if name in modules)


def _reach(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached, ahead = set[str](), [name]
    while ahead:
        following = imports.get(ahead.pop(), set()) - reached
        reached |= following
        ahead += following
    return reached


def test_what_waits_is_awaited_and_never_handed_through_generators() -> None:
    package = ROOT / "oip_asgi"
    handed = [
        f"{file.relative_to(package)}:{node.lineno}"
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.YieldFrom) and "client" not in file.parts
    ]
    assert handed == []


def test_no_function_is_longer_than_45_lines_without_its_docstring() -> None:
    assert {name: lines for name, lines in _lengths(ast.FunctionDef, ast.AsyncFunctionDef) if lines > 45} == {}


def test_no_class_is_longer_than_200_lines_without_its_docstrings() -> None:
    """`InferenceServer` is what users read, so it may be."""
    long = {name for name, lines in _lengths(ast.ClassDef) if lines > 200}
    assert long == {"server.py: InferenceServer"}


def _lengths(*kinds: type[_Documented]) -> Iterator[tuple[str, int]]:
    """How many lines each function or class of the package has, without its docstring and those within it."""
    package = ROOT / "oip_asgi"
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, kinds):
                docstrings = sum(
                    _count_lines(each.body[0]) for each in ast.walk(node) if isinstance(each, _Documented) and ast.get_docstring(each)
                )
                yield f"{file.relative_to(package)}: {node.name}", _count_lines(node) - docstrings


def _count_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("name", walks.WALKS)
def test_a_small_request_makes_few_calls_in_few_files(name: str) -> None:
    """A reader has to know these files to follow it, and calling functions is most of its time."""
    most_calls, most_files = walks.most_calls(name), walks.most_files(name)
    walk = walks.record(name, (most_calls, most_files))
    print(f"{name}: {len(walk.calls)} calls, {most_calls} at most; {len(walk.files)} files of {walk.lines:,} lines, {most_files} at most")
    assert len(walk.calls) <= most_calls, walk.calls
    assert len(walk.files) <= most_files, walk.files


def test_each_walk_has_its_aims() -> None:
    assert walks.aims().keys() == walks.WALKS.keys()


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
