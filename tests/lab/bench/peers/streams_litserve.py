"""LitServe with a streaming model: `python -m tests.lab.bench.peers.streams_litserve PORT`.

It answers a request with as many events as it asks for: what a stream looks like is up to its `encode_response`.
"""

# without postponed annotations: LitServe reads that of `decode_request`

import json
import signal
import sys
from typing import Any

import litserve


class Items(litserve.LitAPI):  # type: ignore[misc]
    """Integers, one after the other."""

    def setup(self, device: str) -> None:
        pass

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # it takes what is annotated for a parameter of the query
        return int(request["n"][0])

    def predict(self, count: int) -> Any:
        yield from range(count)

    def encode_response(self, output: Any) -> Any:
        for index in output:
            yield f"data: {json.dumps({'model_name': 'items', 'text_output': index})}\n\n"


def main() -> None:
    # LitServe ends its worker processes after this signal only
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = litserve.LitServer(Items(api_path="/items", stream=True), accelerator="cpu", timeout=120)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, log_level="warning", generate_client_file=False, access_log=False
    )


if __name__ == "__main__":
    main()
