"""One folder served by MLServer 1.7.1, and by `python -m oip_asgi` after its `sed`: the same requests have the same answers.

MLServer runs in its own environment, as in `test_mlserver`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oip_asgi.mlserver.folder import SED
from tests.support.mlserver_folders import ECHO, HELLO, QUESTIONS, SUMS, WORDS, write
from tests.support.processes import free_port, serving

PYTHON = os.environ.get("MLSERVER_PYTHON")

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="MLSERVER_PYTHON does not name the Python of an environment with mlserver: tox -e peers"
)

WRITES = """
from datetime import datetime, timezone

import numpy as np
import pandas as pd
from mlserver import MLModel
from mlserver.codecs import Base64Codec, DatetimeCodec, NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec
from mlserver.codecs.string import StringRequestCodec
from mlserver.errors import InferenceError
from mlserver.logging import logger
from mlserver.types import InferenceResponse, Parameters, RequestOutput, ResponseOutput


class Writes(MLModel):
    async def predict(self, payload):
        how = StringCodec.decode_input(payload.inputs[0])[0]
        logger.info(how)
        return getattr(self, how)(payload)

    def arrays(self, payload):
        values = {"a": np.arange(6).reshape(2, 3), "b": np.array([1.5], np.float32), "c": np.array(["x", "yy"]), "d": np.array([True])}
        return self._respond([NumpyCodec.encode_output(name, value) for name, value in values.items()])

    def lists(self, payload):
        when = [datetime(2020, 1, 2, 3, 4, 5), datetime(2020, 1, 2, tzinfo=timezone.utc)]
        text, bare = StringCodec.encode_output("a", ["x", "ü"]), StringCodec.encode_output("b", ["x"], use_bytes=False)
        return self._respond([text, bare, Base64Codec.encode_output("c", [b"\\xff"]), DatetimeCodec.encode_output("d", when)])

    def plain(self, payload):
        parameters = Parameters(content_type="np", n=3, text="s")
        one = ResponseOutput(name="a", datatype="FP64", shape=[2], data=[1.5, 2.5], parameters=parameters)
        return self._respond([one, ResponseOutput(name="b", datatype="BYTES", shape=[1], data=[b"abc"])], Parameters(mine="x"))

    def frame(self, payload):
        return self.encode_response(pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [1.5, None]}), default_codec=PandasCodec)

    def by_type(self, payload):
        return self.encode_response(np.array([1.0, 2.0]))

    def by_default(self, payload):
        return self.encode_response(["a", "b"], default_codec=StringRequestCodec)

    def by_name(self, payload):
        return self._respond([self.encode(np.array([1.0]), RequestOutput(name="e"), default_codec=NumpyCodec)])

    def refuse(self, payload):
        raise InferenceError("not this")

    def _respond(self, outputs, parameters=None):
        return InferenceResponse(model_name=self.name, outputs=outputs, parameters=parameters)


"""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    root = tmp_path_factory.mktemp("folder")
    theirs, ours = root / "theirs", root / "ours"

    def add(name: str, implementation: str, text: str, **settings: Any) -> Path:
        as_there = text.replace("oip_asgi.mlserver.codecs import InputOrOutput", "oip_asgi.mlserver.codecs.utils import InputOrOutput")
        module, _, _ = implementation.partition(".")
        settings |= {"name": name, "implementation": implementation}
        return write(theirs / name, settings, **{module: as_there.replace("oip_asgi.mlserver", "mlserver")})

    (add("sums", "sums_model.Sums", SUMS) / "weights.json").write_text("[1, 10]")
    add("hello", "hello_model.Hello", HELLO)
    add("words", "words_model.Words", WORDS)
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [11], "parameters": {"content_type": "str"}}]
    add("echo", "echo_model.Echo", ECHO, inputs=inputs)
    add("questions", "questions_model.Questions", QUESTIONS)
    add("writes", "writes_model.Writes", WRITES)
    shutil.copytree(theirs, ours)
    subprocess.run(["sh", "-c", f"{SED} {ours}/*/*.py"], check=True)
    port = free_port()
    ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "host": "127.0.0.1", "parallel_workers": 0}
    (theirs / "settings.json").write_text(json.dumps(ports))
    start = [str(Path(str(PYTHON)).with_name("mlserver")), "start", str(theirs)]
    serve = ["python", "-m", "oip_asgi", str(ours), "--host", "127.0.0.1", "--port", "PORT"]
    with serving(start, root / "theirs.log", port=port) as mlserver, serving(serve, root / "ours.log") as served:
        yield mlserver.url, served.url


def tensor(name: str, datatype: str, shape: list[int], data: Any, content_type: str | None = None) -> dict[str, Any]:
    parameters = {} if content_type is None else {"parameters": {"content_type": content_type}}
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **parameters}


def text(value: str) -> list[dict[str, Any]]:
    return [tensor("x", "BYTES", [1], [value], "str")]


def ask(url: str, path: str, inputs: list[Any], **more: Any) -> tuple[int, Any]:
    headers = {"user-agent": "test"}
    answer = httpx2.post(f"{url}/v2/models/{path}", json={"inputs": inputs, **more}, headers=headers, timeout=60)
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = answer.text.removesuffix("\n\n").split("\n\n")
        return answer.status_code, [json.loads(event.removeprefix("data: "))["outputs"] for event in events]
    document = answer.json()
    if "id" not in more:
        document.pop("id", None)  # MLServer makes one
    return answer.status_code, {name: value for name, value in document.items() if value != {}}


@pytest.mark.parametrize(
    ("path", "inputs", "more"),
    [
        *[("writes/infer", text(how), {"id": "7"}) for how in ("arrays", "lists", "plain", "frame", "by_type", "by_default", "by_name")],
        ("writes/infer", text("refuse"), {}),
        ("words/infer", text("What is it"), {}),
        ("words/generate", text("What is it"), {}),
        ("words/infer_stream", text("What is it"), {}),
        ("words/generate_stream", text("What is it"), {"outputs": [{"name": "output"}]}),
        ("questions/infer", [tensor(name, "BYTES", [2], ["a", "bc"]) for name in ("questions", "context")], {}),
        ("sums/infer", [], {}),
    ],
)
def test_answers_are_the_same(urls: tuple[str, str], path: str, inputs: Any, more: Any) -> None:
    theirs, ours = (ask(url, path, inputs, **more) for url in urls)
    assert theirs == ours


@pytest.mark.parametrize(
    ("path", "inputs"),
    [
        ("sums/infer", [tensor("x", "FP32", [2], [1, 2])]),
        ("hello/infer", [tensor("echo", "BYTES", [15], ['{"name": "Foo"}'])]),
        ("echo/infer", [tensor("n", "INT32", [2, 2], [1, 2, 3, 4], "np"), tensor("text", "BYTES", [11], "hello world")]),
        ("echo/infer", [tensor("n", "FP32", [2, 1], [[1], [2]], "np"), tensor("text", "BYTES", [2, 11], ["hello world", "bye"])]),
        ("echo/infer", [tensor("a", "UINT8", [2], [7, 8], "hex"), tensor("b", "BYTES", [1], ["0708"], "hex")]),
        ("echo/infer", [tensor("a", "BYTES", [1], ["YQ=="], "base64"), tensor("b", "BYTES", [1], ["2020-01-02"], "datetime")]),
    ],
)
def test_what_models_see_and_say_is_the_same_but_for_shapes_and_nesting(urls: tuple[str, str], path: str, inputs: Any) -> None:
    found = []
    for url in urls:
        status, document = ask(url, path, inputs)
        values = [each["data"] if isinstance(each["data"], list) else [each["data"]] for each in document["outputs"]]
        flat = [element for value in values for each in value for element in (each if isinstance(each, list) else [each])]
        decoded = [json.loads(each).get("decoded", each) if str(each).startswith("{") else each for each in flat]
        found.append((status, decoded))
    assert found[0] == found[1]


def test_mlserver_infer_is_answered(urls: tuple[str, str], tmp_path: Path) -> None:
    """Its own client, which sends a file of requests."""
    asked = [{"id": str(number), "inputs": [tensor("x", "FP32", [2], [number, 1])]} for number in range(3)]
    requests, responses = tmp_path / "requests.jsonl", tmp_path / "responses.jsonl"
    requests.write_text("".join(f"{json.dumps(each)}\n" for each in asked))
    program = str(Path(str(PYTHON)).with_name("mlserver"))
    for url in urls:
        command = [program, "infer", "-u", url.removeprefix("http://"), "-m", "sums", "-i", str(requests), "-o", str(responses)]
        subprocess.run(command, check=True, timeout=60)
        answered = [json.loads(line) for line in responses.read_text().splitlines()]
        assert {each["id"]: each["outputs"][0]["data"] for each in answered} == {"0": [10], "1": [11], "2": [12]}
