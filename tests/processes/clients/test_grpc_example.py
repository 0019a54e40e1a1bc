"""examples/grpc_server.py: one process answers a request over REST and gRPC with the same arrays, until its last call is answered."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.grpc_ways import Client, wire_request
from tests.support.processes import ROOT, environment

X = np.random.default_rng(7).normal(size=(5, 3)).astype("<f4")
TENSOR = {"name": "x", "datatype": "FP32", "shape": [5, 3]}


def over_rest(url: str, model: str) -> npt.NDArray[np.float32]:
    head = json.dumps(
        {"inputs": [{**TENSOR, "parameters": {"binary_data_size": X.nbytes}}], "parameters": {"binary_data_output": True}}
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = httpx2.post(f"{url}/v2/models/{model}/infer", content=head + X.tobytes(), headers=headers, timeout=60).raise_for_status()
    length = int(answer.headers["Inference-Header-Content-Length"])
    [output] = json.loads(answer.content[:length])["outputs"]
    assert output["datatype"] == "FP32"
    return np.frombuffer(answer.content[length:], "<f4").reshape(output["shape"])


def over_grpc(client: Client, model: str) -> npt.NDArray[np.float32]:
    answer = client.ask("ModelInfer", wire_request(model, [TENSOR], [X.tobytes()]), timeout=60)
    [output], [content] = answer.outputs, answer.raw_output_contents
    assert output.datatype == "FP32"
    return np.frombuffer(content, "<f4").reshape(output.shape)


@pytest.mark.parametrize("model", [pytest.param("held", marks=pytest.mark.ci), "awaited"])
def test_both_calls_in_flight_are_answered_alike_before_a_process_that_is_told_to_end_does(model: str) -> None:
    command = [sys.executable, "-m", "tests.support.grpc_beside_rest"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, **pipes) as process,  # type: ignore[call-overload]
        ThreadPoolExecutor(2) as threads,
    ):
        try:
            rest, grpc = map(int, process.stdout.readline().split())
            first = threads.submit(over_rest, f"http://127.0.0.1:{rest}", model)
            assert process.stdout.readline() == "begun\n"
            second = threads.submit(over_grpc, Client(f"127.0.0.1:{grpc}"), model)
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            log = lines_until("Shutting down", process)
            release(process)
            by_rest = first.result(60)
            log += lines_until("Waiting for application shutdown", process)
            release(process)
            by_grpc = second.result(60)
            rest_of_output, rest_of_log = process.communicate(timeout=60)
        finally:
            process.kill()
    np.testing.assert_array_equal(by_rest, X / 3)
    np.testing.assert_array_equal(by_grpc, by_rest)
    assert rest_of_output == ""
    assert "Application shutdown complete" in rest_of_log
    assert not [line for line in [*log, *rest_of_log.splitlines()] if not line.startswith("INFO:")]
    assert process.returncode in (0, -signal.SIGTERM)  # uvicorn ends as if it had not caught the signal


def lines_until(text: str, process: subprocess.Popen[str]) -> list[str]:
    """What the process logs, up to a line with this text."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


def release(process: subprocess.Popen[str]) -> None:
    """Let the call end that has begun first."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
