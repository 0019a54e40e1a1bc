"""The examples of content types, run as they are: a FastAPI application with data frames, two clients, and a codec of images.

The clients are processes of their own, and the servers real ones; what curl sends is a file that a person could have written.
"""

from __future__ import annotations

import io
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from oip_asgi import InferenceRequest, InferenceResponse
from oip_asgi.codecs import PandasCodec
from tests.support.processes import ROOT
from tests.support.threads import serving

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def frame_app() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "frame_app.py"))


@pytest.fixture(scope="module")
def url(frame_app: dict[str, Any]) -> Iterator[str]:
    with serving(frame_app["app"]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def wines(frame_app: dict[str, Any]) -> pd.DataFrame:
    frame: pd.DataFrame = frame_app["wines"].data.iloc[::40]
    return frame


@pytest.fixture(scope="module")
def expected(frame_app: dict[str, Any], wines: pd.DataFrame) -> pd.DataFrame:
    frame: pd.DataFrame = frame_app["score"](wines)
    assert frame["cultivar"].nunique() == 3
    return frame


@pytest.mark.parametrize("name", ["client_httpx2.py", "client_requests.py"])
def test_a_client_prints_the_models_answer(name: str, url: str, expected: pd.DataFrame) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name, url], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(done.stdout)), expected, check_dtype=False)


def test_a_request_as_mlserver_writes_it_gets_the_same_answer(url: str, wines: pd.DataFrame, expected: pd.DataFrame) -> None:
    """MLServer's codecs write columns as [N, 1]; tests/lab/peers sends what they really wrote."""
    inputs = [{"name": name, "shape": [len(wines), 1], "datatype": "FP64", "data": wines[name].tolist()} for name in wines]
    answer = httpx2.post(f"{url}/v2/models/score/infer", json={"parameters": {"content_type": "pd"}, "inputs": inputs})
    pd.testing.assert_frame_equal(PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.content)), expected)


def test_curl_gets_the_same_answer(url: str, wines: pd.DataFrame, expected: pd.DataFrame, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    file = tmp_path / "request.json"
    inputs = [{"name": name, "datatype": "FP64", "shape": [len(wines)], "data": wines[name].tolist()} for name in reversed(wines.columns)]
    file.write_text(json.dumps({"inputs": inputs}))
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--data", f"@{file}", f"{url}/v2/models/score/infer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    cultivar, probability = json.loads(done.stdout)["outputs"]
    described = [cultivar[key] for key in ("name", "datatype", "shape", "data")]
    assert described == ["cultivar", "BYTES", [len(wines)], expected["cultivar"].tolist()]
    assert probability["data"] == expected["probability"].tolist()


def test_a_wine_without_a_column_is_refused(url: str, wines: pd.DataFrame) -> None:
    headers, body = PandasCodec.encode_request(wines.drop(columns="ash")).to_http()
    answer = httpx2.post(f"{url}/v2/models/score/infer", headers=headers, content=body)
    assert (answer.status_code, answer.json()) == (422, {"error": "columns are missing: ash"})


def test_the_image_codec() -> None:
    names = runpy.run_path(str(EXAMPLES / "image_codec.py"))
    photo = Image.fromarray(np.full((300, 200, 3), (250, 128, 5), np.uint8))
    with serving(names["app"]) as port:
        url = f"http://127.0.0.1:{port}"
        small = names["ask"](url, photo)
        assert small.size == (43, 64)
        assert np.abs(np.asarray(small).astype(int) - (250, 128, 5)).max() <= 2
        text = b'{"inputs":[{"name":"photos","shape":[1],"datatype":"BYTES","data":["no image"]}]}'
        refused = httpx2.post(f"{url}/v2/models/thumbnail/infer", content=text)
        headers, body = InferenceRequest([names["ImageCodec"].encode_input("photos", [photo])]).to_http(binary=True)
        in_json = httpx2.post(f"{url}/v2/models/thumbnail/infer", headers=headers, content=body)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("input 'photos': element 0 is no JPEG image: cannot identify image file")
    assert in_json.status_code == 400  # a JPEG is not UTF-8, and binary output was not asked for
    assert "binary_data" in in_json.json()["error"]
