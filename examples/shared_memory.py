"""A Starlette application that reads and writes the tensors of clients on the same machine in shared memory, not in requests. Linux only.

python examples/shared_memory.py            serves on http://127.0.0.1:8000
python examples/shared_memory.py --check    serves on a free port, doubles an image of 12 MB in shared memory, and ends
"""

from __future__ import annotations

import sys
from multiprocessing.shared_memory import SharedMemory as Block

import httpx2
import numpy as np
import uvicorn
from digits import serving
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, SharedMemory

KEYS = ["camera_input", "camera_output"]
"""The segments that clients may use. Everybody who reaches the server may read and overwrite them, so nothing else may be in them."""


def make_app() -> Starlette:
    server = InferenceServer(name="camera", shared_memory=SharedMemory(allow=KEYS))

    @server.model("double")
    def double(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x * 2}

    app = Starlette()
    OIPApp(server).install(app, "/v2")
    return app


def check(url: str) -> bool:
    image = np.random.default_rng(0).random((1000, 1000, 3), np.float32)
    source, target = (Block(key, create=True, size=image.nbytes) for key in KEYS)
    try:
        written, read = (np.ndarray(image.shape, image.dtype, block.buf) for block in (source, target))
        written[:] = image
        with httpx2.Client(base_url=url, verify=False) as client:
            for name, key in zip(("in", "out"), KEYS, strict=True):
                path = f"/v2/systemsharedmemory/region/{name}/register"
                client.post(path, json={"key": key, "byte_size": image.nbytes}).raise_for_status()
            secret = client.post("/v2/systemsharedmemory/region/secret/register", json={"key": "/another", "byte_size": 1})
            print("another key    ", secret.status_code, secret.json()["error"])

            def place(region: str) -> dict[str, str | int]:
                return {"shared_memory_region": region, "shared_memory_byte_size": image.nbytes}

            body = {
                "inputs": [{"name": "x", "datatype": "FP32", "shape": image.shape, "parameters": place("in")}],
                "outputs": [{"name": "y", "parameters": place("out")}],
            }
            answer = client.post("/v2/models/double/infer", json=body)
        print("the response   ", answer.status_code, answer.text)
        is_doubled = bool((read == image * 2).all())
        print("shared memory  ", "doubled" if is_doubled else "not doubled")
        del written, read
        return secret.status_code == 403 and answer.status_code == 200 and is_doubled
    finally:
        for block in (source, target):
            block.close()
            block.unlink()


def main() -> int:
    app = make_app()
    if "--check" not in sys.argv[1:]:
        uvicorn.run(app, host="127.0.0.1", port=8000)
        return 0
    with serving(app) as url:
        return 0 if check(url) else 1


if __name__ == "__main__":
    sys.exit(main())
