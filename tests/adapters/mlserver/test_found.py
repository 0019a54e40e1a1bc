"""The repository of a folder: clients load its models, and find what is new in it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oip_asgi import Access, InferenceServer, OIPApp
from tests.support.asking import ask, error, get, outputs
from tests.support.mlserver_folders import SUMS, post, serve, write
from tests.support.ways import Request, over_asgi


def test_models_are_loaded_when_clients_ask_for_it(sums: Path) -> None:
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
    server, walks, both = serve(sums, model_control=True), list[str](), threading.Barrier(2)
    for place in range(20):
        write(sums / f"later-{place}", {"implementation": "models.Sums"}, models=SUMS)
    walk = os.walk

    def slow_walk(top: Any, *args: Any, **options: Any) -> Any:
        walks.append(str(top))
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # until the other one walks too, if it does
        return walk(top, *args, **options)

    monkeypatch.setattr(os, "walk", slow_walk)
    with ThreadPoolExecutor(8) as pool:
        found = [len(json.loads(each.body)) for each in pool.map(lambda _: post(server, "/repository/index", {}), range(8))]
    assert found == [21] * 8
    assert len(walks) < 8  # mostly one that was under way, and one for all who asked meanwhile
    assert caplog.text == ""


def test_without_model_control_a_client_finds_nothing_new(sums: Path) -> None:
    server = serve(sums)
    write(sums / "later", {"implementation": "models.Sums"}, models=SUMS)
    assert post(server, "/repository/models/later/load", {}).status == 404
    assert [entry["name"] for entry in json.loads(post(server, "/repository/index", {}).body)] == ["sums"]
