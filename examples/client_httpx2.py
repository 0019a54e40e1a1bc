"""Ask frame_app.py about five wines with httpx2: a data frame out, a data frame back, as binary tensor data both ways.

python examples/client_httpx2.py http://127.0.0.1:8000
"""

from __future__ import annotations

import sys

import httpx2
import pandas as pd
from sklearn.datasets import load_wine

from oip_asgi import InferenceResponse
from oip_asgi.codecs import PandasCodec


def score(url: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The cultivars that the server at `url` finds in the rows of `frame`."""
    request = PandasCodec.encode_request(frame)
    request.parameters["binary_data_output"] = True
    headers, body = request.to_http(binary=True)
    answer = httpx2.post(f"{url}/v2/models/score/infer", headers=headers, content=body)
    return PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.content, answer.status_code))


if __name__ == "__main__":
    print(score(sys.argv[1], load_wine(as_frame=True).data.iloc[::40]).to_csv(index=False), end="")
