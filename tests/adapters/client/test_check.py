"""The command that checks a server: ours is clean, and what is wrong with others is printed by section."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from starlette.responses import JSONResponse

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.client.__main__ import main
from tests.support.threads import serving

SPECS = {datatype: [TensorSpec("x", datatype, [-1, 3])] for datatype in ("BOOL", "UINT8", "INT64", "FP16", "FP32", "FP64", "BYTES")}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = InferenceServer("clean", "1.0")
    for name, specs in SPECS.items():
        server.register(name, lambda x: x, inputs=specs, outputs=[TensorSpec("y", specs[0].datatype, [-1, 3])])
    several = [TensorSpec("a", "FP32", [2]), TensorSpec("b", "INT8", [-1]), TensorSpec("c", "BYTES", []), TensorSpec("d", "BOOL", [1])]
    server.register("several", lambda a, b, c, d: (a, b), inputs=several, outputs=several[:2], version="3")
    server.register("no inputs", lambda: 1)
    server.register("large", lambda x: 1, inputs=[TensorSpec("x", "FP32", [1000, 1001])])
    server.register("picky", lambda x: 1 / (x - 1), inputs=[TensorSpec("x", "BYTES", [1])])

    @server.model("streams", inputs=[TensorSpec("x", "FP32", [1])])
    def streams(x: Any) -> Iterator[Any]:
        yield x

    with serving(OIPApp(server, path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2"


def test_ours_is_clean(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for model in (*SPECS, "several"):
        assert main(["check", url, "--model", model, "--strain"]) == 0, capsys.readouterr().out
        *skipped, last = capsys.readouterr().out.splitlines()
        assert all(line.startswith(("not tried, as no ", "not tried, as the first input has fewer ")) for line in skipped)
        assert last.startswith(f"clean 1.0, model {model}: 0 of ")


def test_a_server_that_wants_a_key_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n")
    with serving(JSONResponse({"error": "send the header x-api-key"}, 401)) as port:
        url = f"http://127.0.0.1:{port}/v2"
        assert main(["check", url, "--model", "m"]) == 2
        assert main(["score", url, "m", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 2
    expected = "the server answered with the status 401: send the header x-api-key; --header 'Name: value' sends a key\n"
    assert capsys.readouterr().err == f"cannot be checked: {expected}cannot be scored: {expected}"


def test_a_header_without_a_colon(capsys: pytest.CaptureFixture[str]) -> None:
    for first, *rest in (["check", "--model", "m"], ["score", "m", "rows.csv"]):
        with pytest.raises(SystemExit) as ended:
            main([first, "http://127.0.0.1:1/v2", *rest, "--header", "x-api-key k1"])
        assert ended.value.code == 2
        assert "argument --header: 'x-api-key k1' has no colon: expected 'Name: value'\n" in capsys.readouterr().err


def test_a_version_headers_and_a_request_of_ones_own(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "request.json"
    own.write_text('{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}')
    assert main(["check", url, "--model", "FP32", "--request", str(own), "--header", "x-key: k"]) == 0
    assert "give --strain: a shape of 2**40 elements" in capsys.readouterr().out
    assert main(["check", url, "--model", "several", "--version", "3"]) == 0


def test_a_model_that_cannot_be_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for model, text in {
        "nobody": "unknown model: 'nobody'",
        "large": "the input 'x' of FP32 [1000, 1001] cannot be made: give --request",
        "no inputs": "the metadata names no input: give --request",
        "picky": "a good request is refused, so the others cannot be sent",
        "streams": "name a model that answers infer, or write a request that it takes to a file, and give --request FILE; this one was {",
    }.items():
        assert main(["check", url, "--model", model]) == 2
        assert text in capsys.readouterr().err
    assert main(["check", "http://127.0.0.1:1/v2", "--model", "m"]) == 2
    assert "cannot be checked: " in capsys.readouterr().err
    assert main(["check", "grpc://127.0.0.1:1", "--model", "m"]) == 2
    assert capsys.readouterr().err == "cannot be checked: grpc://127.0.0.1:1: expected an address of http or https\n"


class Careless(BaseHTTPRequestHandler):
    """Answers 200 to nearly everything, with outputs in JSON that nobody asked for."""

    protocol_version = "HTTP/1.1"
    metadata: ClassVar[dict[str, Any]] = {
        "name": "m",
        "platform": "p",
        "extensions": ["binary_tensor_data"],
        "inputs": [{"name": "x", "datatype": "FP32"}, {"name": "z", "shape": [0, 4], "datatype": "INT8"}],
        "outputs": [{"name": "y"}, {"name": "other"}],
    }

    def do_GET(self) -> None:
        self.answer(200, self.metadata)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            json.loads(body)
        except UnicodeDecodeError:
            self.close_connection = True
        except ValueError:
            self.answer(422, {"detail": "no"})
        else:
            self.answer(200, {"id": "mine", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [1]}]})

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


def test_a_model_has_to_be_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", url])
    assert ended.value.code == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last == "python -m oip_asgi.client check: error: the following arguments are required: --model"


def test_what_is_wrong_is_printed_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        threading.Thread(target=server.serve_forever).start()
        assert main(["check", f"http://127.0.0.1:{server.server_port}/v2", "--model", "m"]) == 1
        server.shutdown()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Server",
        "  metadata has name, version and extensions: version is not a text",
        "Model",
        "  metadata of an unknown model: answered 200, expected 4xx",
    ]
    good = "  no id, so none comes back: "
    wrong = ["the id is 'mine', expected none", "model_name is missing", "the outputs are ['y'], expected ['y', 'other']"]
    assert [line for line in lines if line.startswith(good)] == [good + text for text in wrong]
    assert '  a body that is no JSON: 422, but the body is not {"error": text}: b\'{"detail": "no"}\'' in lines
    assert any(line.startswith("  bytes that are no UTF-8: no answer: http://127.0.0.1:") for line in lines)
    assert "not tried, as the first input has no dimension: a negative dimension, a dimension of 1.5, a dimension of true" in lines
    assert any(line.startswith("not tried, as the first input is empty: an integer as 1.5, ") for line in lines)
    assert lines[-1].startswith("m None, model m: ")
