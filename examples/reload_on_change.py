"""A directory of joblib files, one for each version of a model. A new or changed file is served as soon as it is loaded, without a gap.

python examples/reload_on_change.py DIRECTORY    serves DIRECTORY/1.joblib, 2.joblib and so on, on http://127.0.0.1:8000
python examples/reload_on_change.py --check      writes versions to a directory of its own while it asks for answers, and ends

Write a file under another name and rename it: then nobody reads half of it. A joblib file is code, so let nobody else write there. With
several processes, such as `uvicorn --workers 4`, each watches the directory for itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import joblib
import numpy as np
import uvicorn
from sklearn.linear_model import LinearRegression
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, TensorSpec

NAME = "house"
INPUTS = [TensorSpec("area", "FP64", [-1, 1])]
OUTPUTS = [TensorSpec("price", "FP64", [-1])]
SECONDS = 1.0
"""Between two looks at the directory where watchfiles is not installed."""


class Versions:
    """The versions that are served, and the files that they were read from."""

    def __init__(self, server: InferenceServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._seen: dict[str, int] = {}
        self._read: dict[str, Callable[..., Any]] = {}

    async def refresh(self) -> None:
        """Serve what is new or changed, and let go what is not there any more."""
        files = {path.stem: path for path in self._directory.glob("*.joblib")}
        for version, path in files.items():
            with suppress(FileNotFoundError):  # it has gone again, which the next look sees
                stamp = path.stat().st_mtime_ns
                if self._seen.get(version) != stamp:
                    self._seen[version] = stamp
                    await self._serve(version, path)
        for version in self._read.keys() - files.keys():
            del self._seen[version], self._read[version]
            await self._server.unregister(NAME, version)

    async def _serve(self, version: str, path: Path) -> None:
        is_new = version not in self._read
        try:
            # read before anybody is told: a version that is registered is the default of all requests that name none
            model = await asyncio.to_thread(joblib.load, path)
        except Exception as error:
            print(f"{path.name} cannot be read, so what was read before is served: {error!r}")
            return
        self._read[version] = model.predict
        if is_new:
            self._server.register(NAME, load=lambda: self._read[version], version=version, inputs=INPUTS, outputs=OUTPUTS)
        await self._server.load(NAME, version)
        print("serves version", version, flush=True)

    async def watch(self) -> None:
        """Look at the directory whenever something in it changes."""
        async for _ in changes(self._directory):
            await self.refresh()


async def changes(directory: Path) -> AsyncIterator[None]:
    """Whenever something in a directory may have changed."""
    try:
        from watchfiles import awatch
    except ImportError:
        while True:
            await asyncio.sleep(SECONDS)
            yield
    else:
        async for _ in awatch(directory):
            yield


def make_app(directory: Path) -> Starlette:
    """An application that serves a directory."""
    server = InferenceServer(name="houses")
    versions = Versions(server, directory)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await versions.refresh()
        watching = asyncio.create_task(versions.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    app = Starlette(lifespan=lifespan)
    OIPApp(server).install(app, "/v2")
    return app


def write(directory: Path, version: str, price: float) -> None:
    """Write a version whose houses cost so much for each square metre."""
    areas = np.array([[10.0], [20.0], [30.0]])
    unfinished = directory / f"{version}.unfinished"
    joblib.dump(LinearRegression().fit(areas, areas[:, 0] * price), unfinished)
    unfinished.rename(directory / f"{version}.joblib")


async def check(directory: Path) -> bool:
    """Ask all the time while versions are written, and see each of them served in turn, with no request refused."""
    write(directory, "1", 100)
    app = make_app(directory)
    seen: list[tuple[str, float]] = []
    body = {"inputs": [{"name": "area", "shape": [1, 1], "datatype": "FP64", "data": [50]}]}
    transport = httpx2.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://here") as client:

        async def ask_until(version: str, price: float) -> None:
            async with asyncio.timeout(30):
                while not seen or seen[-1] != (version, price):
                    answer = await client.post(f"/v2/models/{NAME}/infer", json=body)
                    answer.raise_for_status()
                    document = answer.json()
                    told = (document["model_version"], round(document["outputs"][0]["data"][0]))
                    if not seen or seen[-1] != told:
                        seen.append(told)
                    await asyncio.sleep(0.005)

        await ask_until("1", 5000)
        write(directory, "2", 200)  # a new version
        await ask_until("2", 10000)
        write(directory, "2", 300)  # the same version, changed
        await ask_until("2", 15000)
        (directory / "2.joblib").unlink()
        await ask_until("1", 5000)
    print("answers came from", *seen)
    return seen == [("1", 5000), ("2", 10000), ("2", 15000), ("1", 5000)]


def main() -> int:
    if "--check" not in sys.argv[1:]:
        uvicorn.run(make_app(Path(sys.argv[1])), host="127.0.0.1", port=8000)
        return 0
    with TemporaryDirectory() as directory:
        return 0 if asyncio.run(check(Path(directory))) else 1


if __name__ == "__main__":
    sys.exit(main())
