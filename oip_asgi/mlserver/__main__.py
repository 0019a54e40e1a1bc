"""`python -m oip_asgi.mlserver FOLDER`: serves a folder of MLServer with uvicorn."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..asgi import OIPApp
from ..server import InferenceServer
from .folder import SED, register_folder
from .settings import read_settings

_DESCRIPTION: Final = "Serve a folder of MLServer: REST at /v2, and gRPC-Web there if protobuf is installed. It serves no gRPC."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m oip_asgi.mlserver", description=_DESCRIPTION)
    parser.add_argument("folder", type=Path, help="the folder with settings.json, and model-settings.json in it or below it")
    parser.add_argument("--host", help="the address to listen at; the host of settings.json if it is left out, or 0.0.0.0")
    parser.add_argument("--port", type=int, help="the port; http_port of settings.json if it is left out, or 8080")
    parser.add_argument("--model-control", action="store_true", help="let clients load and unload models")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    files = [file for file in sorted(options.folder.rglob("*.py")) if file.is_file()]
    old = [str(file) for file in files if re.search(rb"^\s*(from|import) mlserver", file.read_bytes(), re.M)]
    if old:
        print(f"These files import mlserver. Change their import lines:\n{SED} {' '.join(old)}", flush=True)  # noqa: T201
    try:
        import uvicorn
        from starlette.applications import Starlette

        settings = read_settings(options.folder)
        server = InferenceServer(settings.server_name, settings.server_version, model_control=options.model_control)
        register_folder(server, options.folder)
    except (ImportError, ValueError) as error:
        sys.exit(f"{error}: pip install uvicorn" if isinstance(error, ImportError) else str(error))
    app = Starlette()
    OIPApp(server).install(app, "/v2", grpc=find_spec("google") is not None and find_spec("google.protobuf") is not None)
    uvicorn.run(app, host=options.host or settings.host, port=settings.http_port if options.port is None else options.port)


if __name__ == "__main__":
    main()
