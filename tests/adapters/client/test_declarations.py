"""What clients read of the metadata of other servers, where it is not as ours: labels that mean something else, and broken declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import numpy as np
import pytest

from oip_asgi import InferenceServer, InvalidResponse
from oip_asgi.client import read_specs, remote
from tests.adapters.client.conftest import Score
from tests.support.asking import ask, logged, outputs
from tests.support.peer import Peer, with_length

X = {"name": "x", "datatype": "FP64", "shape": [-1]}
P = {"name": "p", "datatype": "FP64", "shape": [-1, 2]}
LABELS = {"parameters": {"labels": '["low", "high"]'}}
ROWS = "x\n1.5\n2.5\n"

ODD = [
    ({"datatype": "BYTES"}, '["pos","neg"]'),
    ({"shape": [-1, 3]}, '["pos","neg"]'),
    ({}, '["pos","neg'),
    ({}, '["pos",1]'),
    ({}, '["pos:1","neg"]'),
    ({}, '["\\ud800","neg"]'),
    ({}, '"ab"'),
    ({}, '{"pos":0,"neg":1}'),
    ({}, "pos,neg"),
    ({}, "[" * 100_000),
    ({}, ["pos", "neg"]),
    ({}, 2),
    ({}, None),
]
"""Labels of another server that cannot be those of the output, and what is otherwise in its declaration."""


def answer_as(metadata: dict[str, Any], request: bytes) -> bytes:
    """What a server answers whose model returns its rows as zeros in `p`."""
    declared = {"name": "m", "extensions": [], **metadata}
    if request.startswith(b"POST"):
        body = request.partition(b"\r\n\r\n")[2]
        rows = json.loads(body)["inputs"][0]["shape"][0]
        declared = {"model_name": "m", "outputs": [{**P, "shape": [rows, 2], "data": [0.0] * 2 * rows}]}
    return with_length(json.dumps(declared).encode())


@contextmanager
def declaring(**metadata: Any) -> Iterator[str]:
    with Peer(lambda request: answer_as(metadata, request)).listening() as url:
        yield url


def in_front_of(**metadata: Any) -> InferenceServer:
    def far(request: httpx2.Request) -> httpx2.Response:
        head = f"{request.method} {request.url.path}\r\n\r\n".encode()
        return httpx2.Response(200, content=answer_as(metadata, head + request.read()).partition(b"\r\n\r\n")[2])

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(far), base_url="http://far")
    server = InferenceServer()
    server.register("m", load=remote("/", "m", http=http, wait=0))
    return server


def test_labels_are_read_as_our_metadata_has_them() -> None:
    [spec] = read_specs({"outputs": [{**P, **LABELS}]}, "outputs")
    assert spec.labels == ("low", "high")
    [spec] = read_specs({"inputs": [{**P, **LABELS}]}, "inputs")
    assert spec.labels is None


@pytest.mark.parametrize(("more", "labels"), ODD)
def test_labels_that_cannot_be_those_of_the_output_are_left_out(score: Score, more: dict[str, Any], labels: Any) -> None:
    output = {**P, **more, "parameters": {"labels": labels}}
    [spec] = read_specs({"outputs": [output]}, "outputs")
    assert (spec.name, spec.datatype, spec.labels) == ("p", output["datatype"], None)
    if not more:
        assert outputs(ask(in_front_of(inputs=[X], outputs=[output]), "m", x=np.array([1.5]))) == {"p": [0.0, 0.0]}
    with declaring(inputs=[X], outputs=[output]) as at:
        scored = score("m", ROWS, at=at, out="s.csv")
    assert (scored.status, scored.text) == (0, "row,p_0,p_1\n1,0.0,0.0\n2,0.0,0.0\n"), scored.told


@pytest.mark.parametrize(
    "other", [{"name": "q"}, {"name": "q", "datatype": "FP33", "shape": [-1]}, {"datatype": "FP64", "shape": [-1]}, "q", None]
)
def test_a_broken_output_does_not_stop_score(score: Score, other: Any) -> None:
    with declaring(inputs=[X], outputs=[other, {**P, **LABELS}]) as at:
        scored = score("m", ROWS, at=at, out="s.csv")
    assert (scored.status, scored.text) == (0, "row,p_0,p_1\n1,0.0,0.0\n2,0.0,0.0\n"), scored.told


@pytest.mark.parametrize("all_outputs", [None, 5, {"p": P}])
def test_outputs_that_are_no_list_do_not_stop_score(score: Score, all_outputs: Any) -> None:
    with declaring(inputs=[X], outputs=all_outputs) as at:
        assert score("m", ROWS, at=at, out="s.csv").text.splitlines()[0] == "row,p_0,p_1"


BROKEN = [
    ("x", "'str'"),
    ({"name": "x"}, "'shape'"),
    ({**X, "datatype": "FP33"}, "unknown datatype"),
    ({**X, "shape": [float("inf")]}, "cannot convert float infinity to integer"),
    ({**X, "parameters": "p"}, "'str' object has no attribute 'get'"),
]


@pytest.mark.parametrize(("declared", "why"), BROKEN)
@pytest.mark.parametrize("what", ["inputs", "outputs"])
def test_a_broken_declaration_is_an_invalid_response(what: str, declared: Any, why: str) -> None:
    with pytest.raises(InvalidResponse, match=rf"^the metadata of the model has .* among its {what}: .*{why}"):
        read_specs({what: [declared]}, what)


@pytest.mark.parametrize(("declared", "why"), [each for each in BROKEN if "inf" not in each[1]])
def test_a_broken_input_ends_score_with_one_line_and_is_why_remote_does_not_load(
    score: Score, caplog: pytest.LogCaptureFixture, declared: Any, why: str
) -> None:
    with declaring(inputs=[declared]) as at:
        refused = score("m", ROWS, at=at)
    [line] = refused.told.splitlines()
    assert (refused.status, why in line) == (2, True)
    assert line.startswith("cannot be scored: the metadata of the model has ")
    assert ask(in_front_of(inputs=[declared]), "m", x=np.array([1.5])).status == 503
    [record] = logged(caplog)
    assert "cannot ask /, which has the model 'm': the metadata of the model has " in record.message
    assert (why in record.message, record.exc_text) == (True, None)
