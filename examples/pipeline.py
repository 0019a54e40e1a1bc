"""Three models, and one that calls them: tokenise, score, explain. Each has its own limits and is served on its own too.

python examples/pipeline.py            serves on http://127.0.0.1:8000
python examples/pipeline.py --check    asks it over HTTP and from Python, and ends
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httpx2
import numpy as np
import uvicorn
from starlette.applications import Starlette

from oip_asgi import InferenceError, InferenceServer, OIPApp

WORDS = {"good": 2.0, "great": 3.0, "bad": -2.0, "awful": -3.0}

server = InferenceServer(name="reviews")


@server.model("tokenise", max_concurrency=4)
def tokenise(text: list[str]) -> dict[str, Any]:
    """The words of one text. What is wrong with the text is told to the client, also through the pipeline."""
    words = " ".join(text).lower().split()
    if not words:
        raise InferenceError("the text is empty", status=422)
    return {"words": words}


@server.model("score", max_concurrency=1, max_queue=50, timeout=5)
def score(words: list[str]) -> dict[str, Any]:
    """One number for each word. One call at a time, as if it had a GPU."""
    return {"scores": np.array([WORDS.get(word, 0.0) for word in words], np.float32)}


@server.model("explain", max_concurrency=2)
def explain(words: list[str], scores: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The words that matter, those that matter most first."""
    order = np.argsort(-np.abs(scores), kind="stable")
    return {"because": [words[place] for place in order if scores[place]]}


@server.model("review", max_concurrency=50)
async def review(text: list[str]) -> dict[str, Any]:
    """The pipeline: a model like any other. It waits for slots of the three, and holds none of theirs meanwhile."""
    tokens = await server.infer("tokenise", {"text": text})
    scored = await server.infer("score", {"words": tokens["words"]})
    explained = await server.infer("explain", {"words": tokens["words"], "scores": scored["scores"]})
    return {"score": scored["scores"].sum(keepdims=True), "because": explained["because"]}


app = Starlette()
OIPApp(server).install(app, "/v2")


async def check() -> bool:
    """Ask the pipeline over HTTP, twenty times at once, and once from Python."""
    text = "a great book with a bad end"
    body = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]}
    transport = httpx2.ASGITransport(app)
    async with server.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
        answers = await asyncio.gather(*[client.post("/v2/models/review/infer", json=body) for _ in range(20)])
        refused = await client.post("/v2/models/review/infer", json={"inputs": [{**body["inputs"][0], "data": [" "]}]})
        response = await server.infer("review", {"text": [text]})
    statuses = sorted({answer.status_code for answer in answers})
    outputs = {output["name"]: output["data"] for output in answers[0].json()["outputs"]}
    print("over HTTP   ", statuses, outputs)
    print("refused     ", refused.status_code, refused.json())
    print("from Python ", response["score"].tolist(), response["because"].tolist())
    expected = {"score": [1.0], "because": ["great", "bad"]}
    return (
        statuses == [200]
        and outputs == expected
        and (refused.status_code, refused.json()) == (422, {"error": "the text is empty"})
        and response["score"].tolist() == [1.0]
        and response["because"].tolist() == [b"great", b"bad"]
    )


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if asyncio.run(check()) else 1
    uvicorn.run(app, host="127.0.0.1", port=8000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
