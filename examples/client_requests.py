"""Ask frame_app.py about five wines with requests: a data frame out, a data frame back, as JSON.

python examples/client_requests.py http://127.0.0.1:8000
"""

from __future__ import annotations

import sys

import pandas as pd
import requests
from sklearn.datasets import load_wine

from oip_asgi import InferenceResponse
from oip_asgi.codecs import PandasCodec


def score(url: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The cultivars that the server at `url` finds in the rows of `frame`."""
    headers, body = PandasCodec.encode_request(frame).to_http()
    answer = requests.post(f"{url}/v2/models/score/infer", headers=headers, data=body, timeout=60)
    return PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.content, answer.status_code))


if __name__ == "__main__":
    print(score(sys.argv[1], load_wine(as_frame=True).data.iloc[::40]).to_csv(index=False), end="")
