"""An adapter of your own: the protocol in an application of aiohttp, a host that speaks neither ASGI nor WSGI.

pip install 'oip_asgi[client]'
python examples/aiohttp_adapter.py            serves on http://127.0.0.1:8000
python examples/aiohttp_adapter.py --check    serves on a free port, asks, and ends

`serve` is the adapter. It translates requests into those of ASGI and answers back, and decides nothing: paths, limits, status codes and
texts are those of `OIPApp`. guide/adapters.md says what each part of it is for.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from aiohttp import ClientSession, web

from oip_asgi import InferenceServer, OIPApp, TensorSpec


def serve(app: web.Application, server: InferenceServer, path: str = "/v2") -> None:
    """Serve the protocol at `path` of an application of aiohttp, which loads the models when it starts."""
    oip_app = OIPApp(server, path=path)

    async def answer(request: web.Request) -> web.StreamResponse:
        response, has_ended = web.StreamResponse(), False

        async def receive() -> dict[str, Any]:
            nonlocal has_ended
            if has_ended:
                await asyncio.Event().wait()  # aiohttp cancels the handler if the client goes: see `start`
            chunk = await request.content.readany()
            has_ended = request.content.at_eof()
            return {"type": "http.request", "body": chunk, "more_body": not has_ended}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                response.set_status(message["status"])
                response.headers.extend((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
                await response.prepare(request)
            elif message["body"]:
                await response.write(message["body"])

        await oip_app(_make_scope(request), receive, send)
        return response

    async def lifespan(_: web.Application) -> AsyncIterator[None]:
        async with server.lifespan():
            yield

    app.cleanup_ctx.append(lifespan)
    for each in (path, f"{path}/{{rest:.*}}"):
        app.router.add_route("*", each, answer)


def _make_scope(request: web.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "method": request.method,
        "path": request.path,  # decoded
        "raw_path": request.raw_path.partition("?")[0].encode(),  # as the client wrote it
        "root_path": "",
        "query_string": request.query_string.encode(),
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "aiohttp.request": request,  # for models, as `InferenceContext.transport["aiohttp.request"]`
    }


def make_app() -> web.Application:
    server = InferenceServer("aiohttp")

    @server.model("double", inputs=[TensorSpec("x", "FP64", [-1])])
    def double(x: Any) -> Any:
        return x * 2

    @server.model("count", inputs=[TensorSpec("n", "INT64", [1])])
    def count(n: Any) -> Iterator[Any]:
        yield from np.arange(n[0])

    app = web.Application()
    serve(app, server)
    return app


async def start(port: int) -> web.AppRunner:
    # a client that goes cancels the call, and bodies stay as they came: the protocol reads compressed ones itself
    runner = web.AppRunner(make_app(), handler_cancellation=True, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


async def run() -> None:
    await start(8000)
    await asyncio.Event().wait()


async def check() -> bool:
    runner = await start(0)
    host, port = runner.addresses[0][:2]
    x = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [1.0, 2.0]}]}
    found = []
    async with ClientSession(f"http://{host}:{port}") as session:
        for method, path, body in (
            ("GET", "/v2/health/ready", None),
            ("GET", "/v2", None),
            ("POST", "/v2/models/double/infer", x),
            ("POST", "/v2/models/count/generate_stream", {"n": 3}),
            ("POST", "/v2/models/absent/infer", x),
            ("PUT", "/v2/models/double/infer", x),
            ("POST", "/v2/models/double/infer", None),
        ):
            async with session.request(method, path, json=body) as answer:
                found.append(f"{answer.status} {await answer.text()}")
                print(f"{method:5}{path:35}{found[-1][:90].strip()}")
        async with session.post("/v2/models/double/infer", json=x, compress="gzip") as answer:
            found.append(f"{answer.status} {await answer.text()}")
    await runner.cleanup()
    is_right = [each[:3] for each in found] == ["200", "200", "200", "200", "404", "405", "400", "200"]
    is_right = is_right and '"data":[2.0,4.0]' in found[2] and found[3].count("data:") == 3 and found[7] == found[2]
    print("aiohttp answers as every host does." if is_right else "The answers are not right.")
    return is_right


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if asyncio.run(check()) else 1
    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
