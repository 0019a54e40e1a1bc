"""The page's scripts in Node: what their functions return, without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import oip_asgi

STATIC = Path(oip_asgi.__file__).parent / "_docs" / "static"

needs_node = [pytest.mark.ci, pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")]
"""Each expression starts Node; what a script returns is the same on each machine, so .ci/run asks, and a plain `pytest` does not."""


class Scripts:
    """A copy of the scripts, which Node takes for modules."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for script in STATIC.glob("*.js"):
            shutil.copy(script, folder)
        (folder / "package.json").write_text('{"type": "module"}')

    def value_of(self, expression: str, **values: Any) -> Any:
        """What an expression is, in which each script is an object of its name, and each of `values` what it is in JSON."""
        names = [script.stem for script in STATIC.glob("*.js") if script.name != "page.js"]  # that one begins to ask the server
        imports = [f'import * as {name} from "./{name}.js";' for name in names]
        constants = [f"const {name} = {json.dumps(value)};" for name, value in values.items()]
        lines = [*imports, *constants, f"console.log(JSON.stringify(await {expression}));"]
        command, script = ["node", "--input-type=module"], "\n".join(lines)
        ran = subprocess.run(command, cwd=self._folder, input=script, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout) if ran.stdout.strip() != "undefined" else None

    def values_of(self, expression: str, cases: Sequence[Any]) -> list[Any]:
        """What an expression is for each of the cases, which it calls `given`, or the message of what it throws, in one Node."""
        called = f"(given) => {{ try {{ return {expression}; }} catch (error) {{ return error.message; }} }}"
        found = self.value_of(f"cases.map({called})", cases=cases)
        assert isinstance(found, list)
        return found
