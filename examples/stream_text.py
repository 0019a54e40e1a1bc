"""A text generator whose words are sent while it still writes: over server-sent events and over gRPC.

python examples/stream_text.py            serves on http://127.0.0.1:8000, a page to try it included, and gRPC on 127.0.0.1:8001
python examples/stream_text.py --check    serves on free ports, asks with real clients, and ends

curl -N http://127.0.0.1:8000/v2/models/writer/generate_stream -d '{"text_input": "The value of", "max_words": 20}'

Behind gunicorn, from this folder: its ASGI worker has gRPC on the application's own port, and its WSGI one serves the protocol alone:

gunicorn --worker-class asgi --http-protocols h2,h1 --http2-cleartext both --bind 127.0.0.1:8000 "stream_text:asgi_app()"
gunicorn --bind 127.0.0.1:8000 --threads 8 "stream_text:wsgi_app()"

The model is small but real: it counts which character follows each six others in Python's own manual, which every Python ships.
"""

from __future__ import annotations

import asyncio
import json
import pydoc_data.topics
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any

import grpc.aio
import httpx2
import numpy as np
import tritonclient.grpc
import uvicorn
from digits import free_port, serving
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from werkzeug.exceptions import NotFound

from oip_asgi import InferenceServer, OIPApp, OIPWSGIMiddleware, TensorSpec
from oip_asgi.grpc import add_to_server

ORDER = 6
WORDS = np.array([50])
PAUSE = 0.02
"""Seconds that a word takes, as it would with a larger model."""

PAGE = """<!doctype html><title>Writer</title><form><input name="text" value="The value of" size="40"><button>Write</button></form>
<p id="answer"></p><script>
document.forms[0].onsubmit = async (event) => {
  event.preventDefault();
  const answer = document.getElementById("answer");
  answer.textContent = event.target.text.value;
  const body = JSON.stringify({text_input: event.target.text.value, max_words: 100});
  const response = await fetch("/v2/models/writer/generate_stream", {method: "POST", body});
  if (!response.ok) {
    answer.textContent = await response.text();
    return;
  }
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (text + chunk).split("\\n\\n");
    text = events.pop();
    for (const event of events) {  // others than these are comments, which keep the connection open
      if (!event.startsWith("data: ")) continue;
      const item = JSON.parse(event.slice("data: ".length));
      answer.textContent += item.error ?? item.text_output;
    }
  }
};
</script>"""


class Writer:
    """Which characters follow which, in a text.

    Args:
        text: What it learns.
    """

    def __init__(self, text: str) -> None:
        self.running = 0
        """How many streams are being written."""
        self._following: defaultdict[str, list[str]] = defaultdict(list)
        for place in range(ORDER, len(text)):
            self._following[text[place - ORDER : place]].append(text[place])
        self._beginnings = [context for context in self._following if context[0] == " "]

    async def write(self, text_input: list[str], max_words: Any = WORDS) -> AsyncIterator[list[str]]:
        """Yield one word after the other."""
        self.running += 1
        try:
            context, word = text_input[0][-ORDER:], ""
            for _ in range(int(max_words[0])):
                while len(word) < 2 or not word.endswith(" "):
                    following = self._following.get(context) or self._following[context := random.choice(self._beginnings)]
                    character = random.choice(following)
                    word, context = word + character, context[1:] + character
                yield [word]
                word = ""
                await asyncio.sleep(PAUSE)
        finally:
            self.running -= 1  # also when the reader has gone


def train() -> Writer:
    """A writer that has read Python's manual."""
    words = re.findall(r"[\w.,;()'-]+", " ".join(pydoc_data.topics.topics.values()))
    return Writer(" ".join(words))


def make_server(writer: Writer) -> InferenceServer:
    """The inference server with the model "writer"."""
    server = InferenceServer("writer")
    server.register(
        "writer",
        writer.write,
        inputs=[TensorSpec("text_input", "BYTES", [1]), TensorSpec("max_words", "INT64", [1])],
        outputs=[TensorSpec("text_output", "BYTES", [1])],
    )
    return server


@asynccontextmanager
async def grpc_beside(server: InferenceServer, port: int) -> AsyncIterator[None]:
    """gRPC on a port of its own, for ASGI servers without HTTP/2."""
    grpc_server = grpc.aio.server()
    add_to_server(server, grpc_server)
    grpc_server.add_insecure_port(f"127.0.0.1:{port}")
    await grpc_server.start()
    yield
    await grpc_server.stop(1)


def make_app(server: InferenceServer, grpc_port: int | None = None) -> FastAPI:
    """The application, with the protocol at /v2, gRPC on its own port, and on `grpc_port` too where one is given."""
    app = FastAPI(lifespan=None if grpc_port is None else lambda _: grpc_beside(server, grpc_port))

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return PAGE

    OIPApp(server).install(app, "/v2", grpc=True)
    return app


def asgi_app() -> FastAPI:
    """The application for an ASGI server."""
    return make_app(make_server(train()))


def wsgi_app() -> OIPWSGIMiddleware:
    """The protocol at /v2 for a WSGI server."""
    return OIPWSGIMiddleware(NotFound(), make_server(train()), "/v2")


def check(url: str, grpc_port: int, writer: Writer) -> bool:
    """Ask with real clients, and print what they see."""
    body = {"text_input": "The value of", "max_words": 20}
    words: list[str] = []
    running_at_first = 0
    with httpx2.stream("POST", f"{url}/v2/models/writer/generate_stream", json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                running_at_first = running_at_first if words else writer.running
                words.append(json.loads(line.removeprefix("data: "))["text_output"])
    print("SSE:  The value of" + "".join(words))
    print("the first word came while the model was running:", running_at_first == 1)

    with httpx2.stream("POST", f"{url}/v2/models/writer/generate_stream", json={**body, "max_words": 10_000}, timeout=60) as response:
        next(response.iter_lines())
    end = time.monotonic() + 20
    while writer.running and time.monotonic() < end:
        time.sleep(0.01)
    print("the model stopped when its reader went:", writer.running == 0)

    answers: SimpleQueue[Any] = SimpleQueue()
    text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"The value of"], object))
    count = tritonclient.grpc.InferInput("max_words", [1], "INT64")
    count.set_data_from_numpy(np.array([20]))
    spoken: list[str] = []
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer("writer", [text, count], enable_empty_final_response=True)
        while not (result := answers.get(timeout=60)).get_response().parameters["triton_final_response"].bool_param:
            spoken.append(result.as_numpy("text_output")[0].decode())
        client.stop_stream()
    print("gRPC: The value of" + "".join(spoken))
    return len(words) == len(spoken) == 20 and running_at_first == 1 and writer.running == 0


def main() -> int:
    writer = train()
    if "--check" not in sys.argv[1:]:
        uvicorn.run(make_app(make_server(writer), 8001), host="127.0.0.1", port=8000)
        return 0
    with free_port() as unused:
        grpc_port = unused.getsockname()[1]
    with serving(make_app(make_server(writer), grpc_port)) as url:
        return 0 if check(url, grpc_port, writer) else 1


if __name__ == "__main__":
    sys.exit(main())
