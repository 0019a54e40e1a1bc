"""Async models that ask Django's database more than once: under each of Django's handlers, in processes that are ended when they hang."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, environment, get, post, serving

PLACE = "tests.support.django_orm_site"
SECONDS = 60
"""How long an answer may take, also on a machine that others use."""

SERVERS = {
    "gunicorn": f"gunicorn --bind 127.0.0.1:PORT --threads 4 {PLACE}:application",
    "runserver": f"{sys.executable} -m {PLACE} runserver PORT --noreload",
    "uvicorn": f"uvicorn --port PORT --lifespan off {PLACE}:asgi_application",
}
MIDDLEWARE: dict[str, Mapping[str, str]] = {"plain middleware": {}, "async middleware": {"ASYNC_MIDDLEWARE": "yes"}}


def answered(model: str, *data: Any, name: str = "output_0") -> str:
    """What a model with one output answers."""
    datatype = {bool: "BOOL", int: "INT64", str: "BYTES"}[type(data[0])]
    output = {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
    return json.dumps({"model_name": model, "outputs": [output]}, separators=(",", ":"))


def expected(users: int) -> dict[str, str]:
    return {
        "users/infer": answered("users", users, users, users),
        "in_time/infer": answered("in_time", users, users, users),
        "user/infer": answered("user", "ada", "ada"),
        "gathered/infer": answered("gathered", users, users, users, users),
        "calls/infer": answered("calls", users, users, users),
        "threads/infer": answered("threads", True, True, True),
        "leaves/infer": answered("leaves", 1),
        "streamed/generate_stream": 3 * f"data: {answered('streamed', 2 * users)}\n\n",
    }


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("database") / "orm.sqlite3")


def run(database: str, command: str, more: Mapping[str, str] = {}) -> str:
    """What a command of the project prints."""
    env = environment({"ORM_DATABASE": database, **more})
    done = subprocess.run([sys.executable, "-m", PLACE, command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def session(database: str) -> str:
    return run(database, "prepare")


@pytest.fixture(scope="module", params=MIDDLEWARE)
def more(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return MIDDLEWARE[request.param]


@pytest.mark.parametrize("command", ["ask", "ask_async"])
def test_with_djangos_own_clients(command: str, session: str, database: str, more: Mapping[str, str]) -> None:
    answers = json.loads(run(database, command, more))
    assert answers == {each: [200, body] for each, body in expected(1).items()}


def test_within_a_transaction_as_test_cases_are(session: str, database: str, more: Mapping[str, str]) -> None:
    answers = json.loads(run(database, "ask_in_test_case", more))
    assert answers == {each: [200, body] for each, body in expected(2).items()}


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, session: str, database: str, more: Mapping[str, str], tmp_path_factory: Any) -> Iterator[str]:
    log: Path = tmp_path_factory.mktemp("server") / "log"
    with serving(SERVERS[request.param].split(), log, {"ORM_DATABASE": database, **more}) as served:
        yield served.url


def ask(url: str, each: str, session: str) -> list[Any]:
    found = post(f"{url}/v2/models/{each}", content=b'{"inputs":[]}', headers={"Cookie": f"sessionid={session}"}, timeout=SECONDS)
    return [found.status_code, found.text]


def test_behind_a_server(url: str, session: str) -> None:
    answers = {each: ask(url, each, session) for each in expected(1)}
    assert answers == {each: [200, body] for each, body in expected(1).items()}


@pytest.mark.parametrize("url", ["gunicorn", "runserver"], indirect=True)
def test_a_task_may_outlive_its_request_under_wsgi(url: str, session: str) -> None:
    assert ask(url, "leaves/infer", session) == [200, answered("leaves", 1)]
    assert ask(url, "finds/infer", session) == [200, answered("finds", 1, 1, 1)]


def test_many_at_once_behind_a_server(url: str, session: str) -> None:
    each = [*expected(1)] * 4
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda one: ask(url, one, session), [one for one in each if one != "leaves/infer"]))
    assert answers == [[200, expected(1)[one]] for one in each if one != "leaves/infer"]
    assert get(f"{url}/v2/health/live", timeout=SECONDS).status_code == 200


def test_batches_behind_a_server(url: str, session: str) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[4]}]}'

    def ask_for_one(_: int) -> list[Any]:
        found = post(f"{url}/v2/models/batched/infer", content=body, timeout=SECONDS)
        return [found.status_code, found.text]

    with ThreadPoolExecutor(8) as clients:
        assert list(clients.map(ask_for_one, range(16))) == [[200, answered("batched", 7)]] * 16
