"""Real servers in a thread of this process, so that tests see what they log. Not every environment has each of them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from oip_asgi import InferenceServer


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """uvicorn around an application; gives the port of 127.0.0.1 where it serves."""
    import uvicorn

    # asyncio turns off Nagle's algorithm only if the socket says that it is one of TCP: else each answer takes 40 ms
    with socket.socket(proto=socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def mounted(server: InferenceServer) -> AbstractContextManager[str]:
    """hypercorn around `OIPGRPCApp`; gives its address."""
    from oip_asgi.grpc import OIPGRPCApp

    return behind_hypercorn(OIPGRPCApp(server))


@contextmanager
def behind_hypercorn(app: Any) -> Iterator[str]:
    """hypercorn, which has HTTP/2 and trailers, around an application; gives its address."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    listening = socket.create_server(("127.0.0.1", 0))  # connections wait here until the server takes them
    config, loop, stop = Config(), asyncio.new_event_loop(), asyncio.Event()
    config.bind, config.errorlog, config.graceful_timeout = [f"fd://{listening.fileno()}"], None, 0.1
    serving = serve(app, config, shutdown_trigger=stop.wait)
    thread = threading.Thread(target=loop.run_until_complete, args=[serving])
    thread.start()
    try:
        yield "{}:{}".format(*listening.getsockname())
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()
        listening.detach()  # the server has closed it
