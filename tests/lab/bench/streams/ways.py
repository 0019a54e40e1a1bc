"""The streams that are measured, and the servers that they need."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

Transport: TypeAlias = Literal["SSE", "gRPC"]

BARE: Final[dict[Transport, str]] = {"SSE": "bare SSE", "gRPC": "bare gRPC"}
"""What the others over each transport are compared with."""

PEERS: Final = ("TRITON_PYTHON", "LITSERVE_PYTHON")
"""The variables that name the Python of environments with other servers."""


@dataclass(frozen=True)
class Way:
    """A stream of items.

    Args:
        name: What the tables call it.
        transport: How it is asked for.
        server: The key of its server in `servers`.
        target: The path over SSE, the model over gRPC.
        is_slow: Whether it is asked for a tenth of the items.
        is_flat: Whether its request is a flat object over SSE, not a whole inference request.
    """

    name: str
    transport: Transport
    server: str
    target: str
    is_slow: bool = False
    is_flat: bool = True

    def body(self, items: int) -> bytes:
        """What it is sent over SSE."""
        if self.is_flat:
            return b'{"n":[%d]}' % items
        return b'{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[%d]}]}' % items


WAYS: Final = (
    Way("bare SSE", "SSE", "uvicorn", "/bare"),
    Way("async def", "SSE", "uvicorn", "/v2/models/async/generate_stream"),
    Way("async def, mappings", "SSE", "uvicorn", "/v2/models/mappings/generate_stream"),
    Way("async def, texts", "SSE", "uvicorn", "/v2/models/texts/generate_stream"),
    Way("async def, infer_stream", "SSE", "uvicorn", "/v2/models/async/infer_stream", is_flat=False),
    Way("def", "SSE", "uvicorn", "/v2/models/thread/generate_stream", is_slow=True),
    Way("Triton, SSE", "SSE", "Triton", "/v2/models/items/generate_stream", is_slow=True),
    Way("LitServe", "SSE", "LitServe", "/items", is_slow=True),
    Way("bare gRPC", "gRPC", "bare gRPC", "bare"),
    Way("gRPC, async def", "gRPC", "grpc.aio", "async"),
    Way("gRPC, def", "gRPC", "grpc.aio", "thread", is_slow=True),
    Way("gRPC on pyvoy, async def", "gRPC", "pyvoy", "async"),
    Way("Triton, gRPC", "gRPC", "Triton", "items", is_slow=True),
)


@dataclass(frozen=True)
class Server:
    """How a server is started.

    Args:
        command: Its command line, with PORT and GRPC_PORT in the place of its ports.
        ready: The path that answers 200 when it is ready; None where only gRPC is served.
    """

    command: Sequence[str]
    ready: str | None = None


def servers() -> dict[str, Server]:
    """The servers that can be started here."""
    own = [sys.executable, "-m", "tests.lab.bench.streams.served"]
    found = {
        "uvicorn": Server([*own, "uvicorn", "PORT"], "/v2/health/ready"),
        "bare gRPC": Server([*own, "bare gRPC", "GRPC_PORT"]),
        "grpc.aio": Server([*own, "grpc.aio", "GRPC_PORT"]),
    }
    pyvoy = shutil.which("pyvoy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if pyvoy:
        found["pyvoy"] = Server(
            [pyvoy, "--loop", "uvloop", "--log-level", "error", "--port", "GRPC_PORT", "tests.lab.bench.streams.pyvoy:app"]
        )
    triton, litserve = (os.environ.get(variable, "") for variable in PEERS)
    if Path(triton).is_file():
        found["Triton"] = Server([triton, "-m", "tests.lab.bench.peers.streams_triton", "PORT", "GRPC_PORT"], "/v2/health/ready")
    if Path(litserve).is_file():
        found["LitServe"] = Server([litserve, "-m", "tests.lab.bench.peers.streams_litserve", "PORT"], "/health")
    return found


def left_out(known: Sequence[str]) -> list[str]:
    """What the tables do not have, because its server cannot be started, and what it wants."""
    wants = {"pyvoy": "pyvoy installed", "Triton": "TRITON_PYTHON", "LitServe": "LITSERVE_PYTHON"}
    return [f"{way.name}: wants {wants[way.server]}" for way in WAYS if way.server not in known]
