"""`python -m oip_asgi FOLDER`: a folder whose file still imports MLServer, the command that it prints, and what it serves then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from tests.support.mlserver_folders import SUMS, WORDS, write
from tests.support.processes import running, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import joblib

    sums = write(tmp_path / "models/sums", {"implementation": "models.Sums"}, models=SUMS.replace("oip_asgi.mlserver", "mlserver"))
    (sums / "weights.json").write_text("[1, 10]")
    write(tmp_path / "models/words", {"implementation": "models.Words"}, models=WORDS.replace("oip_asgi.mlserver", "mlserver"))
    iris = write(tmp_path / "models/iris", {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"version": "v1"}})
    joblib.dump(LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True)), iris / "model.joblib")
    (tmp_path / "settings.json").write_text('{"server_name": "ours", "http_port": 1, "debug": "true", "parallel_workers": 0}')
    return tmp_path


@pytest.mark.ci
def test_the_command_that_it_prints_makes_the_folder_run(folder: Path, tmp_path: Path) -> None:
    command, log = ["python", "-m", "oip_asgi", str(folder), "--host", "127.0.0.1", "--port", "PORT"], tmp_path / "log"
    with running(command, log, ready="/v2/health/live") as served:
        served.wait_until_ready()
        assert httpx2.get(f"{served.url}/v2/models/sums/ready").status_code == 503
        assert httpx2.get(f"{served.url}/v2/models/iris/ready").status_code == 200
    [sed] = [line for line in log.read_text().splitlines() if line.startswith("sed -i -E ")]
    assert sed.endswith(f"{folder}/models/sums/models.py {folder}/models/words/models.py")
    subprocess.run(["sh", "-c", sed], check=True)
    with serving(command, log) as served:
        assert httpx2.get(f"{served.url}/v2").json()["name"] == "ours"
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
        assert httpx2.post(f"{served.url}/v2/models/sums/infer", json=body).json()["outputs"][0]["data"] == [21.0]
        body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["to be"]}]}
        events = httpx2.post(f"{served.url}/v2/models/words/generate_stream", json=body).text.split("\n\n")
        assert [json.loads(event.removeprefix("data: "))["outputs"][0]["data"] for event in events if event] == [["to"], ["be"]]
        rows = {"name": "predict", "datatype": "FP32", "shape": [2, 4], "data": load_iris().data[49:51].tolist()}
        answer = httpx2.post(f"{served.url}/v2/models/iris/versions/v1/infer", json={"inputs": [rows]})
        assert answer.json()["outputs"][0]["data"] == [0, 1]
        assert httpx2.post(f"{served.url}/v2/repository/models/iris/unload").status_code == 403


def test_a_folder_that_cannot_be_served_ends_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "oip_asgi", tmp_path], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}: there is no model-settings.json in this folder or below it\n")
