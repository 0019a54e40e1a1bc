"""Folders of MLServer: their modules are never taken for those of others, clients find what is new, and what is not honoured is refused."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi import Access, InferenceError, InferenceServer, OIPApp
from oip_asgi.mlserver import register_folder
from tests.support.asking import ask, error, get, outputs
from tests.support.mlserver_folders import SUMS, post, serve, tensor, write
from tests.support.ways import Request, over_asgi


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
    assert "ModuleNotFoundError: No module named 'models'" in caplog.text


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


def test_models_are_loaded_when_clients_ask_for_it(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (sums / "settings.json").write_text('{"load_models_at_startup": "false", "server_name": "x"}')
    server = serve(sums, model_control=True)
    assert json.loads(post(server, "/repository/index", {}).body) == [{"name": "sums", "state": "UNAVAILABLE", "reason": "unloaded"}]
    assert error(ask(server, "sums", x=[1.0, 1.0]))[0] == 503
    assert post(server, "/repository/models/sums/load", {}).status == 200
    assert outputs(ask(server, "sums", x=[1.0, 1.0])) == {"total": [11.0]}
    (sums / "sums/weights.json").write_text("[3, 4]")
    write(
        sums / "sums",
        {"implementation": "models.Sums", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]},
        models=SUMS.replace("total", "sum"),
    )
    os.utime(sums / "sums/models.py", (1, 1))
    assert post(server, "/repository/models/sums/load", {}).status == 200
    assert get(server, "/models/sums")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [2]}]
    assert outputs(ask(server, "sums", x=[1.0, 1.0])) == {"sum": [7.0]}
    (sums / "sums/models.py").write_text(SUMS.replace("total", "mus"))  # as long, and of the same second
    os.utime(sums / "sums/models.py", (1, 1))
    assert post(server, "/repository/models/sums/load", {}).status == 200
    assert outputs(ask(server, "sums", x=[1.0, 1.0])) == {"mus": [7.0]}
    assert post(server, "/repository/models/sums/unload", {}).status == 200
    assert error(ask(server, "sums", x=[1.0, 1.0])) == (503, "model 'sums' is not ready: it was unloaded")


def test_a_model_that_was_added_to_the_folder_is_found(sums: Path) -> None:
    server = serve(sums, model_control=True)
    folder = write(sums / "later", {"implementation": "models.Sums"}, models=SUMS)
    (folder / "weights.json").write_text("[5, 5]")
    write(sums / "wrong", {})
    assert error(ask(server, "later", x=[1.0, 1.0]))[0] == 404
    for name in ("../later", "/later", "later/../later", str(folder)):
        assert post(server, f"/repository/models/{name.replace('/', '%2F')}/load", {}).status == 404
    assert post(server, "/repository/models/later/load", {}).status == 200
    assert outputs(ask(server, "later", x=[1.0, 1.0])) == {"total": [10.0]}
    write(sums / "last", {"implementation": "models.Sums"}, models=SUMS)
    assert [entry["name"] for entry in json.loads(post(server, "/repository/index", {}).body)] == ["sums", "later", "last"]


class LoadsOnly:
    """An `authorize=` for clients that may load some models, and see others, by their header `x-may`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, access: Access) -> bool:
        self.asked.append(f"{access.action} {access.model}")
        return access.action in access.headers.get("x-may", "").split()


def list_index(server: InferenceServer, may: str) -> list[str]:
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/repository/index", (("x-may", may),), b"{}"))
    return [entry["name"] for entry in json.loads(answer.body)]


def test_the_index_looks_for_new_models_only_for_who_may_load(sums: Path) -> None:
    server = serve(sums, model_control=True, authorize=LoadsOnly())
    write(sums / "later", {"implementation": "models.Sums"}, models=SUMS)
    assert list_index(server, "") == []
    assert list_index(server, "metadata infer") == ["sums"]
    assert list_index(server, "load") == []  # it sees none, so it may load none of those that it sees
    assert [model.name for model in server.models()] == ["sums"]
    refused = over_asgi(OIPApp(server), "")(Request("POST", "/repository/models/later/load", (("x-may", "metadata"),), b"{}"))
    assert refused.status == 403
    assert over_asgi(OIPApp(server), "")(Request("POST", "/repository/models/later/unload", (("x-may", "unload"),), b"{}")).status == 404
    assert [model.name for model in server.models()] == ["sums"]
    assert list_index(server, "metadata load") == ["sums", "later"]


def test_two_who_look_at_once_find_new_models_once(sums: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    server, both = serve(sums, model_control=True), threading.Barrier(2)
    for place in range(20):
        write(sums / f"later-{place}", {"implementation": "models.Sums"}, models=SUMS)
    walk = os.walk

    def slow_walk(top: Any, *args: Any, **options: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # until the other one walks too, if it does
        return walk(top, *args, **options)

    monkeypatch.setattr(os, "walk", slow_walk)
    with ThreadPoolExecutor(8) as pool:
        found = [len(json.loads(each.body)) for each in pool.map(lambda _: post(server, "/repository/index", {}), range(8))]
    assert found == [21] * 8
    assert caplog.text == ""


def test_without_model_control_a_client_finds_nothing_new(sums: Path) -> None:
    server = serve(sums)
    write(sums / "later", {"implementation": "models.Sums"}, models=SUMS)
    assert post(server, "/repository/models/later/load", {}).status == 404
    assert [entry["name"] for entry in json.loads(post(server, "/repository/index", {}).body)] == ["sums"]


HONOURED = "model-settings.json: parameters.environment_tarball cannot be honoured: all models share this Python"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "model-settings.json: Object missing required field `implementation`"),
        ({"implementation": "a.B", "max_batch_size": []}, "Expected `int`, got `array` - at `$.max_batch_size`"),
        ({"implementation": "a.B", "inputs": [{"name": "x", "datatype": "F", "shape": []}]}, "json: TensorSpec('x', 'F', []): unknown"),
        ({"implementation": "a.B", "parameters": {"environment_tarball": "./e.tar.gz"}}, HONOURED),
        ({"kafka_enabled": True}, "settings.json: kafka_enabled cannot be honoured: call the model from a consumer of your own"),
        ({"http_port": "x"}, "settings.json: Expected `int`, got `str` - at `$.http_port`"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    of_server = {"kafka_enabled", "http_port"} & settings.keys()
    (tmp_path / ("settings.json" if of_server else "model-settings.json")).write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=re.escape(text)) as refused:
        serve(tmp_path)
    assert str(tmp_path) in str(refused.value)


ODD: dict[str, Callable[[Path], object]] = {
    "deep": lambda file: file.write_text('{"implementation": "a.B", "a": ' + '{"b":' * 100_000 + "1" + "}" * 100_000 + "}"),
    "dangling": lambda file: file.symlink_to(file.parent / "nowhere"),
    "a link to itself": lambda file: file.symlink_to(file),
    "a pipe": os.mkfifo,
    "a link to a device": lambda file: file.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_file_that_cannot_be_read_is_named_and_keeps_nobody_from_the_others(
    sums: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, odd = serve(sums, model_control=True), sums / "odd/model-settings.json"
    odd.parent.mkdir()
    ODD[kind](odd)
    write(sums / "right", {"implementation": "models.Sums"}, models=SUMS)
    assert [entry["name"] for entry in json.loads(post(server, "/repository/index", {}).body)] == ["sums", "right"]
    text = f"a new model cannot be registered: {odd}"
    assert [record.getMessage().partition(": it is")[0] for record in caplog.records] == [text]
    assert post(server, "/repository/models/sums/load", {}).status == 200
    for file in (odd, sums / "settings.json"):
        if file is not odd:
            shutil.rmtree(odd.parent)
            ODD[kind](file)
        with pytest.raises(ValueError, match=f"^{re.escape(str(file))}: it is (no file, or a link that leads to none|nested too deep)$"):
            serve(sums)


def test_folders_and_pipes_that_are_called_like_modules_are_none(sums: Path) -> None:
    (sums / "sums/x.py").mkdir()
    (sums / "sums/x.py/inner.py").write_text("")
    os.mkfifo(sums / "sums/y.py")
    assert outputs(ask(serve(sums), "sums", x=[1.0, 1.0])) == {"total": [11.0]}


def test_a_file_that_is_not_utf_8_is_named_and_a_folder_without_models_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no model-settings\\.json in this folder or below it"):
        serve(tmp_path)
    (tmp_path / "model-settings.json").write_bytes(b'{"name":"caf\xe9","implementation":"a.B"}')
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path))}/model-settings.json: (?i:.*utf-8)"):
        serve(tmp_path)


def test_keys_without_effect_are_named_once(sums: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(sums / "sums", {"implementation": "models.Sums", "parallel_workers": 2, "warm_workers": True, "colour": "red"})
    (sums / "settings.json").write_text('{"grpc_port": 8081}')
    outputs(ask(serve(sums), "sums", x=[1.0, 1.0]))
    threads = "(not needed: blocking models run in worker threads, and more processes are more servers)"
    assert [record.getMessage().partition(": not used: ")[2] for record in caplog.records] == [
        "grpc_port (gRPC needs an application of your own: oip_asgi.grpc.add_to_server for a port of its own, or install(..., grpc=True))",
        f"parallel_workers {threads}; warm_workers {threads}; colour (unknown)",
    ]


def test_a_file_that_still_imports_mlserver_is_told_what_to_change(sums: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(sums / "sums", models=SUMS.replace("oip_asgi.mlserver", "mlserver"))
    caplog.set_level(logging.ERROR)
    assert ask(serve(sums), "sums", x=[1.0]).status == 503
    assert "change the file's import lines with sed -i -E" in caplog.text
    [sed] = set(re.findall("sed -i -E '.*?'", caplog.text))
    lines = (
        "from mlserver.codecs.string import StringCodec\n    from mlserver.logging import logger\nimport mlserver\nimport mlserver_own\n"
        "import mlserver  # a remark\nimport mlserver.types as t\nimport mlserver as m\nfrom mlserver_sklearn.sklearn import SKLearnModel\n"
    )
    (sums / "sums/models.py").write_text(lines)
    subprocess.run(["sh", "-c", f"{sed} {sums}/sums/*.py"], check=True)
    assert (sums / "sums/models.py").read_text() == (
        "from oip_asgi.mlserver.codecs import StringCodec\n    from oip_asgi.mlserver.logging import logger\n"
        "import oip_asgi.mlserver as mlserver\nimport mlserver_own\n"
        "import oip_asgi.mlserver as mlserver  # a remark\nimport oip_asgi.mlserver.types as t\nimport oip_asgi.mlserver as m\n"
        "from oip_asgi.mlserver.runtimes import SKLearnModel\n"
    )


def test_a_class_that_is_not_there(sums: Path) -> None:
    for implementation, text in (
        ("mlserver_xgboost.Other", "there is no mlserver_xgboost.Other here: expected mlserver_sklearn.SKLearnModel"),
        ("models.Other", "Other"),
        ("models", "expected a module and a class"),
        (["models"], "expected a module and a class"),
    ):
        write(sums / "sums", {"implementation": implementation})
        with pytest.raises(InferenceError, match="failed to load 'sums'") as failed:
            serve(sums).load_sync("sums")
        assert text in str(failed.value.__cause__)
