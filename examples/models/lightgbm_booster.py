"""A LightGBM booster that takes a data frame with categories: what a flat costs.

    pip install -e '.[pandas]' lightgbm uvicorn httpx2
    python examples/models/lightgbm_booster.py
    uvicorn --factory --app-dir examples/models lightgbm_booster:make_app
    python examples/models/lightgbm_booster.py --check

The second line trains, and writes rent.txt into the directory that you are in. The third serves it on http://127.0.0.1:8000. The last
does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pandas as pd

from oip_asgi import InferenceServer, OIPApp, TensorSpec

FILE = "rent.txt"
INPUTS = [
    TensorSpec("town", "BYTES", [-1], content_type="str"),
    TensorSpec("area", "FP64", [-1]),
    TensorSpec("floor", "INT64", [-1]),
]
OUTPUTS = [TensorSpec("rent", "FP64", [-1])]


def load_rent() -> Callable[[pd.DataFrame], Any]:
    """Read the booster. It runs once in each process, before the server is ready."""
    booster = lightgbm.Booster(model_file=FILE)
    names = booster.feature_name()

    def predict(flats: pd.DataFrame) -> Any:
        # LightGBM takes columns by place, so they are put in its order: a client may send them in any. Strings become categories;
        # the file knows those of the training, and a town that is new counts as missing.
        return booster.predict(flats[names].astype({"town": "category"}))

    return predict


def make_app() -> OIPApp:
    server = InferenceServer("flats")
    # max_concurrency: one call uses all cores
    server.register("rent", load=load_rent, inputs=INPUTS, outputs=OUTPUTS, max_concurrency=1)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------

PRICES = {"Bremen": 9.0, "Köln": 12.0, "München": 20.0}  # of a square metre


def flats(count: int, seed: int) -> pd.DataFrame:
    """Flats as they could be."""
    random = np.random.default_rng(seed)
    columns = {"town": random.choice(list(PRICES), count), "area": random.uniform(20, 150, count), "floor": random.integers(0, 9, count)}
    return pd.DataFrame(columns)


def rents(seen: pd.DataFrame) -> pd.Series[float]:
    """What such flats cost."""
    return seen["area"] * seen["town"].map(PRICES) + 10 * seen["floor"]


def train() -> None:
    seen = flats(2000, seed=1)
    data = lightgbm.Dataset(seen.astype({"town": "category"}), rents(seen))
    lightgbm.train({"objective": "regression", "verbose": -1, "seed": 0}, data, num_boost_round=100).save_model(FILE)


def ask(url: str) -> bool:
    """Ask with a data frame, its columns in another order, and compare with what the booster says here."""
    import httpx2

    from oip_asgi import InferenceResponse
    from oip_asgi.codecs import PandasCodec

    unseen = flats(6, seed=2)
    headers, body = PandasCodec.encode_request(unseen[["floor", "town", "area"]]).to_http()
    answer = httpx2.post(f"{url}/v2/models/rent/infer", headers=headers, content=body).raise_for_status()
    [output] = InferenceResponse.from_http(answer.headers, answer.content).outputs
    print(unseen.assign(rent=rents(unseen), said=output.array).round(1).to_string(index=False))

    elsewhere = PandasCodec.encode_request(unseen.assign(town="Paris")).to_http()
    unknown = httpx2.post(f"{url}/v2/models/rent/infer", headers=elsewhere[0], content=elsewhere[1])
    print("in a town that it does not know", unknown.status_code)

    own = load_rent()(unseen)
    is_near = np.abs(output.array - rents(unseen)).max() < 100
    return bool(np.array_equal(output.array, own)) and bool(is_near) and unknown.status_code == 200


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
