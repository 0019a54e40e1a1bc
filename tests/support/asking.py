"""Small helpers for tests that ask a server one thing."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, Tensor
from tests.support.ways import Answer, Request, over_asgi

NOT_READY = "it is not ready; only server.load(...), server.load_sync(...), or a client of a server with model_control=True, loads it again"
"""What the log says of a model whose load failed."""


def described(**arrays: Any) -> list[dict[str, Any]]:
    """JSON inputs for arrays, by name."""
    inputs = []
    for name, value in arrays.items():
        array = np.asarray(value)
        datatype = Tensor(name, array).datatype
        inputs.append({"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.ravel().tolist()})
    return inputs


def ask(server: InferenceServer, model: str, more: Any = None, /, **arrays: Any) -> Answer:
    """Infer over ASGI, with the arrays as JSON inputs."""
    body = json.dumps({"inputs": described(**arrays), **(more or {})}).encode()
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/{model}/infer", (), body))


def generate(server: InferenceServer, members: Any) -> tuple[int, Any]:
    """The status and the JSON of a flat object, over ASGI, from the model "m"."""
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/generate", (), json.dumps(members).encode()))
    return answer.status, json.loads(answer.body)


def get(server: InferenceServer, path: str) -> tuple[int, Any]:
    """GET over ASGI: the status and the JSON."""
    answer = over_asgi(OIPApp(server), "")(Request("GET", path))
    return answer.status, json.loads(answer.body)


def outputs(answer: Answer) -> dict[str, Any]:
    """Each output's data, by name, of an answer that must have succeeded."""
    assert answer.status == 200, answer.body
    return {output["name"]: output["data"] for output in json.loads(answer.body)["outputs"]}


def states(server: InferenceServer) -> dict[str, str]:
    """Where each model is in its life, by name."""
    return {model.name: model.state for model in server.models()}


def exactly(text: str) -> str:
    """The pattern that a text matches, and no other, for `pytest.raises`."""
    return rf"\A{re.escape(text)}\Z"


def error(answer: Answer) -> tuple[int, str]:
    """The status and the text of an answer that must not have succeeded."""
    assert answer.status != 200, answer.body
    return answer.status, json.loads(answer.body)["error"]


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The warnings and errors of this package, but for those of an event loop that was held: that may be who else uses the machine."""
    ours = [record for record in caplog.records if record.name == "oip_asgi" and record.levelno >= logging.WARNING]
    return [record for record in ours if "held the event loop" not in record.getMessage()]
