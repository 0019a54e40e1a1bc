"""A Starlette application with a model, and the model's numbers for Prometheus at /metrics.

python examples/metrics.py            serves on http://127.0.0.1:8000; let Prometheus scrape it by examples/grafana/prometheus.yml
python examples/metrics.py --check    serves on a free port, sends five requests, reads its own numbers, and ends
"""

from __future__ import annotations

import sys
import time

import httpx2
import numpy as np
import uvicorn
from digits import serving
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.prometheus import instrument


def make_app() -> Starlette:
    server = InferenceServer(name="metrics")

    @server.model("double", inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])])
    def double(x: np.ndarray) -> np.ndarray:
        time.sleep(0.003)
        return x * 2

    registry = CollectorRegistry()
    instrument(server, registry)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    app = Starlette(routes=[Route("/metrics", metrics)])
    OIPApp(server).install(app, "/v2")
    return app


def check(url: str) -> bool:
    with httpx2.Client(base_url=url, verify=False) as client:
        for data in ([1, 2], [3], [4, 5, 6], ["no number"], "no list"):
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(data)], "data": data}]}
            print(f"{data!r:12}", client.post("/v2/models/double/infer", json=body).status_code)
        page = client.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.value and sample.labels.get("model") == "double" and "le" not in sample.labels:
                found[sample.name, sample.labels.get("outcome", "")] = sample.value
                print(f"{sample.name} {sample.labels.get('outcome', '')} {sample.value:g}")
    seconds = found["oip_execution_duration_seconds_sum", ""]
    return found["oip_requests_total", "ok"] == 3 and found["oip_requests_total", "invalid"] == 2 and seconds >= 0.009


def main() -> int:
    app = make_app()
    if "--check" not in sys.argv[1:]:
        uvicorn.run(app, host="127.0.0.1", port=8000)
        return 0
    with serving(app) as url:
        return 0 if check(url) else 1


if __name__ == "__main__":
    sys.exit(main())
