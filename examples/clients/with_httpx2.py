"""Asks a server for the species of two flowers, in JSON, with httpx2.

python examples/clients/with_httpx2.py [http://127.0.0.1:8000] [user:password]
"""

from __future__ import annotations

import sys

import httpx2

FLOWERS = [[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]]


def main(url: str = "http://127.0.0.1:8000", user: str = "ada:lovelace") -> None:
    name, _, password = user.partition(":")
    request = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 4], "data": FLOWERS}]}
    with httpx2.Client(base_url=url, auth=(name, password)) as client:
        client.get("/v2/health/ready").raise_for_status()
        response = client.post("/v2/models/iris/infer", json=request)
        if response.is_error:
            sys.exit(response.json()["error"])
        print(*response.json()["outputs"][0]["data"])


if __name__ == "__main__":
    main(*sys.argv[1:])
