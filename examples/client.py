"""Ask a server of the protocol with `oip_asgi.client`: arrays, texts, a data frame, a stream, and what a refusal looks like.

pip install 'oip_asgi[client,pandas]' uvicorn
python examples/client.py            serves on http://127.0.0.1:8000
python examples/client.py --check    serves on a free port, asks with both clients, and ends
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt
import pandas as pd
import uvicorn
from starlette.applications import Starlette

from oip_asgi import ErrorResponse, InferenceServer, OIPApp
from oip_asgi.client import AsyncClient, Client
from oip_asgi.codecs import PandasCodec

server = InferenceServer(name="shop")


@server.model("double")
def double(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x * 2


@server.model("greet")
def greet(names: list[str]) -> list[str]:
    return [f"Good day, {name}." for name in names]


@server.model("total")
def total(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"item": orders["item"], "total": orders["price"] * orders["number"]})


@server.model("count")
def count(n: int) -> Iterator[int]:
    yield from range(n)


app = Starlette()
OIPApp(server).install(app, "/v2")


def ask(url: str) -> list[Any]:
    """Ask each model, and give what it answered."""
    orders = pd.DataFrame({"item": ["tea", "milk"], "price": [2.5, 1.0], "number": [2, 3]})
    with Client(url, timeout=10) as client:
        answers: list[Any] = [[each["name"] for each in client.index()], client.is_model_ready("double")]
        answers.append(client.infer("double", {"x": np.array([[1, 2]], np.float32)})["output_0"].tolist())
        answers.append(client.infer("greet", {"names": ["Ada", "Grace"]}).as_("output_0", list[str]))
        answers.append(PandasCodec.decode_response(client.infer("total", orders)).to_dict("list"))
        answers.append([response["output_0"].item() for response in client.stream("count", {"n": 3})])
        try:
            client.infer("double", {"y": np.zeros(1, np.float32)})
        except ErrorResponse as error:
            answers.append((error.response_status, error.text))
    return answers


async def ask_together(url: str) -> list[Any]:
    """Ask one model ten times at once."""
    async with AsyncClient(url) as client:
        responses = await asyncio.gather(*[client.infer("double", {"x": np.full(1, number, np.float32)}) for number in range(10)])
    return [response["output_0"].item() for response in responses]


async def ask_the_application() -> list[Any]:
    """The same as a test of the application asks, without a server."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as http:
        response = await AsyncClient("/v2", http=http).infer("double", {"x": np.array([4], np.float32)})
    return response["output_0"].tolist()  # type: ignore[no-any-return]  # numpy's tolist is Any


EXPECTED = [
    ["double", "greet", "total", "count"],
    True,
    [[2.0, 4.0]],
    ["Good day, Ada.", "Good day, Grace."],
    {"item": ["tea", "milk"], "total": [5.0, 3.0]},
    [0, 1, 2],
    (400, "unknown input 'y': expected 'x'"),
]


def check() -> bool:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        running = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{bound.getsockname()[1]}/v2"
            answers, together = ask(url), asyncio.run(ask_together(url))
        finally:
            running.should_exit = True
            thread.join()
    for answer in answers:
        print(answer)
    print(together)
    return answers == EXPECTED and together == [2.0 * number for number in range(10)] and asyncio.run(ask_the_application()) == [8.0]


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if check() else 1
    uvicorn.run(app, host="127.0.0.1", port=8000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
