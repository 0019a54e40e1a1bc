"""A Flask application that also serves a scikit-learn model over the Open Inference Protocol, through WSGI middleware.

python examples/flask_app.py            serves on http://127.0.0.1:8000
python examples/flask_app.py --check    serves on a free port, asks it about real images, and ends
"""

from __future__ import annotations

import sys
import threading

from digits import check, make_server, train
from flask import Flask
from werkzeug.serving import make_server as make_http_server

from oip_asgi import OIPWSGIMiddleware

app = Flask(__name__)


@app.get("/")
def home() -> str:
    return "The application's own route. The model is at /v2/models/digits"


def main() -> int:
    classifier, images, digits = train()
    # as Flask's documentation has it
    app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, make_server(classifier), "/v2")  # type: ignore[method-assign]
    if "--check" not in sys.argv[1:]:
        app.run(host="127.0.0.1", port=8000)
        return 0
    http_server = make_http_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=http_server.serve_forever)
    serving.start()
    try:
        return 0 if check(f"http://127.0.0.1:{http_server.port}", classifier, images, digits) else 1
    finally:
        http_server.shutdown()
        serving.join()


if __name__ == "__main__":
    sys.exit(main())
