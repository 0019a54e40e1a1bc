"""A LitServe server that also speaks the Open Inference Protocol. LitServe's own model answers at /predict.

pip install litserve -e '.[examples]'
python examples/model_servers/litserve_app.py 8000       serves on http://127.0.0.1:8000
python examples/model_servers/litserve_app.py --check    serves on a free port, asks both models, and ends

The models of the InferenceServer run in LitServe's API process: its workers, batches and devices are for the LitAPI.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from typing import Any

import httpx2
import litserve
import numpy as np

from oip_asgi import InferenceServer, OIPApp

server = InferenceServer("beside-litserve")


@server.model("double")
def double(x: np.ndarray) -> np.ndarray:
    return x * 2


class Square(litserve.LitAPI):  # type: ignore[misc]  # LitServe has no types
    """LitServe's own model, in a process of its own."""

    def setup(self, device: str) -> None: ...

    def predict(self, request: Any) -> Any:
        return {"squared": request["x"] ** 2}


def run(port: int) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    lit = litserve.LitServer(Square(), accelerator="cpu")
    OIPApp(server).install(lit.app, "/v2")  # before run(), which copies the application into its API processes
    # LitServe ends its other processes on Ctrl-C, and leaves them running on SIGTERM: let it take the one for the other
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lit.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False)


def check() -> bool:
    """Ask both models, print their answers, and say whether they are right."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        request = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx2.HTTPTransport(retries=9), timeout=60) as client:
            doubled = client.post("/v2/models/double/infer", json=request).json()["outputs"][0]["data"]
            squared = client.post("/predict", json={"x": 3}).json()
    finally:
        process.terminate()
        process.wait()
    print("double  ", doubled)
    print("/predict", squared)
    return bool(doubled == [2.0, 4.0] and squared == {"squared": 9})


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if check() else 1)
    run(int(sys.argv[1]))
