"""A torch module: a convolutional network that reads handwritten digits.

    pip install -e . torch uvicorn
    pip install scikit-learn 'tritonclient[http]' httpx2
    python examples/models/torch_module.py
    uvicorn --factory --app-dir examples/models torch_module:make_app
    python examples/models/torch_module.py --check

The first line installs what serves, the second what trains and asks. The third line trains for some seconds, and writes digits.pt into the
directory that you are in. The fourth serves it on http://127.0.0.1:8000. The last does both in a directory of its own, asks the server,
and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from oip_asgi import InferenceServer, OIPApp, TensorSpec

FILE = "digits.pt"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INPUTS = [TensorSpec("image", "FP32", [-1, 8, 8])]
OUTPUTS = [TensorSpec("digit", "INT64", [-1]), TensorSpec("probability", "FP32", [-1])]


def make_network() -> nn.Module:
    """The network without weights: images [n, 1, 8, 8] in, ten logits for each out."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def load_digits() -> Callable[..., Any]:
    """Read the weights. It runs once in each process, before the server is ready."""
    network = make_network()
    network.load_state_dict(torch.load(FILE, map_location=DEVICE, weights_only=True))
    network.to(DEVICE).eval()

    def predict(image: torch.Tensor) -> tuple[Any, Any]:
        with torch.inference_mode():  # it holds for one thread, and each call may run in another
            logits = network(image.to(DEVICE)[:, None])
            probability, digit = logits.softmax(dim=1).max(dim=1)
        return digit.cpu(), probability.cpu()  # tensors of the CPU become arrays, in the order of OUTPUTS

    return predict


def make_app() -> OIPApp:
    server = InferenceServer("digits")
    # max_concurrency: one call uses all cores, or the whole GPU
    server.register("digits", load=load_digits, inputs=INPUTS, outputs=OUTPUTS, max_concurrency=1)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def images(*, unseen: bool) -> tuple[Any, Any]:
    """Images [n, 8, 8] of FP32 between 0 and 1, and their digits [n]: those to learn, or those to ask about."""
    import numpy as np
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    bunch = datasets.load_digits()
    parts = train_test_split((bunch.images / 16).astype(np.float32), bunch.target, test_size=0.2, random_state=0)
    return parts[unseen], parts[2 + unseen]


def train() -> None:
    torch.manual_seed(0)
    pixels, digits = (torch.from_numpy(array) for array in images(unseen=False))
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(6):
        for rows in torch.randperm(len(pixels)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(pixels[rows][:, None]), digits[rows]).backward()
            optimizer.step()
    torch.save(network.state_dict(), FILE)


def ask(url: str) -> bool:
    """Ask about images that the network has not seen, with Triton's own client and binary tensor data."""
    from tritonclient.http import InferenceServerClient, InferInput

    pixels, digits = images(unseen=True)
    with InferenceServerClient(url.removeprefix("http://")) as client:
        tensor = InferInput("image", pixels.shape, "FP32").set_data_from_numpy(pixels)
        answer = client.infer("digits", [tensor])
    said, probability = answer.as_numpy("digit"), answer.as_numpy("probability")
    print("server    ", *said[:16])
    print("true digit", *digits[:16])
    print(
        f"{(said == digits).mean():.1%} of {len(digits)} are right, and where it is sure, {(said == digits)[probability > 0.99].mean():.1%}"
    )
    own_digits, own_probability = load_digits()(torch.from_numpy(pixels))
    is_own = bool((own_digits.numpy() == said).all()) and bool((abs(own_probability.numpy() - probability) < 1e-5).all())
    return is_own and bool((said == digits).mean() > 0.95)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
