"""Items that are like the ones before them: each leaves as if it had been the only one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.streaming import ITEMS, KINDS, alone, both_kinds
from tests.support.ways import Request, over_asgi

REQUESTS = {
    "generate_stream": ("generate", {"n": 1, "id": "é"}),
    "infer_stream": ("infer", {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [1]}], "id": "é"}),
}


def asked(model: Callable[[Any], Any], action: str, body: Any, **options: Any) -> tuple[int, bytes]:
    server = InferenceServer()
    server.register("m", model, version="2", **options)
    answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", (), json.dumps(body).encode()))
    return answer.status, answer.body


def events(body: bytes) -> list[bytes]:
    return [event.removeprefix(b"data: ") for event in body.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", REQUESTS)
@pytest.mark.parametrize("name", ITEMS)
def test_each_item_leaves_as_if_it_were_the_only_one(name: str, action: str, kind: str) -> None:
    once, body = REQUESTS[action]
    status, stream = asked(both_kinds(ITEMS[name])[kind], action, body)
    expected = [asked(alone(ITEMS[name], place), once, body) for place in range(len(list(ITEMS[name]())))]
    # some clients end a line there
    expected = [(code, text.replace("\u2028".encode(), b"\\u2028")) for code, text in expected]
    assert (status, [(200, event) for event in events(stream)]) == (200, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("item", "wrong", "spec"),
    [
        (np.array([1]), np.array([1.5]), TensorSpec("y", "INT64", [1])),
        (np.array([1]), np.array([1, 2]), TensorSpec("y", "INT64", [1])),
        (np.array([1]), {"x": np.array([1])}, TensorSpec("y", "INT64", [1])),
        ({"y": np.array([1])}, {"x": np.array([1])}, TensorSpec("y", "INT64", [1])),
        (np.array([1]), None, None),
        (np.array([1]), "1", TensorSpec("y", "INT64", [1])),
        ("one", "\ud800", None),
        ("one", np.array([1]), TensorSpec("y", "BYTES", [1])),
    ],
)
def test_a_wrong_item_behind_right_ones_ends_the_stream(
    item: Any, wrong: Any, spec: TensorSpec | None, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    items: Callable[[], Iterable[Any]] = lambda: [item, item, item, item, wrong, item]  # noqa: E731
    _, stream = asked(both_kinds(items)[kind], "generate_stream", {"n": 1}, outputs=[spec] if spec else [])
    found = [json.loads(event) for event in events(stream)]
    assert ["error" in event for event in found] == [False, False, False, False, True]
    assert found[-1] == {"error": "model 'm' version '2' failed: see the server's log"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_request_asks_of_outputs_holds_for_each_item(kind: str) -> None:
    items = both_kinds(lambda: [np.array([0.25, 0.5, 0.125])] * 5)[kind]
    body: Any = {"inputs": REQUESTS["infer_stream"][1]["inputs"], "outputs": [{"name": "output_0", "parameters": {"classification": 1}}]}  # type: ignore[index]
    _, stream = asked(items, "infer_stream", body)
    assert [json.loads(event)["outputs"][0]["data"] for event in events(stream)] == [["0.500000:1"]] * 5
