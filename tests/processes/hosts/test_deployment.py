"""What examples/kserve says: the manifest is parsed, and the container's own start command is run and probed as the manifest probes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes import ROOT, environment, free_port, get, post, serving

KSERVE = ROOT / "examples" / "kserve"
DOCKERFILE = (KSERVE / "Dockerfile").read_text()
FLOWERS = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 4], "data": [5.1, 3.5, 1.4, 0.2, 6.3, 3.3, 6.0, 2.5]}]}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


@pytest.fixture(scope="module")
def container() -> Any:
    manifest = yaml.safe_load((KSERVE / "inference_service.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    [container] = manifest["spec"]["predictor"]["containers"]
    return container


def test_the_manifest_fits_the_image(container: Any) -> None:
    assert container["name"] == "kserve-container"  # KServe's own name for the one that serves
    [port] = [port["containerPort"] for port in container["ports"]]
    assert instructions("EXPOSE") == [str(port)]
    assert f"--tag {container['image']} " in DOCKERFILE
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port


def test_the_image_copies_what_is_there() -> None:
    for line in instructions("COPY"):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [install] = [line for line in instructions("RUN") if line.startswith("pip install")]
    assert {"scikit-learn", "uvicorn"} <= set(install.split())
    assert project["project"]["readme"] in DOCKERFILE  # the build needs it


def test_the_start_command_serves(container: Any, tmp_path: Path) -> None:
    """In a folder that holds what the image's holds, as the image's working directory does."""
    shutil.copy(KSERVE / "predictor.py", tmp_path)
    [start] = instructions("CMD")
    port = free_port()
    command = [str(port) if word == "8080" else word for word in json.loads(start)]
    command[command.index("predictor:app") : -1] = ["--app-dir", str(tmp_path)]
    with serving(command, port, tmp_path / "log") as served:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert get(served.url + container[probe]["httpGet"]["path"]).status_code == 200
        found = post(f"{served.url}/v2/models/iris/infer", json=FLOWERS)
        assert found.json()["outputs"][0]["data"] == ["setosa", "virginica"]
        run = subprocess.run(
            ["sh", "examples/clients/curl.sh", served.url], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
        )
        assert json.loads(run.stdout)["outputs"][0]["data"] == ["setosa", "virginica"]
