"""The recipes of examples/models, each with the libraries of its own: what is not installed is skipped, but in its own environment of tox.

`--check` of a recipe runs the two commands of its docstring as processes, and asks what they serve.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ROOT, documented

MODELS = ROOT / "examples" / "models"
NEEDS = {
    "lightgbm_booster": ["lightgbm", "pandas"],
    "mlflow_pyfunc": ["mlflow", "sklearn"],
    "mlflow_scoring": ["mlflow", "sklearn"],
    "onnx_session": ["onnxruntime", "pandas", "skl2onnx", "tritonclient"],
    "pillow_image": ["PIL", "sklearn"],
    "sklearn_pipeline": ["pandas", "sklearn"],
    "text_transformer": ["torch", "transformers"],
    "torch_module": ["sklearn", "torch", "tritonclient"],
}
"""Each recipe, and the modules that it imports beside the package's own, uvicorn's and httpx2's."""

SEEN = {
    "lightgbm_booster": r"München +31\.9 +1 +649\.0 +6\d\d\.\d\n.*\nin a town that it does not know 200\n",
    "mlflow_pyfunc": r"weather BYTES \[-1\]\ntemperature FP64 \[-1\]\nis_holiday BOOL \[-1\]\nstations FP64 \[-1\]\noutput_0 FP64 \[-1\]\n",
    "mlflow_scoring": r"/invocations +\[0, 0, 1, 1, 1\]\n/v2/models/iris/infer +\[0, 0, 1, 1, 1\]\nwithout a column 400 .*petal width",
    "onnx_session": r"weather BYTES \[-1, 1\]\ntemperature FP32 \[-1, 1\]\nlabel BYTES \[-1\]\nprobabilities FP32 \[-1, 2\]\n"
    r"\[b'much', b'little', b'much'\]",
    "pillow_image": r"as files  ([ \d]+)\nas base64 \1\ntrue digit.*\nhalf a file 400 the image cannot be read: image file is truncated",
    "sklearn_pipeline": r"by hand \[True, False\]\nwithout a column 400 .*spent",
    "text_transformer": r"the soup was not lovely +bad \d\.\d{3}\n.*\n3[5-9] of 39 are right\n",
    "torch_module": r"9[5-9]\.\d% of 360 are right",
}
"""What each prints, the numbers of its training aside."""


def test_every_recipe_is_run() -> None:
    assert {path.stem for path in MODELS.glob("*.py")} - {"checking"} == NEEDS.keys() == SEEN.keys()


@pytest.mark.parametrize("recipe", NEEDS)
def test_the_docstring_has_the_commands(recipe: str) -> None:
    commands = documented(MODELS / f"{recipe}.py")
    file = f"examples/models/{recipe}.py"
    assert commands[0].startswith("pip install ")
    assert commands[-3:] == [f"python {file}", f"uvicorn --factory --app-dir examples/models {recipe}:make_app", f"python {file} --check"]


@pytest.mark.parametrize("recipe", NEEDS)
def test_a_recipe_answers_as_its_model(recipe: str) -> None:
    skip_without(NEEDS[recipe], recipe)
    command = [sys.executable, f"examples/models/{recipe}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(SEEN[recipe], done.stdout, re.DOTALL), done.stdout
    assert done.stdout.endswith("The answers are right.\n")


def skip_without(modules: Sequence[str], recipe: str) -> None:
    """Skip what cannot be run here. In the environment of a recipe that recipe is never skipped, and all others are."""
    here, its_own = os.environ.get("TOX_ENV_NAME", ""), f"recipe-{recipe}"
    if here == its_own:
        return
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: tox -e {its_own}")
    if here.startswith("recipe-"):
        pytest.skip(f"runs in an environment of its own: tox -e {its_own}")


RECIPE = """
import sys
from oip_asgi import InferenceServer, OIPApp

def make_app():
    server = InferenceServer()
    server.register("here", load=load)
    return OIPApp(server, path="/v2")

def load():
    {loading}

if __name__ == "__main__" and "--check" in sys.argv:
    sys.path.insert(0, {models!r})
    from checking import check
    sys.exit(check(__file__, lambda url: {answer}))
"""


@pytest.mark.parametrize(
    ("loading", "answer", "said"),
    [("return abs", "False", "The answers are wrong.\n"), ("raise OSError", "True", ""), ("import os; os._exit(3)", "True", "")],
)
def test_a_recipe_that_is_wrong_fails(loading: str, answer: str, said: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text(RECIPE.format(loading=loading, answer=answer, models=str(MODELS)))
    done = subprocess.run([sys.executable, recipe, "--check"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, said), done.stderr
