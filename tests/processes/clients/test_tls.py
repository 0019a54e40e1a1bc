"""`ssl=`: a server whose certificate the system does not trust, as a real process."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi.client import AsyncClient, Client, ConnectionFailed
from tests.support.processes import free_port, running

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")]


@pytest.mark.ci
def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2"]
    subprocess.run([*make, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    context, port = ssl.create_default_context(cafile=certificate), free_port()
    command = f"python -m uvicorn --factory tests.lab.bench.remote:make_app --port PORT --ssl-keyfile {key} --ssl-certfile {certificate}"
    array = np.ones((1, 200_000), np.float32)

    async def ask(url: str) -> Any:
        async with AsyncClient(url) as distrustful:
            with pytest.raises(ConnectionFailed, match=r"cannot be reached: .*certificate verify failed"):
                await distrustful.is_live()
        async with AsyncClient(url, ssl=context) as client:
            return (await client.infer("identity", {"x": array}))["y"]

    with running(command.split(), tmp_path / "log", port=port):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        url = f"https://localhost:{port}/v2"
        with Client(url) as distrustful, pytest.raises(ConnectionFailed, match=r"cannot be reached: .*certificate verify failed"):
            distrustful.is_live()
        with Client(url, ssl=context) as client:
            for _ in range(2):
                assert np.array_equal(client.infer("identity", {"x": array})["y"], array)
        assert np.array_equal(asyncio.run(ask(url)), array)
