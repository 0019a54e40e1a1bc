"""Modules of a folder: they are imported again, and never taken for those of another folder or of the host."""

from __future__ import annotations

import importlib
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer
from oip_asgi.mlserver import register_folder
from tests.support.asking import ask, outputs
from tests.support.mlserver_folders import SUMS, post, serve, tensor, write


def test_several_models_and_versions_with_modules_of_one_name(sums: Path) -> None:
    for version in ("v1", "v2"):
        settings = {"name": "many", "implementation": "models.Sums", "parameters": {"version": version, "uri": "weights.json"}}
        folder = write(sums / version, settings, models="from helper import Sums\n", helper=SUMS.replace('"total"', f'"{version}"'))
        (folder / "weights.json").write_text("[2, 2]")
    server = serve(sums)
    assert [[*outputs(ask(server, name, x=[1.0, 1.0]))] for name in ("sums", "many", "many/versions/v1")] == [["total"], ["v2"], ["v1"]]
    assert "models" not in sys.modules  # a pickle that names it would get the class of another model
    assert "helper" not in sys.modules


def test_a_folder_of_data_that_is_called_like_a_library_hides_nothing(sums: Path) -> None:
    (sums / "sums" / "numpy").mkdir()
    (sums / "sums" / "numpy" / "weights.bin").write_bytes(b"1")
    assert outputs(ask(serve(sums), "sums", x=[1.0, 2.0])) == {"total": [21.0]}
    assert sys.modules["numpy"] is np


def test_a_module_of_the_host_stays(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = type(sys)("models")
    monkeypatch.setitem(sys.modules, "models", own)
    assert outputs(ask(serve(sums), "sums", x=[1.0, 1.0])) == {"total": [11.0]}
    assert sys.modules["models"] is own


def test_pickles_find_the_classes_of_the_only_module_of_its_name(sums: Path) -> None:
    assert outputs(ask(serve(sums), "sums", x=[1.0, 1.0])) == {"total": [11.0]}
    assert sys.modules["models"].__file__ == str(sums / "sums/models.py")


def test_a_folder_that_is_registered_twice_is_refused_and_loads_as_before(sums: Path) -> None:
    server = serve(sums)
    assert outputs(ask(server, "sums", x=[1.0, 1.0])) == {"total": [11.0]}
    for number in range(2):
        with pytest.raises(ValueError, match="sums"):
            register_folder(server, sums)
        write(sums / "sums", models=f"{SUMS}\nNUMBER = {10**number}\n")  # of another length: bytecode of the same second counts
        server.load_sync("sums")
        assert vars(sys.modules["models"])["NUMBER"] == 10**number  # the one that serves, so that pickles find its classes


WHO = """
from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.codecs import decode_args


class Who(MLModel):
    @decode_args
    async def predict(self, x: list[str]) -> list[str]:
        return [{who!r}]
"""


def ask_who(server: InferenceServer) -> dict[str, Any]:
    x = tensor("x", "BYTES", [1], ["?"])
    answers = {name: post(server, f"/models/{name}/infer", {"inputs": [x]}) for name in "ab"}
    return {name: outputs(answer)["output-0"] if answer.status == 200 else answer.status for name, answer in answers.items()}


def test_packages_of_one_name_without_a_file_of_their_own(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "src/model").mkdir(parents=True)
        (tmp_path / name / "src/model/runtime.py").write_text(WHO.format(who=name))
        write(tmp_path / name, {"implementation": "src.model.runtime.Who"})
    server = serve(tmp_path)
    assert ask_who(server) == {"a": ["a"], "b": ["b"]}
    (tmp_path / "a/src/model/runtime.py").write_text(WHO.format(who="a, later"))
    server.load_sync("a")
    assert ask_who(server) == {"a": ["a, later"], "b": ["b"]}


@pytest.mark.parametrize("is_one_root", [True, False])
def test_a_pickle_never_finds_the_class_of_another_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_one_root: bool) -> None:
    pickled = "\nasync def load(self):\n    self.t = pickle.loads(b'cfeats\\nT\\n.')\n    return True\n\n\nWho.load = load\n"
    server = InferenceServer(model_control=True)
    for name in "ab":
        feats = f"class T:\n    who = {name!r}\n"
        root = tmp_path / ("one" if is_one_root else name)
        write(root / name, {"implementation": "who.Who"}, feats=feats, who="import pickle\nimport feats\n" + WHO.format(who=name) + pickled)
        if name == "a" or not is_one_root:
            register_folder(server, root)
        if name == "a":
            server.load_sync("a")
    assert post(server, "/repository/models/b/load", {}).status == 500
    assert "No module named 'feats': another folder or the application has a module of this name too" in caplog.text
    assert ask_who(server) == {"a": ["a"], "b": 503}


def test_a_folder_that_is_gone_keeps_no_other_model_from_being_loaded(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name, {"implementation": "who.Who"}, who=WHO.format(who=name))
    server = serve(tmp_path, model_control=True)
    assert ask_who(server) == {"a": ["a"], "b": ["b"]}
    shutil.rmtree(tmp_path / "b")
    server.load_sync("a")
    write(tmp_path / "c", {"implementation": "who.Who"}, who=WHO.format(who="c"))
    assert post(server, "/repository/models/c/load", {}).status == 200
    assert ask_who(server) == {"a": ["a"], "b": ["b"]}  # what is loaded serves on


def test_an_import_within_a_function_finds_the_folders_own_module(tmp_path: Path) -> None:
    late = """
async def load(self):
    import parts.own
    from parts import other
    assert parts.own.WHO == other.WHO
    return True

async def predict(self, payload):
    import later
    self.who = later.WHO
    return await answer(self, payload)

answer, Who.load, Who.predict = Who.predict, load, predict
"""
    for name in "ab":
        (tmp_path / name / "parts").mkdir(parents=True)
        (tmp_path / name / "parts/own.py").write_text(f"WHO = {name!r}\n")
        (tmp_path / name / "parts/other.py").write_text("from .own import WHO\nimport later\nassert later.WHO == WHO\n")
        who = WHO.format(who=name).replace(f"[{name!r}]", "[self.who]") + late
        write(tmp_path / name, {"implementation": "who.Who"}, who=who, later=f"WHO = {name!r}\n")
    assert ask_who(serve(tmp_path)) == {"a": ["a"], "b": ["b"]}


def test_a_module_that_is_not_there_has_its_plain_name_in_the_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/own.py").write_text("")
    write(tmp_path, {"name": "a", "implementation": "who.Who"}, who="import src.missing")
    assert ask(serve(tmp_path), "a", x=[1.0]).status == 503
    assert "ModuleNotFoundError: No module named 'src.missing'\n" in caplog.text


def test_a_model_whose_file_is_missing_never_gets_that_of_another_folder(sums: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(sums / "lost", {"name": "lost", "implementation": "models.Sums"})
    server = serve(sums)
    assert [*outputs(ask(server, "sums", x=[1.0, 1.0]))] == ["total"]  # so the plain name is that of its module
    assert "models" in sys.modules
    assert ask(server, "lost", x=[1.0]).status == 503
    assert "ModuleNotFoundError: No module named 'models'\n" in caplog.text


def test_what_the_host_imports_during_a_load_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the model has imported its module of that name, and after it has."""
    write(tmp_path / "host", helpers="WHO = 'host'\n", unused="WHO = 'host'\n")
    monkeypatch.syspath_prepend(tmp_path / "host")
    gate: Any = type(sys)("gate")
    gate.steps = [threading.Event() for _ in range(4)]
    monkeypatch.setitem(sys.modules, "gate", gate)
    imports = "import gate\n{}import helpers\n{}import unused\nassert helpers.WHO == unused.WHO == 'a'\n".format(
        *(f"gate.steps[{at}].set()\nassert gate.steps[{at + 1}].wait(20)\n" for at in (0, 2))
    )
    own = "WHO = 'a'\n"
    write(tmp_path / "models/a", {"implementation": "who.Who"}, helpers=own, unused=own, who=imports + WHO.format(who="a"))
    write(tmp_path / "models/b", {"implementation": "who.Who"}, who=WHO.format(who="b"))
    server, seen, path = serve(tmp_path / "models"), list[str](), list(sys.path)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(server.load_sync, "a")
        for at, name in ((0, "helpers"), (2, "unused")):
            assert gate.steps[at].wait(20)
            seen += [importlib.import_module(each).WHO for each in ("helpers", name)]
            assert sys.path == path
            gate.steps[at + 1].set()
        loading.result(20)
    for name in ("helpers", "unused"):
        assert sys.modules.pop(name).WHO == "host"
    assert seen == ["host"] * 4
    assert ask_who(server) == {"a": ["a"], "b": ["b"]}
    assert caplog.text == ""


def test_pickles_find_classes_in_packages_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "a/src/model").mkdir(parents=True)
    (tmp_path / "a/src/model/feats.py").write_text("class T:\n    who = 'a'\n")
    load = "\nasync def load(self):\n    return pickle.loads(b'csrc.model.feats\\nT\\n.') is T\n\n\nWho.load = load\n"
    who = f"import pickle\nfrom src.model.feats import T\n{WHO.format(who='a')}{load}"
    write(tmp_path / "a", {"implementation": "who.Who"}, who=who)
    write(tmp_path / "b", {"implementation": "other.Who"}, other=WHO.format(who="b"))
    assert ask_who(serve(tmp_path)) == {"a": ["a"], "b": ["b"]}


def test_the_host_imports_its_own_module_later(sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "models.py").write_text("PRICE = 3\n")
    monkeypatch.syspath_prepend(host)
    assert outputs(ask(serve(sums), "sums", x=[1.0, 1.0])) == {"total": [11.0]}
    assert importlib.import_module("models").PRICE == 3


def test_a_file_that_ends_the_process_fails_to_load(sums: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(sums / "sums", models="import sys\nsys.exit('set WEIGHTS first')\n")
    assert ask(serve(sums), "sums", x=[1.0]).status == 503
    assert "models ended with SystemExit: set WEIGHTS first" in caplog.text
