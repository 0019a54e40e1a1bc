"""Who may do what: actions, ways in, spellings and users. No way in and no spelling lets somebody do what `authorize=` refuses.

`python -m pytest -s tests/table/test_access.py` prints the table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import Access, InferenceError, InferenceServer, OIPApp, OIPMiddleware, TensorSpec
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import SERVICE, SERVINGS, Client, made, wire_request
from tests.support.inside import outcomes
from tests.support.inside.values import InvalidRequest
from tests.support.ways import Answer, Request, Way, send_asgi, ways_into

USERS: Final = ("nobody", "a user", "an administrator")
MODELS: Final = ("secret", "absent")
"""A model that few users may use, and one that is not registered. Other users get the same answer for both."""

FLAT: Final = json.dumps({"x": 1.0}).encode()
INFER: Final = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()

SPELLINGS: Final[dict[str, list[tuple[str, str, bytes]]]] = {
    "infer": [
        *[("POST", f"/models/{name}{action}", INFER) for name in ("NAME", "%6EAME") for action in ("/infer", "/infer/", "/%69nfer")],
        ("POST", "/models/NAME/versions/1/infer", INFER),
        ("POST", "/models/NAME/%76ersions/%31/infer", INFER),
        ("POST", "/models/NAME/infer_stream", INFER),
        ("POST", "/models/NAME/generate", FLAT),
        ("POST", "/models/NAME/versions/1/generate", FLAT),
        ("POST", "/models/NAME/generate_stream", FLAT),
        ("POST", "/models/NAME/infer", b"no JSON"),
        ("DELETE", "/models/NAME/infer", b""),
    ],
    "metadata": [
        *[
            (method, f"/models/{name}", b"")
            for method in ("GET", "HEAD", "POST")
            for name in ("NAME", "NAME/", "%4EAME", "NAME/versions/1")
        ],
        ("GET", "/models/NAME/openapi.json", b""),
        ("GET", "/models/NAME/versions/1/openapi.json", b""),
        ("GET", "/models/NAME/docs/dataplane.json", b""),
    ],
    "ready": [("GET", f"/models/{name}/ready", b"") for name in ("NAME", "%4eAME", "NAME/versions/1")],
    "config": [("GET", f"/models/{name}/config", b"") for name in ("NAME", "NAM%45", "NAME/versions/1")],
    "statistics": [("GET", f"/models/{name}", b"") for name in ("NAME/stats", "NAME/versions/1/stats", "NAME/docs/state.json")],
    "load": [("POST", f"/repository/models/{name}/load", b"{}") for name in ("NAME", "NAM%45")],
    "unload": [("POST", f"/repository/models/{name}/unload", b"{}") for name in ("NAME", "NAM%45")],
    "shared_memory": [
        ("GET", "/systemsharedmemory/status", b""),
        ("GET", "/systemsharedmemory/region/NAME/status", b""),
        ("POST", "/systemsharedmemory/region/NAME/register", b'{"key": "/NAME", "byte_size": 8}'),
        ("POST", "/systemsharedmemory/region/NAME/unregister", b""),
        ("POST", "/systemsharedmemory/unregister", b""),
        ("POST", "/cudasharedmemory/unregister", b""),
    ],
}
"""By action, how clients may ask for it. NAME is the model's name, some letters of it encoded."""


def spell(path: str, name: str) -> str:
    """A path with the name of a model whose first letter, or last one, is encoded where the pattern encodes that of NAME."""
    for pattern, encoded in (("%6EAME", 0), ("%4EAME", 0), ("%4eAME", 0), ("NAM%45", -1)):
        if pattern in path:
            letter = f"%{ord(name[encoded]):02X}"
            return path.replace(pattern, letter + name[1:] if encoded == 0 else name[:-1] + letter)
    return path.replace("NAME", name)


def judge(access: Access) -> bool:
    """An administrator may do all, a user may use the open models."""
    user = access.headers.get("x-user", "nobody")
    if user == "an administrator":
        return True
    is_use = access.action in ("infer", "metadata", "ready", "config", "statistics")
    return user == "a user" and is_use and (access.model or "").startswith("open")


async def judge_later(access: Access) -> bool:
    return judge(access)


def make_server(authorize: Callable[[Access], Any], calls: list[str]) -> InferenceServer:
    server = InferenceServer(model_control=True, authorize=authorize)
    for name in ("secret", "opened"):

        def model(x: npt.NDArray[np.float32], called: str = name) -> npt.NDArray[np.float32]:
            calls.append(called)
            return x

        server.register(name, lambda x, model=model: model(x), run="inline")
    return server


class Sides:
    """A server, its ways in, and the calls of its models."""

    def __init__(self, authorize: Callable[[Access], Any]) -> None:
        self.calls: list[str] = []
        self.server = make_server(authorize, self.calls)
        self.ways = ways_into(self.server)


@pytest.fixture(scope="module", params=[judge, judge_later], ids=["def", "async def"])
def sides(request: pytest.FixtureRequest) -> Iterator[Sides]:
    made_sides = Sides(request.param)
    yield made_sides
    made_sides.server.stop()


def ask(way: Way, user: str, method: str, path: str, body: bytes = b"") -> Answer:
    return way(Request(method, path, [("x-user", user)], body))


@pytest.mark.parametrize("action", SPELLINGS)
def test_the_table_has_no_hole(action: str, sides: Sides) -> None:
    asked = 0
    for name, way in sides.ways.items():
        for method, path, body in SPELLINGS[action]:
            for user in USERS:
                refused = {}
                for model in MODELS:
                    before = len(sides.calls)
                    got = ask(way, user, method, spell(path, model), body)
                    asked += 1
                    if user == "an administrator":
                        assert b"not allowed: " not in got.body, (name, method, path, got.body)
                        continue
                    assert got.status == 403, (name, user, method, path, model, got.status, got.body)
                    assert len(sides.calls) == before
                    refused[model] = got.body.replace(model.encode(), b"NAME")
                if method != "HEAD" and refused:
                    named = "" if action == "shared_memory" else " with model 'NAME'"
                    assert set(refused.values()) == {json.dumps({"error": f"not allowed: {action}{named}"}, separators=(",", ":")).encode()}
    print(f"\n{action}: {len(SPELLINGS[action])} spellings, {len(sides.ways)} ways in, {len(USERS)} users: {asked} requests, no hole")


def test_a_user_may_use_what_is_open(sides: Sides) -> None:
    for way in sides.ways.values():
        assert ask(way, "a user", "POST", "/models/opened/infer", INFER).status == 200
        assert ask(way, "a user", "GET", "/models/opened").status == 200
        assert ask(way, "a user", "POST", "/repository/models/opened/unload", b"{}").status == 403
        assert ask(way, "a user", "GET", "/models/opened/ready").status == 200


def test_lists_leave_out_what_is_hidden(sides: Sides) -> None:
    for way in sides.ways.values():
        for user, names in zip(USERS, ([], ["opened"], ["secret", "opened"]), strict=True):
            assert json.loads(ask(way, user, "GET", "/models").body) == {"models": names}
            index = json.loads(ask(way, user, "POST", "/repository/index").body)
            assert [entry["name"] for entry in index] == names
            listed = json.loads(ask(way, user, "GET", "/models/stats").body)["model_stats"]
            assert sorted(entry["name"] for entry in listed) == sorted(names)
            for path in ("/openapi.json", "/docs"):
                document = ask(way, user, "GET", path).body
                assert (b"secret" in document) == ("secret" in names)
                assert (b"opened" in document) == ("opened" in names)


def all_but_secret(access: Access) -> bool:
    return access.model != "secret"


def test_an_unknown_name_tells_no_other_names() -> None:
    server = make_server(all_but_secret, [])
    server.register("numbered", lambda x: x, version="73")
    for way in ways_into(server).values():
        for method, path, body in (
            ("POST", "/models/secre/infer", INFER),
            ("GET", "/models/secre", b""),
            ("GET", "/models/secre/stats", b""),
            ("POST", "/repository/models/secre/unload", b""),
            ("POST", "/models/numbered/versions/9/infer", INFER),
        ):
            got = ask(way, "nobody", method, path, body)
            assert got.status == 404
            assert b"secret" not in got.body
            assert b"73" not in got.body
    for make_client in ASGI_CLIENTS.values():
        code, text = make_client(server).refusal("ModelInfer", wire_request("secre", [TENSOR]))
        assert code == "NOT_FOUND"
        assert "secret" not in text


def test_statistics_of_all_leave_out_those_that_are_refused() -> None:
    asked: list[str] = []

    def check(access: Access) -> bool:
        asked.append(f"{access.action} {access.model}")
        return not (access.action == "statistics" and access.model == "secret")

    server = make_server(check, [])
    for way in ways_into(server).values():
        assert json.loads(ask(way, "nobody", "GET", "/models").body) == {"models": ["secret", "opened"]}
        asked.clear()
        listed = json.loads(ask(way, "nobody", "GET", "/models/stats").body)["model_stats"]
        assert [entry["name"] for entry in listed] == ["opened"]
        assert asked == ["metadata secret", "metadata opened", "statistics secret", "statistics opened"]
    for make_client in ASGI_CLIENTS.values():
        asking = make_client(server)
        assert [each.name for each in asking.ask("ModelStatistics").model_stats] == ["opened"]
        asked.clear()
        asking.ask("ModelStatistics", made("ModelStatistics.request", name="opened"))
        assert asked == ["statistics opened"]


@pytest.mark.parametrize("name", ["m", "stats"])
def test_a_version_that_may_be_seen_tells_of_no_other(name: str) -> None:
    def may(access: Access) -> bool:
        return access.version == "1" and access.action != "config"

    server = InferenceServer(authorize=may)
    for version in "12":
        server.register(name, lambda x: x, version=version, inputs=[TensorSpec(f"x{version}", "FP32", [-1])])
    for way in ways_into(server).values():
        metadata = json.loads(ask(way, "me", "GET", f"/models/{name}/versions/1").body)
        assert (metadata["versions"], metadata["inputs"][0]["name"]) == (["1"], "x1")
        assert b"x2" not in ask(way, "me", "GET", "/models/stats").body
        assert ask(way, "me", "GET", f"/models/{name}/versions/1/stats").status == 200
        assert ask(way, "me", "GET", f"/models/{name}/versions/1/docs/state.json").status == 403  # it has what the configuration has


@pytest.mark.parametrize("name", ["stats", "infer", "versions", "docs", "config", "index", "load"])
def test_a_model_with_the_name_of_a_route_is_asked_about(name: str) -> None:
    calls: list[str] = []
    server = InferenceServer(model_control=True, authorize=judge)

    def model(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        calls.append(name)
        return x

    server.register(name, model, run="inline")
    for way in ways_into(server).values():
        for user in USERS[:2]:
            for method, path, body in (entry for action in ("infer", "metadata", "ready", "unload") for entry in SPELLINGS[action]):
                got = ask(way, user, method, spell(path, name), body)
                if got.status != 403:
                    # the statistics of all, which are there for everybody and are empty
                    assert (name, spell(path, name).strip("/")) in [("stats", "models/stats"), ("stats", "models/%73tats")], (method, path)
                    assert got.body in (b'{"model_stats":[]}', b"") or got.status == 405
    assert not calls


def test_a_host_header_is_no_path() -> None:
    seen: list[str | None] = []

    def check(access: Access) -> bool:
        seen.append(access.model)
        return judge(access)

    server = make_server(check, [])
    for way in ways_into(server).values():
        for host in ("models.example/v2/models/opened/infer?", "models.example#", "x/../opened?", "@opened"):
            got = way(Request("POST", "/models/secret/infer", [("host", host), ("x-user", "a user")], INFER))
            assert got.status == 403
    assert set(seen) == {"secret"}


def test_each_server_of_an_application_asks_its_own() -> None:
    calls: list[str] = []
    first, second = make_server(lambda _: True, calls), make_server(judge, calls)
    application = OIPMiddleware(OIPMiddleware(OIPApp(make_server(judge, calls)), first, path="/first"), second, path="/second")
    for path, status in (("/first/models/secret/infer", 200), ("/second/models/secret/infer", 403), ("/models/secret/infer", 403)):
        assert asyncio.run(send_asgi(application, Request("POST", path, [], INFER))).status == status
    assert calls == ["secret"]


def test_nobody_is_asked_about_the_server_itself(sides: Sides) -> None:
    for name, way in sides.ways.items():
        for path in ("", "/", "/health/live", "/health/ready"):
            if path or name != "Starlette mount":
                assert ask(way, "nobody", "GET", path).status == 200


@pytest.fixture(scope="module", params=SERVINGS)
def serving(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[judge, judge_later], ids=["def", "async def"])
def client(request: pytest.FixtureRequest, serving: str) -> Iterator[tuple[Client, list[str]]]:
    authorize = request.param
    calls: list[str] = []
    with SERVINGS[serving](make_server(authorize, calls)) as address:
        asking = Client(address)
        yield asking, calls
        asking.channel.close()


TENSOR: Final = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}

METHODS: Final[dict[str, Callable[[str], Any]]] = {
    "ModelInfer": lambda name: wire_request(name, [TENSOR]),
    "ModelMetadata": lambda name: made("ModelMetadata.request", name=name),
    "ModelReady": lambda name: made("ModelReady.request", name=name, version="1"),
    "ModelConfig": lambda name: made("ModelConfig.request", name=name),
    "ModelStatistics": lambda name: made("ModelStatistics.request", name=name),
    "RepositoryModelLoad": lambda name: made("RepositoryModelLoad.request", model_name=name),
    "RepositoryModelUnload": lambda name: made("RepositoryModelUnload.request", repository_name=name),
    "SystemSharedMemoryStatus": lambda name: made("SystemSharedMemoryStatus.request", name=name),
    "SystemSharedMemoryRegister": lambda name: made("SystemSharedMemoryRegister.request", name=name, key="/x", byte_size=8),
    "SystemSharedMemoryUnregister": lambda name: made("SystemSharedMemoryUnregister.request", name=name),
    "CudaSharedMemoryStatus": lambda name: made("CudaSharedMemoryStatus.request", name=name),
    "CudaSharedMemoryUnregister": lambda name: made("CudaSharedMemoryUnregister.request", name=name),
}


@pytest.mark.parametrize("method", METHODS)
def test_grpc_has_no_hole(method: str, client: tuple[Client, list[str]]) -> None:
    asking, calls = client
    before = len(calls)
    for user in USERS:
        metadata = [("x-user", user)]
        if user == "an administrator":
            error = asking.begin(method, METHODS[method]("secret"), metadata=metadata).exception()
            assert error is None or "not allowed: " not in error.details(), method
            if method == "RepositoryModelUnload":
                asking.ask("RepositoryModelLoad", METHODS["RepositoryModelLoad"]("secret"), metadata=metadata)
            continue
        texts = set()
        for model in MODELS:
            code, text = asking.refusal(method, METHODS[method](model), metadata=metadata)
            assert code == "PERMISSION_DENIED"
            texts.add(text.replace(model, "NAME"))
        assert len(texts) == 1
        assert len(calls) == before


@pytest.mark.parametrize("way", ASGI_CLIENTS)
@pytest.mark.parametrize("authorize", [judge, judge_later], ids=["def", "async def"])
def test_grpc_in_the_application_has_no_hole(way: str, authorize: Callable[[Access], Any]) -> None:
    calls: list[str] = []
    asking = ASGI_CLIENTS[way](make_server(authorize, calls))
    for method, message in METHODS.items():
        for user in USERS[:2]:
            refusals = {asking.refusal(method, message(model), headers=[("x-user", user)])[1].replace(model, "NAME") for model in MODELS}
            assert len(refusals) == 1
            assert "not allowed: " in refusals.pop()
    assert not calls
    index = asking.ask("RepositoryIndex", headers=[("x-user", "a user")]).models
    assert [each.name for each in index] == ["opened"]


def test_grpc_lists_leave_out_what_is_hidden(client: tuple[Client, list[str]]) -> None:
    asking, _ = client
    for user, names in zip(USERS, ([], ["opened"], ["opened", "secret"]), strict=True):
        metadata = [("x-user", user)]
        assert sorted(each.name for each in asking.ask("RepositoryIndex", metadata=metadata).models) == names
        assert sorted(each.name for each in asking.ask("ModelStatistics", metadata=metadata).model_stats) == names
        assert asking.ask("ServerLive", metadata=metadata).live


def test_each_message_of_a_stream_is_asked_about(client: tuple[Client, list[str]]) -> None:
    asking, calls = client
    before = len(calls)
    messages = [wire_request(name, [TENSOR], id=name) for name in ("opened", "secret", "absent", "opened")]
    stream: Any = asking.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
    sent = iter([message.SerializeToString() for message in messages])
    answers = [made("ModelStreamInfer.response") for _ in range(4)]
    for answer, data in zip(answers, stream(sent, metadata=[("x-user", "a user")], timeout=30), strict=True):
        answer.ParseFromString(data)
    refusals = [answer.error_message.replace(answer.infer_response.id, "NAME") for answer in answers if answer.error_message]
    assert refusals == ["request id 'NAME': not allowed: infer with model 'NAME'"] * 2
    assert [answer.infer_response.id for answer in answers] == ["opened", "secret", "absent", "opened"]
    assert calls[before:] == ["opened", "opened"]


class Teapot(Exception):
    """An error of the check's own."""


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        (None, 500, "the authorization failed: see the server's log"),
        (1, 500, "the authorization failed: see the server's log"),
        (Teapot("secret text"), 500, "the authorization failed: see the server's log"),
        (asyncio.CancelledError(), 500, "the authorization failed: see the server's log"),
        (InferenceError("pay first", status=402, headers={"X-Price": "1"}), 402, "pay first"),
    ],
    ids=["None", "1", "an error", "a cancelled future", "an InferenceError"],
)
def test_what_else_a_check_may_do(outcome: Any, status: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    def check(_: Access) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    calls: list[str] = []
    server = make_server(check, calls)
    ways = ways_into(server).values()
    for way in ways:
        got = ask(way, "nobody", "POST", "/models/secret/infer", INFER)
        assert (got.status, json.loads(got.body)) == (status, {"error": text})
        ask(way, "nobody", "GET", "/models/secret")
    assert not calls
    assert outcomes(server)[""] == {"failed" if status == 500 else "invalid": len(ways)}
    assert ("authorize= failed" in caplog.text) == (status == 500)


def test_a_refusal_over_grpc_is_counted_once() -> None:
    def check(_: Access) -> bool:
        raise InvalidRequest("nothing here")

    server = make_server(check, [])
    for make_client in ASGI_CLIENTS.values():
        assert make_client(server).refusal("ModelInfer", wire_request("secret", [TENSOR]))[0] == "INVALID_ARGUMENT"
    assert outcomes(server)[""] == {"invalid": len(ASGI_CLIENTS)}


def test_a_check_gets_what_the_request_says() -> None:
    seen: list[Access] = []

    def check(access: Access) -> bool:
        seen.append(access)
        return True

    server = make_server(check, [])
    way = ways_into(server)["OIPApp"]
    ask(way, "me", "POST", "/models/sec%72et/versions/1/infer", INFER)
    ask(way, "me", "GET", "/models/a%2Fb")
    [first, second] = [(each.action, each.model, each.version, each.protocol, each.headers["X-User"]) for each in seen]
    assert first == ("infer", "secret", "1", "rest", "me")
    assert second == ("metadata", "a/b", None, "rest", "me")
    assert seen[0].transport["type"] == "http"


def test_a_wrong_check_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="authorize='nobody' must be a callable"):
        InferenceServer(authorize="nobody")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="authorize= must be a function of one argument, the Access"):
        InferenceServer(authorize=lambda: True)  # type: ignore[arg-type,misc]
