"""A Flask application around the matrix's server."""

from __future__ import annotations

from flask import Flask

from oip_asgi.flask import blueprint

from .models import make_server

app = Flask(__name__)
app.register_blueprint(blueprint(make_server()))
