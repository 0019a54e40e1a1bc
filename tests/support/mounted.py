"""ASGI applications behind a real server with HTTP/2 and trailers, in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from oip_asgi import InferenceServer
from oip_asgi.grpc import OIPGRPCApp


def mounted(server: InferenceServer) -> AbstractContextManager[str]:
    """hypercorn around `OIPGRPCApp`; gives its address."""
    return behind_hypercorn(OIPGRPCApp(server))


@contextmanager
def behind_hypercorn(app: Any) -> Iterator[str]:
    """hypercorn around an application; gives its address."""
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
