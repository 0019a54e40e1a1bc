"""Ray Serve with one model and `@serve.batch`: `python batching_ray.py MODEL PORT`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import numpy as np
import ray
from batching_models import models
from ray import serve


@serve.deployment(max_ongoing_requests=1000)  # type: ignore[untyped-decorator, unused-ignore]
class Digits:
    """One image a request."""

    def __init__(self, name: str) -> None:
        self.model = models()[name]

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.002)  # type: ignore[untyped-decorator, unused-ignore]
    async def predict(self, images: list[Any]) -> list[int]:
        found: list[int] = self.model(np.asarray(images, np.float32)).tolist()
        return found

    async def __call__(self, request: Any) -> dict[str, int]:
        return {"y": await self.predict((await request.json())["x"])}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"working_dir": "tests/lab/bench/peers"}, log_to_driver=False)
    serve.start(http_options={"port": int(sys.argv[2])})
    deployment: Any = Digits
    serve.run(deployment.bind(sys.argv[1]), route_prefix=f"/{sys.argv[1]}")
    signal.sigwait([signal.SIGTERM])
    ray.shutdown()
