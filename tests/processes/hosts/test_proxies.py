"""The guide's configurations of nginx, HAProxy and Caddy, each in front of a real server, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pytest

from oip_asgi.client import Client
from tests.support.processes import ROOT, free_ports, get, serving

CONFIGURATIONS = dict(re.findall(r"```(nginx|haproxy|caddyfile)\n(.*?)```", (ROOT / "examples/guide/proxies.md").read_text(), re.DOTALL))
START = {
    "nginx": ["nginx", "-e", "stderr", "-p", "{folder}", "-c", "{file}"],
    "haproxy": ["haproxy", "-f", "{file}"],
    "caddyfile": ["caddy", "run", "--adapter", "caddyfile", "--config", "{file}"],
}
AROUND = {
    "nginx": """\
user root; daemon off; pid nginx.pid; events {}
http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path a; uwsgi_temp_path b; scgi_temp_path c;
TEXT }""",
    "caddyfile": "{\n    admin off\n}\nTEXT",
}
"""What a test has around the guide's part of a configuration: folders of its own, and no more ports."""

MODELS = """
import time
import numpy as np
from oip_asgi import InferenceServer

server = InferenceServer()


@server.model("double")
def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


@server.model("words")
def words(text: str):
    for word in text.split():
        yield {"word": word}
        time.sleep(0.5)
"""


@contextmanager
def before(kind: str, folder: Path) -> Iterator[tuple[int, int]]:
    """The ports of a proxy, for REST and for gRPC, whose server runs."""
    (folder / "models.py").write_text(MODELS)
    on_grpc, rest, grpc = free_ports(3)
    command = ["python", "-m", "oip_asgi", "--app-dir", str(folder), "models:server", "--port", "PORT", "--grpc", str(on_grpc)]
    with serving(command, folder / "server.log") as served:
        text = CONFIGURATIONS[kind]
        for port, own in ((8000, served.port), (8001, on_grpc)):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        for port, own in ((80, rest), (81, grpc)):
            text = re.sub(rf"(listen |bind :|http://:){port}\b", rf"\g<1>{own}", text)
        file = folder / "configuration"
        file.write_text(
            AROUND.get(kind, "TEXT").replace("TEXT", text).replace("admin off\n}\n{\n", "admin off\n")
        )  # Caddy's options are one block
        words = [word.format(folder=folder, file=file) for word in START[kind]]
        with (folder / "proxy.log").open("wb") as log, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log) as proxy:
            try:
                wait_for(f"http://127.0.0.1:{rest}/v2/health/live", proxy, folder / "proxy.log")
                yield rest, grpc
            finally:
                proxy.terminate()


def wait_for(url: str, proxy: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            if get(url).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        assert proxy.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_rest_streams_long_bodies_and_grpc_come_through(kind: str, tmp_path: Path) -> None:
    if shutil.which(START[kind][0]) is None:
        pytest.skip(f"{START[kind][0]} is not installed")
    with before(kind, tmp_path) as (rest, grpc):
        with Client(f"http://127.0.0.1:{rest}/v2") as client:
            x = np.arange(2 * 2**20, dtype=np.float64)  # 16 MiB
            assert (client.infer("double", {"x": x})["output_0"] == 2 * x).all()
            begin = time.monotonic()
            times = [time.monotonic() - begin for _ in client.stream("words", {"text": "to be or not"})]
            assert times[1] - times[0] > 0.3, times  # each came when it was there
            assert len(times) == 4
        with Client(f"grpc://127.0.0.1:{grpc}") as client:
            assert client.infer("double", {"x": np.ones(3, np.float32)})["output_0"].tolist() == [2, 2, 2]
