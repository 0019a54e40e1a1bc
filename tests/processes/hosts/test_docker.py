"""What the guide's page on Docker and Kubernetes says is run without them: start, health check, probes, preStop, SIGTERM."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from oip_asgi import InferenceServer
from tests.support.processes import ROOT, Served, environment, get, post, serving

TEXT = (ROOT / "examples/guide/docker.md").read_text()
BLOCKS: dict[str, str] = dict(re.findall(r"```(python|dockerfile|yaml)\n(.*?)```", TEXT, re.DOTALL))
[START] = re.findall(r"^CMD (\[.*\])$", BLOCKS["dockerfile"], re.MULTILINE)
[HEALTH_CHECK] = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", BLOCKS["dockerfile"], re.MULTILINE)
SPEC: Any = yaml.safe_load(BLOCKS["yaml"])["spec"]["template"]["spec"]
[CONTAINER] = SPEC["containers"]
ROW = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [2]}]}


def is_healthy(served: Served) -> bool:
    """What the image's own health check says of a server."""
    command = [word.replace(":8000", f":{served.port}") for word in json.loads(HEALTH_CHECK)]
    return subprocess.run([sys.executable, *command[1:]], capture_output=True, check=False).returncode == 0


def probe(served: Served) -> list[int]:
    return [get(served.url + CONTAINER[f"{name}Probe"]["httpGet"]["path"]).status_code for name in ("startup", "liveness", "readiness")]


@pytest.mark.ci
def test_the_container_starts_is_probed_drains_and_ends(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(BLOCKS["python"])
    [_, *arguments] = json.loads(START)
    command = ["python", "-m", "uvicorn", "--app-dir", str(tmp_path), *("PORT" if word == "8000" else word for word in arguments)]
    with serving(command, tmp_path / "log", {"DRAIN_FILE": str(tmp_path / "drain")}) as served:
        assert is_healthy(served)
        assert probe(served) == [200, 200, 200]
        [shell, option, script] = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
        script = script.replace("/tmp/drain", shlex.quote(str(tmp_path / "drain"))).replace("sleep 15", "sleep 0")
        subprocess.run([shell, option, script], env=environment(), check=True)
        assert probe(served) == [200, 200, 503]
        assert post(f"{served.url}/v2/models/double/infer", json=ROW).json()["outputs"][0]["data"] == [4.0]
        served.ask_to_end()
        assert served.process.wait(30) in (0, -15)
    assert not is_healthy(served)


def test_the_deployment_gives_its_container_the_time_and_the_folder_that_it_needs() -> None:
    [sleep] = re.findall(r"sleep (\d+)", CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1])
    words = json.loads(START)
    graceful = float(words[words.index("--timeout-graceful-shutdown") + 1])
    shutdown_timeout = signature(InferenceServer).parameters["shutdown_timeout"].default
    assert SPEC["terminationGracePeriodSeconds"] > float(sleep) + graceful + shutdown_timeout
    assert {CONTAINER[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "liveness", "readiness")} == {8000}
    assert f"EXPOSE {CONTAINER['ports'][0]['containerPort']}" in BLOCKS["dockerfile"]
    assert [mount["mountPath"] for mount in CONTAINER["volumeMounts"]] == ["/tmp"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    last_stage = BLOCKS["dockerfile"].rpartition("FROM ")[2]
    assert re.findall(r"^(RUN|USER .*)$", last_stage, re.MULTILINE) == ["USER 65534"]
