"""The package where nobody installed it: a copied folder, and a zip archive, beside what it depends on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import oip_asgi
from tests.support.processes import environment

ASK = """
import json, oip_asgi
from importlib.metadata import PackageNotFoundError, version
from werkzeug.test import Client
from oip_asgi import InferenceServer, OIPWSGIApp
try:
    version("oip_asgi")
except PackageNotFoundError:
    pass
else:
    raise AssertionError("it is installed here")
client = Client(OIPWSGIApp(InferenceServer()))
print(json.dumps([oip_asgi.__file__, client.get("/").json["version"], client.get("/docs").status_code]))
"""


@pytest.mark.parametrize("is_zipped", [False, True], ids=["folder", "zip"])
def test_the_server_has_a_version_where_the_package_has_no_metadata(is_zipped: bool, tmp_path: Path) -> None:
    packages, copies = tmp_path / "packages", tmp_path / "copies"
    packages.mkdir()
    for each in Path(msgspec.__file__).parents[1].iterdir():
        if not each.name.startswith(("oip_asgi", "_oip_asgi", "__editable__")):
            (packages / each.name).symlink_to(each)
    shutil.copytree(Path(oip_asgi.__file__).parent, copies / "oip_asgi", ignore=shutil.ignore_patterns("__pycache__"))
    place = Path(shutil.make_archive(str(tmp_path / "copies"), "zip", copies)) if is_zipped else copies
    env = environment({"PYTHONPATH": f"{place}:{packages}"})
    done = subprocess.run([sys.executable, "-S", "-c", ASK], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    file, version, page = json.loads(done.stdout)
    assert file.startswith(str(place))
    assert (version, page) == (oip_asgi.__version__, 200)
