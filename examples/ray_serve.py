"""An application on Ray Serve: a cluster runs more copies of it while there is more to do, and fewer after.

pip install 'ray[serve]' -e '.[examples]'
PYTHONPATH=examples serve run ray_serve:app    serves on http://127.0.0.1:8000, on a cluster of this machine
python examples/ray_serve.py            serves on a free port, on a cluster that it starts on this machine
python examples/ray_serve.py --check    asks that with two clients until it has grown, waits until it has shrunk, and ends
uvicorn --app-dir examples --factory ray_serve:make_app    serves the same application without Ray
"""

# no `from __future__ import annotations`: Ray sends the functions of a script by value, without the names that texts of annotations name
import asyncio
import collections
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import httpx2
import numpy as np
import ray
import tritonclient.http
from digits import ask_json, free_port, train
from ray import serve
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, TensorSpec

MODEL_SECONDS: Final = 0.05
"""What one call takes. The classifier itself needs microseconds: the rest of it stands for a larger model."""

MAX_CONCURRENCY: Final = 2
MAX_QUEUE: Final = 20
PROBES: Final = 8
"""Requests that take no slot of the model: probes, metadata, and those that are refused."""


def load() -> Callable[..., Any]:
    """The model, made in the process that runs it: nothing of it travels through the cluster."""
    classifier = train()[0]

    def digits(image: np.ndarray) -> Any:
        time.sleep(MODEL_SECONDS)
        return classifier.predict(image)

    return digits


def make_app() -> Starlette:
    """The application. It knows nothing of Ray."""
    server = InferenceServer("digits-on-ray", "1")
    server.register(
        "digits",
        load=load,
        inputs=[TensorSpec("image", "FP32", [-1, 64])],
        outputs=[TensorSpec("digit", "INT64", [-1])],
        max_concurrency=MAX_CONCURRENCY,
        max_queue=MAX_QUEUE,
    )
    app = Starlette()
    app.state.server = server
    OIPApp(server).install(app, "/v2")
    return app


@serve.deployment(
    # Ray's own default of 5 is less than the model takes: its queue would never fill, and Ray would wait instead
    max_ongoing_requests=MAX_CONCURRENCY + MAX_QUEUE + PROBES,
    # how many wait in Ray's proxy while all replicas have so many. Without a bound they wait for ever. Ray also counts those for which it
    # is about to choose a replica, so a small number refuses a burst
    max_queued_requests=100,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": MAX_CONCURRENCY,  # more of them wait
        "upscale_delay_s": 1,  # 30 and 600 seconds by default, for a replica that takes long to start
        "downscale_delay_s": 3,
    },
    health_check_period_s=2,
    ray_actor_options={"num_cpus": 0.5},
)
@serve.ingress(make_app)  # a function: each replica calls it and has an application of its own
class Digits:
    """The deployment: `make_app` answers its requests."""

    def check_health(self) -> None:
        """Called by Ray. A replica that raises gets no requests and is replaced, and a new version that raises is not rolled out."""
        failed = [model.name for model in self.app.state.server.models() if model.state == "failed"]  # type: ignore[attr-defined]  # Ray sets it
        if failed:
            raise RuntimeError(f"could not load {', '.join(failed)}")


app = Digits.bind()  # type: ignore[attr-defined]  # Ray makes it a deployment


def replicas() -> int:
    """How many replicas run."""
    [deployment] = serve.status().applications["default"].deployments.values()
    return int(deployment.replica_states.get("RUNNING", 0))


def ask_triton(address: str, images: Any) -> list[int]:
    """The digits that the server sees in `images` [n, 64], asked by tritonclient."""
    with tritonclient.http.InferenceServerClient(address) as client:
        assert client.is_server_ready()
        tensor = tritonclient.http.InferInput("image", images.shape, "FP32").set_data_from_numpy(images)
        digits: list[int] = client.infer("digits", [tensor]).as_numpy("digit").tolist()
        return digits


async def ask_until(replicas_wanted: int, url: str, images: Any, clients: int) -> collections.Counter[int]:
    """Ask, `clients` at a time, until so many replicas run, a minute at most. Returns how often each status was answered."""
    statuses: collections.Counter[int] = collections.Counter()
    request = {"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": images[0].tolist()}]}
    end = time.monotonic() + 60
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:

        async def ask() -> None:
            while not done.done() and time.monotonic() < end:
                statuses[(await client.post("/v2/models/digits/infer", json=request)).status_code] += 1

        def look() -> None:
            while replicas() != replicas_wanted and time.monotonic() < end:
                time.sleep(0.25)

        done = asyncio.ensure_future(asyncio.to_thread(look))
        await asyncio.gather(done, *[ask() for _ in range(clients)])
    return statuses


def check(address: str) -> bool:
    """Ask with two clients, see the cluster grow under load and shrink after it, and say whether all of it was right."""
    classifier, images, _ = train()
    shown = images[:16]
    with httpx2.Client(base_url=f"http://{address}") as client:
        by_json = ask_json(client, shown)
    by_triton = ask_triton(address, shown)
    print("httpx2       ", *by_json)
    print("tritonclient", *by_triton)
    statuses = asyncio.run(ask_until(2, f"http://{address}", images, clients=12))
    grown = replicas()
    print(f"under load   {grown} replicas, answers by status: {dict(statuses)}")
    asyncio.run(ask_until(1, f"http://{address}", images, clients=0))
    shrunk = replicas()
    print(f"after it     {shrunk} replica")
    return by_json == by_triton == classifier.predict(shown).tolist() and (grown, shrunk) == (2, 1) and set(statuses) == {200}


def main() -> int:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with free_port() as bound:
        port = bound.getsockname()[1]
    # only on this machine, and bounded: two CPUs, and 80 MB for objects, which Serve does not use
    ray.init(num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(app)
        if "--check" in sys.argv[1:]:
            return 0 if check(f"127.0.0.1:{port}") else 1
        print(f"serves on http://127.0.0.1:{port} until Ctrl-C")
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        return 0
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
