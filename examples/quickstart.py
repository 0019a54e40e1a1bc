"""A Starlette application that also serves a scikit-learn model over the Open Inference Protocol.

python examples/quickstart.py            serves on http://127.0.0.1:8000
python examples/quickstart.py --check    serves on a free port, asks it about real images, and ends
"""

from __future__ import annotations

import sys

import uvicorn
from digits import check, make_server, serving, train
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from oip_asgi import OIPApp


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("The application's own route. The model is at /v2/models/digits")


def main() -> int:
    classifier, images, digits = train()
    app = Starlette(routes=[Route("/", home)])
    OIPApp(make_server(classifier)).install(app, "/v2")
    if "--check" not in sys.argv[1:]:
        uvicorn.run(app, host="127.0.0.1", port=8000)
        return 0
    with serving(app) as url:
        return 0 if check(url, classifier, images, digits) else 1


if __name__ == "__main__":
    sys.exit(main())
