"""BentoML with one model and its adaptive batches: `python batching_bentoml.py MODEL PORT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bentoml
import numpy as np
from batching_models import models

MODEL = os.environ.get("BENCH_MODEL", "mlp")


@bentoml.service(workers=1, traffic={"max_concurrency": 1000}, logging={"access": {"enabled": False}})  # type: ignore[untyped-decorator, unused-ignore]
class Service:
    """One image a request."""

    def __init__(self) -> None:
        self.model = models()[MODEL]

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=60000, route=f"/{MODEL}")  # type: ignore[untyped-decorator, unused-ignore]
    def predict(self, x: np.ndarray) -> np.ndarray:
        y: np.ndarray = self.model(x.astype(np.float32))
        return y


if __name__ == "__main__":
    os.environ["BENCH_MODEL"] = sys.argv[1]
    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = folder
    os.execv(
        sys.executable,
        [sys.executable, "-m", "bentoml", "serve", "batching_bentoml:Service", "--port", sys.argv[2], "--working-dir", folder],
    )
