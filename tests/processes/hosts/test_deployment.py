"""What examples/kserve says: the manifests are held against KServe's own models, and the containers' start commands are run, each as the
container would run it: without a name, with a file system that nobody can write to, probed as the manifest probes it, and ended by SIGTERM.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import yaml
from sklearn.linear_model import LinearRegression

from tests.support.processes import ROOT, Served, environment, free_port, get, post, serving
from tests.support.sockets import read_answer

KSERVE = ROOT / "examples" / "kserve"
DOCKERFILE = (KSERVE / "Dockerfile").read_text()
FLOWERS = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 4], "data": [5.1, 3.5, 1.4, 0.2, 6.3, 3.3, 6.0, 2.5]}]}
MANIFESTS = sorted(KSERVE.glob("*.yaml"))

NOBODY = "unshare --user --map-user=65534 --map-group=65534"
READ_ONLY = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'mount -o remount,bind,ro / && exec {NOBODY} "$@"', "sh"]
"""Runs what follows it as the manifests' security context does: as user 65534, and with a file system that cannot be written to."""


def can_be_confined() -> bool:
    """Whether this machine lets a process have a user and a file system of its own."""
    command = [*READ_ONLY, "sh", "-c", f"test $(id -u) = 65534 && ! touch {ROOT}/written"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((KSERVE / name).read_text()))


def containers() -> list[tuple[str, Any]]:
    """Each container, and the name of its manifest."""
    return [
        (path.stem, container)
        for path in MANIFESTS
        for document in documents(path.name)
        for container in document["spec"].get("predictor", document["spec"]).get("containers", [])
    ]


def container_of(name: str) -> Any:
    return dict(containers())[name]


@pytest.mark.parametrize(("name", "container"), containers(), ids=[name for name, _ in containers()])
def test_a_manifest_fits_the_image(name: str, container: Any) -> None:
    assert container["name"] == "kserve-container"  # KServe's own name for the one that serves
    [port] = [port["containerPort"] for port in container["ports"]]
    assert instructions("EXPOSE") == [str(port)]
    assert f"--tag {container['image']}\n" in DOCKERFILE.replace(" .\n", "\n")
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port
    assert [str(container["securityContext"]["runAsUser"])] == instructions("USER")


def test_the_image_copies_what_is_there() -> None:
    copied = [source for line in instructions("COPY") for source in line.split()[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    started = {word.removesuffix(":app") for _, container in containers() for word in container.get("command", [])}
    assert {"runtime.py", "gunicorn_config.py", "predictor"} <= started
    assert {"predictor.py", "runtime.py", "gunicorn_config.py"} == {Path(source).name for source in copied if "kserve" in source}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [install] = [line for line in instructions("RUN") if line.startswith("pip install")]
    assert {"scikit-learn", "uvicorn", "'gunicorn[http2]>=27'"} <= set(install.split())
    [description] = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    assert description["path"] in DOCKERFILE  # the build needs it


SCALARS = {"object": ("int", "str"), "ResourceQuantity": ("str",), "V1beta1MetricQuantity": ("str",)}
"""The types of a manifest that are not called as the models call them: a port may have a name, and a quantity is written as text."""


def misfits(value: Any, kind: str, where: str) -> Iterator[str]:
    """What of a manifest is not as KServe's and Kubernetes' own models say: fields that they do not have, and values of another type.

    Args:
        value: A part of the manifest.
        kind: Its type, in the words of those models.
        where: Its place, for the text.
    """
    import kserve.models
    import kubernetes.client.models

    of_kind = re.fullmatch(r"(list|dict)\W(?:str, )?(\w+)\W", kind, re.IGNORECASE)
    model = getattr(kserve.models, kind, None) or getattr(kubernetes.client.models, kind, None)
    if of_kind is not None:
        if type(value).__name__ == of_kind[1].lower():
            for key, item in value.items() if type(value) is dict else enumerate(value):
                yield from misfits(item, of_kind[2], f"{where}.{key}")
            return
    elif model is not None:
        if type(value) is dict:
            fields = {model.attribute_map[name]: inner for name, inner in model.openapi_types.items()}
            yield from (f"{where}.{key} is unknown" for key in value.keys() - fields.keys())
            for key in value.keys() & fields.keys():
                yield from misfits(value[key], fields[key], f"{where}.{key}")
            return
    elif type(value).__name__ in SCALARS.get(kind, (kind,)):
        return
    yield f"{where} is no {kind}"


KINDS = {"InferenceService": ("V1beta1InferenceService", "v1beta1"), "ServingRuntime": ("V1alpha1ServingRuntime", "v1alpha1")}


@pytest.mark.clients
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_has_what_kserve_knows(path: Path) -> None:
    for document in documents(path.name):
        kind, version = KINDS[document["kind"]]
        assert document["apiVersion"] == f"serving.kserve.io/{version}"
        assert list(misfits(document, kind, "")) == []


@pytest.mark.clients
def test_the_deployment_of_the_guide_has_what_kubernetes_knows() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "examples/guide/docker.md").read_text(), re.DOTALL)
    assert list(misfits(yaml.safe_load(text), "V1Deployment", "")) == []


@pytest.mark.clients
def test_a_manifest_with_mistakes_is_not_as_kserve_knows_it() -> None:
    [document] = documents("inference_service.yaml")
    predictor = document["spec"]["predictor"]
    predictor["maxReplica"] = 4
    predictor["minReplicas"] = "1"
    predictor["containers"][0]["readinessProbe"]["httpGet"]["pth"] = "/"
    predictor["autoScaling"]["metrics"][0]["external"]["target"]["value"] = 3.5
    assert set(misfits(document, "V1beta1InferenceService", "")) == {
        ".spec.predictor.maxReplica is unknown",
        ".spec.predictor.minReplicas is no int",
        ".spec.predictor.containers.0.readinessProbe.httpGet.pth is unknown",
        ".spec.predictor.autoScaling.metrics.0.external.target.value is no V1beta1MetricQuantity",
    }


def test_replicas_are_added_before_requests_are_refused() -> None:
    """The target lies between the model's `max_concurrency` and what it takes in all, and is of the number that the model has."""
    source = (KSERVE / "predictor.py").read_text()
    slots, queue = (int(found) for found in re.findall(r"max_(?:concurrency|queue)=(\d+)", source))
    [document] = documents("inference_service.yaml")
    [metric] = document["spec"]["predictor"]["autoScaling"]["metrics"]
    assert slots < int(metric["external"]["target"]["value"]) < slots + queue
    assert metric["external"]["metric"]["query"] == 'sum(oip_requests_in_progress{model="iris"})'
    [document] = documents("inference_service_grpc.yaml")
    predictor = document["spec"]["predictor"]
    assert slots < predictor["scaleTarget"] < slots + queue < predictor["containerConcurrency"]


@contextmanager
def started(command: list[str], place: Path) -> Iterator[Served]:
    """A container's start command on a free port, in a folder with what the image has in its working directory, confined."""
    if not can_be_confined():
        pytest.skip("this machine lets no process have a user and a file system of its own")
    port = free_port()
    for source in KSERVE.iterdir():
        if source.is_file():
            shutil.copy(source, place)
    config = place / "gunicorn_config.py"
    config.write_text(config.read_text().replace("8080", str(port)))
    words = [word.replace("8080", str(port)) for word in command]
    inside = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(place), *words]
    with serving([*READ_ONLY, *inside], place / "log", {"PYTHONDONTWRITEBYTECODE": "1"}, port=port) as served:
        yield served


def check_probes(served: Served, container: Any) -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            assert get(served.url + container[probe]["httpGet"]["path"]).status_code == 200


def check_sigterm(served: Served, path: str, body: bytes) -> None:
    """A request that arrives while the container is ended is answered, and then the process ends by itself."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as sock:
        sock.sendall(head.encode() + body[:10])
        get(f"{served.url}/v2/health/live")  # by when it has read what came before
        served.ask_to_end()
        time.sleep(0.5)  # a server may listen to the end, so nothing tells that it has seen the signal
        sock.sendall(body[10:])
        answer = read_answer(sock)
        assert (answer.status, answer.body[:14]) == (200, b'{"model_name":')
    assert served.process.wait(20) is not None


def test_the_predictor_serves(tmp_path: Path) -> None:
    [start] = instructions("CMD")
    container = container_of("inference_service")
    with started(json.loads(start), tmp_path) as served:
        check_probes(served, container)
        found = post(f"{served.url}/v2/models/iris/infer", json=FLOWERS)
        assert found.json()["outputs"][0]["data"] == ["setosa", "virginica"]
        run = subprocess.run(
            ["sh", "examples/clients/curl.sh", served.url], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
        )
        assert json.loads(run.stdout)["outputs"][0]["data"] == ["setosa", "virginica"]
        numbers = get(f"{served.url}/metrics").text
        assert re.search(r'^oip_requests_in_progress\{model="iris",.*state="waiting",.*\} 0\.0$', numbers, re.MULTILINE)
        check_sigterm(served, "/v2/models/iris/infer", json.dumps(FLOWERS).encode())


GRPC = """
import sys, numpy, tritonclient.grpc as grpc
with grpc.InferenceServerClient(sys.argv[1]) as client:
    x = numpy.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]])
    for _ in range(3):
        found = client.infer("iris", [grpc.InferInput("x", [2, 4], "FP64").set_data_from_numpy(x)])
    print(client.is_server_ready(), *[name.decode() for name in found.as_numpy("species")])
"""


@pytest.mark.clients
def test_grpc_and_rest_on_the_one_port_of_knative(tmp_path: Path) -> None:
    """Over HTTP/2 without TLS, which is what a port named h2c gets, and HTTP/1.1, which probes speak."""
    container = container_of("inference_service_grpc")
    assert [port["name"] for port in container["ports"]] == ["h2c"]
    with started(container["command"], tmp_path) as served:
        check_probes(served, container)
        found = subprocess.run(
            [sys.executable, "-c", GRPC, f"127.0.0.1:{served.port}"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert found.stdout == "True setosa virginica\n"
        assert post(f"{served.url}/v2/models/iris/infer", json=FLOWERS).json()["outputs"][0]["data"] == ["setosa", "virginica"]
        numbers = get(f"{served.url}/metrics").text
        assert re.search(r'^oip_requests_total\{model="iris",outcome="ok",.*\} 4\.0$', numbers, re.MULTILINE)
        check_sigterm(served, "/v2/models/iris/infer", json.dumps(FLOWERS).encode())


def test_the_runtime_serves_what_it_finds(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    joblib.dump(LinearRegression().fit(np.array([[1.0], [2.0]]), np.array([10.0, 20.0])), models / "model.joblib")
    container = container_of("serving_runtime")
    filled = {"{{.Name}}": "flowers", "/mnt/models": str(models)}
    words = [*container["command"], *container["args"]]
    for placeholder, value in filled.items():
        words = [word.replace(placeholder, value) for word in words]
    with started(words, tmp_path) as served:
        check_probes(served, container)
        asked = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [3]}]}
        found = post(f"{served.url}/v2/models/flowers/infer", json=asked).json()
        assert found["outputs"][0]["data"] == pytest.approx([30.0])
        assert "oip_requests_in_progress" in get(f"{served.url}/metrics").text
        check_sigterm(served, "/v2/models/flowers/infer", json.dumps(asked).encode())
