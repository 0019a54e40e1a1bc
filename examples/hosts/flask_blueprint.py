"""A Flask application with accounts and a database, whose model is served over the Open Inference Protocol.

    flask --app examples/hosts/flask_blueprint run --port 8000
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

The blueprint's routes are Flask's own, so `before_request` covers them; `public=` gives health a name of its own, by which it is left
open, for probes have no password.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sqlalchemy import func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from werkzeug.datastructures import Authorization, WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from oip_asgi import InferenceContext, InferenceServer, TensorSpec
from oip_asgi.flask import blueprint

# The application as it was -----------------------------------------------------------------------------------------

PASSWORDS = {"ada": "lovelace"}


class Base(DeclarativeBase):
    pass


class Prediction(Base):
    __tablename__ = "predictions"
    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str]
    flowers: Mapped[int]


app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ.get("DATABASE_URL", "sqlite:///predictions.db")
db = SQLAlchemy(app)
with app.app_context():
    Base.metadata.create_all(db.engine)


def user_of(header: str | None) -> str | None:
    """Whom an Authorization header is from, None for nobody that we know."""
    given = Authorization.from_header(header)
    if given is None or not given.username or not given.password:
        return None
    is_right = secrets.compare_digest(PASSWORDS.get(given.username, "").encode(), given.password.encode())
    return given.username if is_right else None


@app.before_request
def authenticate() -> None:
    if request.blueprint == "oip_public":
        return
    user = user_of(request.headers.get("Authorization"))
    if user is None:
        raise Unauthorized("name and password, please", www_authenticate=WWWAuthenticate("basic"))
    request.environ["REMOTE_USER"] = user


@app.get("/history")
def history() -> dict[str, Any]:
    user = request.remote_user
    flowers = db.session.scalar(select(func.sum(Prediction.flowers)).where(Prediction.user == user))
    return {"user": user, "flowers": flowers or 0}


# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("flask-example")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any, context: InferenceContext) -> Any:
    environ = context.transport
    db.session.add(Prediction(user=environ["REMOTE_USER"], flowers=len(x)))
    db.session.commit()
    return data.target_names[classifier.predict(x)]


app.register_blueprint(blueprint(server, public=["health"]))
