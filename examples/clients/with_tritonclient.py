"""Asks a server for the species of two flowers, with binary tensors both ways, with tritonclient.

python examples/clients/with_tritonclient.py [http://127.0.0.1:8000] [user:password]
"""

from __future__ import annotations

import sys

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.http.auth import BasicAuth

FLOWERS = np.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]])


def main(url: str = "http://127.0.0.1:8000", user: str = "ada:lovelace") -> None:
    name, _, password = user.partition(":")
    with InferenceServerClient(url.removeprefix("http://")) as client:
        client.register_plugin(BasicAuth(name, password))
        if not client.is_model_ready("iris"):
            sys.exit("the model is not ready")
        flowers = InferInput("x", list(FLOWERS.shape), "FP64")
        flowers.set_data_from_numpy(FLOWERS)
        result = client.infer("iris", [flowers])
        print(*(species.decode() for species in result.as_numpy("species")))


if __name__ == "__main__":
    main(*sys.argv[1:])
