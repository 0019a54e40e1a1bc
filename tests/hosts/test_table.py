"""Every host answers alike, byte for byte: the table of requests, `authorize=` and the rules for browsers, servers and models in a certain
state, and a model of a public data set as a class, as the estimator itself and as a frame.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from oip_asgi import Access, InferenceServer, OIPApp, TensorSpec
from tests.support.hearing import Hearing
from tests.support.host_ways import host_ways
from tests.support.talk import block_until
from tests.support.ways import Request, Way, over_asgi, ways_into
from tests.table.row import Row, answer, infer, inputs, table_server, tensor
from tests.table.rows import rows
from tests.table.test_access import INFER, MODELS, SPELLINGS, USERS, judge, judge_later, spell
from tests.table.test_access import ask as ask_as
from tests.table.test_access import make_server as make_access_server
from tests.table.test_browsers import CHANGES, FOREIGN, HOST, OWN
from tests.table.test_browsers import make_server as make_own_server


@pytest.fixture(scope="module")
def itself() -> Way:
    return over_asgi(OIPApp(table_server([])), "")


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Way]]:
    with host_ways(table_server([])) as ways:
        yield ways


def reaches_us(host: str, row: Row) -> bool:
    if host == "FastAPI mount":
        return row.request.path != ""  # Starlette answers a bare GET /v2 itself, with a redirect
    if host == "Litestar mount":
        return "//" not in row.request.path  # Litestar takes doubled slashes out before it calls a mounted application
    return True


@pytest.mark.ci
@pytest.mark.parametrize("row", rows(), ids=str)
def test_every_host_answers_alike(row: Row, itself: Way, hosts: dict[str, Way]) -> None:
    expected = itself(row.request)
    assert expected.status == row.status
    answers = {name: way(row.request) for name, way in hosts.items() if reaches_us(name, row)}
    assert answers == dict.fromkeys(answers, expected)


@pytest.mark.ci
@pytest.mark.parametrize("authorize", [judge, judge_later], ids=["def", "async def"])
def test_no_host_has_a_hole(authorize: Callable[[Access], Any]) -> None:
    calls: list[str] = []
    with host_ways(make_access_server(authorize, calls)) as ways:
        for name, way in ways.items():
            for method, path, body in [spelling for spellings in SPELLINGS.values() for spelling in spellings]:
                for user in USERS[:2]:
                    refused = {
                        ask_as(way, user, method, spell(path, model), body).body.replace(model.encode(), b"NAME") for model in MODELS
                    }
                    assert len(refused) == 1, (name, user, method, path, refused)
                    assert method == "HEAD" or refused.pop().startswith(b'{"error":"not allowed: '), (name, path)
            assert not calls
            assert ask_as(way, "a user", "POST", "/models/opened/infer", INFER).status == 200
            assert calls.pop() == "opened"


@pytest.mark.ci
def test_a_slow_question_loses_no_part_of_a_body_in_any_host() -> None:
    async def may(access: Access) -> bool:
        await asyncio.sleep(0.1)  # clients are watched after 30 milliseconds
        return access.model == "open"

    server, threads = InferenceServer(authorize=may), set[bool]()

    def add_up(x: Any) -> Any:
        threads.add(threading.current_thread().name.startswith("oip_asgi"))
        return x.sum()

    for model in ("open", "closed"):
        server.register(model, add_up)
    tensor = {"name": "x", "shape": [9000], "datatype": "FP32", "data": [1.5] * 9000}
    body = json.dumps({"inputs": [tensor]}).encode()
    assert len(body) > 2**15
    with host_ways(server) as ways:
        for name, way in ways.items():
            threads.clear()
            for coding, sent in (("identity", body), ("gzip", gzip.compress(body))):
                headers = [("content-encoding", coding)]
                answer = way(Request("POST", "/models/open/infer", headers, sent))
                assert (answer.status, json.loads(answer.body)["outputs"][0]["data"]) == (200, [13500.0]), name
                assert way(Request("POST", "/models/closed/infer", headers, sent)).status == 403, name
            if name in ("Flask blueprint", "Django, WSGI"):
                assert threads == {False}, name  # the thread of the request


@pytest.mark.ci
def test_foreign_pages_change_nothing_in_any_host() -> None:
    with host_ways(make_own_server([])) as ways:
        for name, way in ways.items():
            for path in CHANGES:
                for headers in FOREIGN.values():
                    assert way(Request("POST", path, [HOST, ("content-type", "text/plain"), *headers], b"{}")).status == 403, (name, path)
            for headers in OWN.values():
                assert way(Request("POST", "/repository/models/kept/load", [HOST, *headers], b"{}")).status == 200, (name, headers)


X = TensorSpec("x", "FP64", [-1])
ASKED = infer("m", inputs(tensor("FP64", [1], "[1.0]")))
ANSWER = answer("m", tensor("FP64", [1], "[1.0]", "output_0"))


@contextmanager
def every_way(server: InferenceServer) -> Iterator[dict[str, Way]]:
    with host_ways(server) as hosts:
        yield {**ways_into(server), **{name: way for name, way in hosts.items() if "dependencies" not in name}}


@pytest.mark.ci
def test_a_server_that_drains() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[X])
    server.drain()
    expected = {
        "/health/live": (200, b'{"live":true}'),
        "/health/ready": (503, b'{"ready":false,"live":true,"reason":"the server is draining"}'),
        "/models/m/ready": (503, b'{"name":"m","ready":false,"reason":"the server is draining"}'),
    }
    with every_way(server) as ways:
        for name, way in ways.items():
            for path, (status, body) in expected.items():
                found = way(Request("GET", path))
                assert (found.status, found.body) == (status, body), (name, path)
            found = way(ASKED)
            assert (found.status, found.body) == (200, ANSWER), name
        server.undrain()
        for name, way in ways.items():
            assert [way(Request("GET", path)).status for path in expected] == [200] * 3, name


@pytest.mark.ci
def test_a_model_that_is_idle() -> None:
    server = InferenceServer()
    server.register("m", load=lambda: lambda x: x, inputs=[X], idle_unload=0.05)
    with every_way(server) as ways:
        for name, way in ways.items():
            server.infer_sync("m", {"x": [1.0]})
            block_until(lambda: server.models()[0].state == "idle")
            for path, body in (("/health/ready", b'{"ready":true,"live":true}'), ("/models/m/ready", b'{"name":"m","ready":true}')):
                found = way(Request("GET", path))
                assert (found.status, found.body) == (200, body), (name, path)
            found = way(Request("POST", "/repository/index"))
            reason = b"unloaded: the next request loads it again"
            assert found.body == b'[{"name":"m","state":"READY","reason":"%b"}]' % reason, name
            found = way(ASKED)
            assert (found.status, found.body) == (200, ANSWER), name


@pytest.mark.ci
def test_a_model_that_is_warmed_up_and_one_that_cannot_be() -> None:
    def load() -> Any:
        seen: list[Any] = []

        def first(x: Any) -> Any:
            seen.append(x.copy())
            return seen[0]  # what the warm-up sent

        return first

    def refuse(x: Any) -> Any:
        raise ValueError

    text = "model 'cold' is not ready: its load failed, see the server's log"
    for place in range(len(ways_into(InferenceServer()))):
        server = InferenceServer()
        server.register("m", load=load, inputs=[X], warm_up=[{"x": [1.0]}])
        server.register("cold", refuse, inputs=[X], warm_up=True)
        way = list(ways_into(server).values())[place]
        found = way(infer("m", inputs(tensor("FP64", [1], "[5.0]"))))
        assert (found.status, found.body) == (200, ANSWER)
        found = way(infer("cold", ASKED.body))
        assert (found.status, found.body) == (503, b'{"error":"%b"}' % text.encode())
        assert way(Request("GET", "/models/cold/ready")).status == 503
        server.stop()


@pytest.mark.ci
def test_a_model_that_is_observed() -> None:
    server, hearing = InferenceServer(), Hearing()
    server.register("m", lambda x: x, inputs=[X])
    server.observe(hearing)
    with every_way(server) as ways:
        for name, way in ways.items():
            found = way(ASKED)
            assert (found.status, found.body) == (200, ANSWER), name
            heard = hearing.wait_for_one()
            assert (heard.request and heard.request["x"].tolist()) == [1.0], name
            assert heard.transport is not None, name


pd = pytest.importorskip("pandas")


@dataclass
class Penguin:
    """Two of these birds were not measured, and the sex of eleven is not known."""

    island: str
    bill_length_mm: float | None
    body_mass_g: float | None
    sex: str | None


DATATYPES = {"island": "BYTES", "bill_length_mm": "FP64", "body_mass_g": "FP64", "sex": "BYTES"}


def describe(name: str, column: list[Any]) -> dict[str, Any]:
    """A column as a tensor: texts of which some are missing are JSON texts."""
    tensor: dict[str, Any] = {"name": name, "datatype": DATATYPES[name], "shape": [len(column)], "data": column}
    if DATATYPES[name] == "BYTES" and None in column:
        tensor |= {"data": list(map(json.dumps, column)), "parameters": {"content_type": "pd_json"}}
    return tensor


@pytest.mark.ci
def test_three_ways_have_one_answer_in_each_host() -> None:
    data = pytest.importorskip("palmerpenguins").load_penguins()
    # a missing text of a request is None, and the encoder knows it only if it has seen that: the package's file has NaN
    data["sex"] = data.sex.astype(object).where(data.sex.notna(), None)
    frame = data[[*DATATYPES]]
    columns_of_numbers = (make_pipeline(SimpleImputer(), StandardScaler()), ["bill_length_mm", "body_mass_g"])
    of_columns = make_column_transformer(columns_of_numbers, (OneHotEncoder(handle_unknown="ignore"), ["island", "sex"]))
    predict = make_pipeline(of_columns, LogisticRegression(max_iter=500)).fit(frame, data.species).predict_proba
    rows = frame.iloc[[0, 3, 8, 200]]
    assert rows.isna().sum().tolist() == [0, 1, 1, 2]

    def of_rows(rows: list[Penguin]) -> object:
        return predict(pd.DataFrame(map(asdict, rows)))

    server = InferenceServer()
    server.register("m", of_rows, version="1")
    server.register("m", predict, version="2")
    server.register("m", lambda df: predict(df), content_type="pd", version="3")
    columns = {name: [None if pd.isna(value) else value for value in rows[name].tolist()] for name in rows}
    tensors = [describe(name, column) for name, column in columns.items()]
    with host_ways(server) as hosts:
        ways = {**ways_into(server), **hosts}
        for action, body in (("infer", {"inputs": tensors}), ("generate", columns)):
            answers = {
                (name, version): way(Request("POST", f"/models/m/versions/{version}/{action}", (), json.dumps(body).encode()))
                for name, way in ways.items()
                for version in ("1", "2", "3")
            }
            bodies = {answer.body.replace(b'"model_version":"%b"' % version.encode(), b"") for (_, version), answer in answers.items()}
            assert {answer.status for answer in answers.values()} == {200}, answers
            assert len(bodies) == 1
    assert json.loads(answers["FastAPI install", "2"].body)["output_0"] == predict(rows).ravel().tolist()
