"""gRPC-Web behind a real WSGI server: asked by Node's fetch, and by httpx for a call of many messages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.grpc_asgi import WEB, frame, frames_of
from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request
from tests.support.processes import ROOT, free_port, get, post, serving

COMMAND = "gunicorn --bind 127.0.0.1:PORT --threads 4 tests.support.grpc_web_site:app"


def test_one_port_answers_the_own_path_rest_and_grpc_web(tmp_path: Path) -> None:
    port = free_port()
    with serving(COMMAND.replace("PORT", str(port)).split(), port, tmp_path / "log") as served:
        assert get(f"{served.url}/own").text == "own"
        if shutil.which("node") is not None:
            command = ["node", str(ROOT / "examples/clients/grpc_web.mjs"), served.url]
            assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.split() == ["7"]
        numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [3]}}
        body = frame(wire_request("count", [numbers]).SerializeToString()) * 2
        answer = post(f"{served.url}/{SERVICE}/ModelStreamInfer", content=body, headers={"content-type": WEB}, timeout=60)
        *messages, (flag, trailers) = frames_of(answer.content)
        assert (answer.status_code, flag, trailers) == (200, 0x80, b"grpc-status:0\r\n")
        responses = [MESSAGES["ModelStreamInfer.response"].FromString(message).infer_response for _, message in messages]
        counted = sorted(int.from_bytes(response.raw_output_contents[0], "little") for response in responses)
        assert counted == [0, 0, 1, 1, 2, 2]
