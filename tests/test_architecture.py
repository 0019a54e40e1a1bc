"""Who may import whom: the core without I/O, and the order of its layers. How large each room may be, and who may know what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[1]
_PACKAGE = ROOT / "oip_asgi"

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


ADD_ONS: Final = ("_command", "client/check", "client/score", "mlserver", "opentelemetry", "prometheus")
"""What stands on the public face: files or folders."""


@pytest.mark.parametrize("add_on", ADD_ONS)
def test_an_add_on_uses_nothing_private_of_others(add_on: str) -> None:
    """That it imports no private module is held by import-linter too, for modules that it knows; attributes are not."""
    files = [file for file in _PACKAGE.rglob("*.py") if f"{file.relative_to(_PACKAGE).with_suffix('')}/".startswith(f"{add_on}/")]
    assert files
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    own = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    used = [node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr not in own]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    used += [part for node in imports for part in (node.module or "").split(".")]
    used += [alias.name for node in imports for alias in node.names]
    assert [name for name in used if name.startswith("_") and not name.startswith("__")] == []


def test_no_circle_of_imports() -> None:
    """Imports inside functions, and those for types only, count too: a file of a circle cannot be understood before the others."""
    package = _PACKAGE
    names = {file: ".".join(file.relative_to(package).with_suffix("").parts).removesuffix(".__init__") for file in package.rglob("*.py")}
    left = {name: set(_imported(file, package, set(names.values()))) - {name} for file, name in names.items()}
    assert len(left) > 130
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
    package = _PACKAGE
    handed = [
        f"{file.relative_to(package)}:{node.lineno}"
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.YieldFrom) and "client" not in file.parts
    ]
    assert handed == []


def test_an_import_does_nothing_but_define() -> None:
    acting = [
        f"{file.relative_to(_PACKAGE)}:{node.lineno}"
        for file in _PACKAGE.rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, (ast.For, ast.While, ast.With)) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    ]
    assert acting == []


BUDGETS: Final = {
    "_protocol": 1233,
    "_json": 569,
    "_codecs": 1980,
    "_rest": 442,
    "_models": 2439,
    "_serving": 1899,
    "_runtime": 1158,
    "_extensions": 762,
    "_docs": 331,
    "_http": 610,
    "_grpc": 1103,
    "_hosts": 295,
    "client": 1772,
    "mlserver": 739,
    "_command.py": 220,
    "prometheus.py": 153,
    "opentelemetry.py": 45,
    "faces": 1261,
}
"""Statements of each room, without docstrings. A number only falls: a feature that wants more takes it from another row, in one commit.

`faces` are the other files of the package's own folder: what users import, and what adapters share.
"""

KNOWN_IN: Final = {
    "pd_json": """
        _codecs/column_dtypes.py _codecs/columns.py _codecs/dataframes.py
        _codecs/entering.py _codecs/plain.py _docs/json_schemas.py _json/checked_data.py _models/estimators.py
        _protocol/specs.py _serving/batch.py client/check.py client/score.py specs.py
    """,
    "NaT": """
        _codecs/column_dtypes.py _codecs/columns.py _codecs/entering.py _codecs/plain.py _codecs/rows.py
        _json/checked_data.py
    """,
    "FIRST_ROUNDED": """
        _codecs/entering.py _protocol/datatypes.py _protocol/specs.py
    """,
    "pandas": """
        _codecs/column_dtypes.py _codecs/columns.py
        _codecs/content_types.py _codecs/dataframes.py _codecs/entering.py _codecs/plain.py
        _codecs/rows.py _models/estimators.py _models/handler.py _protocol/datatypes.py _protocol/limits.py
        client/__main__.py client/_clients.py client/score.py server.py
        specs.py
    """,
}
"""The files of the package that know a thing of the values, each of which has to change with it. No other file may know it."""


def test_no_room_has_more_statements_than_its_budget() -> None:
    sizes = dict.fromkeys(BUDGETS, 0)
    for file in _PACKAGE.rglob("*.py"):
        room = file.relative_to(_PACKAGE).parts[0]
        sizes[room if room in sizes else "faces"] += _count_statements(file)
    assert sum(sizes.values()) > 10_000
    assert {room: size for room, size in sizes.items() if size > BUDGETS[room]} == {}


def _count_statements(file: Path) -> int:
    return _count_of(ast.parse(file.read_text()))


def _count_of(tree: ast.AST) -> int:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sum(
        not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)) for node in nodes
    )


@pytest.mark.parametrize("thing", KNOWN_IN)
def test_who_knows_a_thing_of_the_values(thing: str) -> None:
    known = {str(file.relative_to(_PACKAGE)) for file in _PACKAGE.rglob("*.py") if re.search(rf"\b{thing}\b", file.read_text())}
    assert known == set(KNOWN_IN[thing].split())


def test_no_class_has_more_than_170_statements() -> None:
    classes = [
        (file.relative_to(_PACKAGE), node)
        for file in _PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [f"{file}: {node.name}" for file, node in classes if _count_of(node) > 170] == []


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
