"""Asks a server for the species of two flowers, in JSON, with KServe's client.

python examples/clients/with_kserve.py [http://127.0.0.1:8000] [user:password]
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

FLOWERS = np.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]])


async def main(url: str = "http://127.0.0.1:8000", user: str = "ada:lovelace") -> None:
    name, _, password = user.partition(":")
    client = InferenceRESTClient(RESTConfig(protocol="v2", auth=(name, password)))
    if not await client.is_server_ready(url):
        sys.exit("the server is not ready")
    flowers = InferInput("x", list(FLOWERS.shape), "FP64")
    flowers.set_data_from_numpy(FLOWERS, binary_data=False)
    response = await client.infer(url, InferRequest("iris", [flowers]), model_name="iris")
    print(*response.outputs[0].data)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
