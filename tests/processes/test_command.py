"""`python -m oip_asgi TARGET` as a process: what it prints, the ports that it opens, the key, and a file that changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import grpc
import httpx2
import joblib
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression

from oip_asgi import ErrorResponse
from oip_asgi.client import Client
from tests.support.mlserver_folders import ECHO, write
from tests.support.processes import free_ports, serving
from tests.support.talk import block_until

HOST = ["--host", "127.0.0.1", "--port", "PORT"]


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    joblib.dump(LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True)), tmp_path / "iris.joblib")
    return tmp_path / "iris.joblib"


def printed_by(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


@pytest.mark.ci
def test_an_estimator_with_a_key_grpc_and_metrics(iris: Path, tmp_path: Path) -> None:
    on_grpc, on_metrics = free_ports(2)
    more = ["--name", "flowers", "--api-key", "s3cret", "--grpc", str(on_grpc), "--metrics", str(on_metrics)]
    with serving(["python", "-m", "oip_asgi", str(iris), *HOST, *more], tmp_path / "log") as served:
        log = (tmp_path / "log").read_text()
        assert f"page: {served.url}/v2/docs\n" in log
        assert "s3cret" not in log
        [curl] = re.findall(r"^try: (curl .*)$", log, re.MULTILINE)
        assert '"model_name":"flowers"' in printed_by(f"KEY=s3cret; {curl}")
        assert "send the header x-api-key" in printed_by(f"KEY=; {curl}")
        assert httpx2.get(f"{served.url}/v2/docs").status_code == 200
        assert httpx2.get(f"{served.url}/v2/models/flowers").status_code == 401
        rows = load_iris().data[:2]
        with Client(f"grpc://127.0.0.1:{on_grpc}", headers={"x-api-key": "s3cret"}) as client:
            assert client.infer("flowers", {"X": rows})["predict"].tolist() == [0, 0]
        with Client(f"grpc://127.0.0.1:{on_grpc}") as client:
            assert client.is_ready()
            with pytest.raises(ErrorResponse) as caught:
                client.infer("flowers", {"X": rows})
        assert (caught.value.response_status, caught.value.text) == (401, "send the metadata x-api-key")
        assert 'oip_requests_total{model="flowers"' in httpx2.get(f"http://127.0.0.1:{on_metrics}/metrics").text
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_folder_of_mlserver_opens_the_ports_of_its_settings(tmp_path: Path) -> None:
    on_grpc, on_metrics = free_ports(2)
    write(tmp_path / "models/echo", {"implementation": "models.Echo"}, models=ECHO)
    (tmp_path / "models/settings.json").write_text(f'{{"grpc_port": {on_grpc}, "metrics_port": {on_metrics}}}')
    with serving(["python", "-m", "oip_asgi", str(tmp_path / "models"), *HOST], tmp_path / "log") as served:
        assert httpx2.get(f"{served.url}/v2/models/echo/ready").status_code == 200
        with Client(f"grpc://127.0.0.1:{on_grpc}") as client:
            assert client.is_model_ready("echo")
        assert httpx2.get(f"http://127.0.0.1:{on_metrics}/metrics").status_code == 200
        with grpc.insecure_channel(f"127.0.0.1:{on_grpc}") as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
    assert "not used" not in (tmp_path / "log").read_text()


def test_a_server_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import numpy as np, numpy.typing as npt\nfrom oip_asgi import InferenceServer\nserver = InferenceServer('shop')\n"
        "@server.model('double')\ndef double(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:\n    return x * 2\n"
    )
    with serving(["python", "-m", "oip_asgi", "shop:server", *HOST], tmp_path / "log", {"PYTHONPATH": str(tmp_path)}) as served:
        assert httpx2.get(f"{served.url}/v2").json()["name"] == "shop"
        [curl] = re.findall(r"^try: (curl .*)$", (tmp_path / "log").read_text(), re.MULTILINE)
        assert printed_by(curl) == '{"model_name":"double","outputs":[{"name":"output_0","shape":[1],"datatype":"FP32","data":[0.0]}]}'


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "line.joblib"
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), file)
    with serving(["python", "-m", "oip_asgi", str(file), *HOST, "--reload"], tmp_path / "log") as served:
        with Client(f"{served.url}/v2") as client:
            assert client.infer("line", {"X": [[3.0]]})["predict"].tolist() == pytest.approx([3])
        joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 10.0]), file)

        def is_new() -> bool:
            served.wait_until_ready()
            with suppress(OSError), Client(f"{served.url}/v2") as client:
                return bool(client.infer("line", {"X": [[3.0]]})["predict"][0] > 29)
            return False

        block_until(is_new, 60)
        os.killpg(served.process.pid, signal.SIGINT)  # as a terminal does at Ctrl+C: to both processes
        served.process.wait(30)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_several_workers_print_once_and_have_the_key(iris: Path, tmp_path: Path) -> None:
    more = {"OIP_API_KEY": "s3cret"}  # not in the list of processes
    with serving(["python", "-m", "oip_asgi", str(iris), *HOST, "--workers", "2"], tmp_path / "log", more) as served:
        block_until(lambda: served.log.read_text().count("Application startup complete") == 2, 60)
        [curl] = re.findall(r"^try: (curl .*)$", served.log.read_text(), re.MULTILINE)
        for key, expected in (("s3cret", '"model_name":"iris"'), ("", "send the header x-api-key")):
            assert expected in printed_by(f"KEY={key}; {curl}")
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_folder_that_changes_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "models/echo", {"implementation": "models.Echo"}, models=ECHO)
    with serving(["python", "-m", "oip_asgi", str(tmp_path / "models"), *HOST, "--reload"], tmp_path / "log") as served:
        write(tmp_path / "models/again", {"implementation": "models.Echo"}, models=ECHO)
        block_until(lambda: "model 'again': takes" in served.log.read_text(), 60)
        served.wait_until_ready()
        assert httpx2.get(f"{served.url}/v2/models/again/ready").status_code == 200
