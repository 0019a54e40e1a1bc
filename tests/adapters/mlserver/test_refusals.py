"""What is not honoured of folders of MLServer: what is refused, with the file, and what is named in the log."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oip_asgi import InferenceError
from tests.support.asking import ask, outputs
from tests.support.mlserver_folders import SUMS, post, serve, write

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
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path))}/model-settings.json: .*utf-8"):
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
    ):
        write(sums / "sums", {"implementation": implementation})
        with pytest.raises(InferenceError, match="failed to load 'sums'") as failed:
            serve(sums).load_sync("sums")
        assert text in str(failed.value.__cause__)
