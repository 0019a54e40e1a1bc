"""What the log says of requests that were refused or failed, and of what keeps the server from being ready."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import Access, InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.asking import get
from tests.support.metrics import outcomes
from tests.support.ways import Request, over_asgi, over_wsgi

FORGED = "a\nERROR forged \x1b[31m" + "b" * 200


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[InferenceServer]:
    caplog.set_level(logging.DEBUG, "oip_asgi")
    server = InferenceServer()

    @server.model("speaks", version="2")
    def speaks(status: list[str]) -> int:
        raise InferenceError(f"no: {FORGED}", status=int(status[0]))

    @server.model("raises")
    def raises() -> int:
        raise ValueError(FORGED)

    yield server
    server.stop()


def send(server: InferenceServer, model: str, **fields: Any) -> int:
    body = json.dumps({"inputs": [], **fields}).encode()
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/{model}/infer", (), body)).status


def said(status: int) -> list[dict[str, Any]]:
    return [{"name": "status", "shape": [1], "datatype": "BYTES", "data": [str(status)]}]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.startswith("oip_")}


def test_what_a_model_says_is_one_line_at_debug_or_at_error(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    assert send(server, "speaks", id="r 1", inputs=said(422)) == 422
    assert send(server, "speaks", inputs=said(502)) == 502
    refused, failed = caplog.records
    text = refused.getMessage()
    assert (refused.levelno, failed.levelno, failed.exc_info) == (logging.DEBUG, logging.ERROR, None)
    assert text.startswith(r"model 'speaks' version '2': a request was refused with 422: no: a\nERROR forged \x1b[31mb")
    assert text.isprintable()
    found = fields(refused)
    assert 0 <= found.pop("oip_seconds") < 60
    assert found == {"oip_model": "speaks", "oip_version": "2", "oip_request_id": "r 1"}
    assert failed.getMessage().startswith("model 'speaks' version '2': a request failed with 502: no: ")


def test_what_a_model_raises_is_one_record_with_its_traceback_and_the_same_fields(
    server: InferenceServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert send(server, "raises", id=FORGED) == 500
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    found = fields(record)
    assert (found["oip_model"], found["oip_version"]) == ("raises", None)
    assert found["oip_request_id"].startswith(r"a\nERROR forged \x1b[31mb")
    assert found["oip_request_id"].isprintable()
    assert len(found["oip_request_id"]) < 150
    lines = caplog.text.splitlines()
    assert not any(line.startswith("ERROR") for line in lines[1:])


def test_a_request_for_an_unknown_model_names_no_model_in_its_fields(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    assert send(server, "none%0Aforged") == 404
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith(r"a request was refused with 404: Request for unknown model: 'none\nforged' is not found")
    assert fields(record) == {"oip_model": "", "oip_version": None, "oip_request_id": None, "oip_seconds": 0.0}


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("POST", "/models/iris%0Aforged/infer", r"infer with model 'iris\nforged'"),
        ("GET", "/models/iris/versions/2", "metadata with model 'iris'"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_authorize_refuses_is_one_line(method: str, path: str, asked: str, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(access: Access) -> bool:
        return False

    server = InferenceServer(authorize=refuse if is_async else lambda access: False)
    request = Request(method, path, (), b'{"inputs":[]}' if method == "POST" else b"")
    caplog.set_level(logging.DEBUG, "oip_asgi")
    assert over_asgi(OIPApp(server), "")(request).status == 403
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    text = f"authorize= refused {asked} over rest with 403: not allowed: {asked}"
    assert record.getMessage() == text
    assert fields(record)["oip_model"] == path.split("/")[2].replace("%0A", r"\n")
    if not is_async:
        assert over_wsgi(OIPWSGIApp(server), "")(request).status == 403
        assert caplog.messages[1:] == [text]
    caplog.set_level(logging.INFO, "oip_asgi")
    caplog.clear()
    assert over_asgi(OIPApp(server), "")(request).status == 403
    assert caplog.messages == []


def test_the_log_names_the_model_that_keeps_the_server_from_being_ready_once(
    server: InferenceServer, caplog: pytest.LogCaptureFixture
) -> None:
    ready = [False, False, True, True, False]
    server.register("moody", lambda: 1, ready=ready.pop)
    ready.reverse()
    statuses = []
    said = []
    for _ in range(5):
        caplog.clear()
        statuses.append(get(server, "/health/ready"))
        said.append([(record.levelname, record.getMessage()) for record in caplog.records])
    moody = {"name": "moody", "state": "UNAVAILABLE", "reason": "it is not ready, as the log says"}
    not_ready, is_ready = (503, {"ready": False, "live": True, "models": [moody]}), (200, {"ready": True, "live": True})
    assert statuses == [not_ready, not_ready, is_ready, is_ready, not_ready]
    line = [("WARNING", "the server is not ready, because of model 'moody': its ready= says so")]
    assert said == [line, [], [("WARNING", "the server is ready again")], [], line]


def test_the_reason_may_be_what_ready_raises(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    async def is_ready() -> bool:
        raise InferenceError("the feature store\nis away", status=503)

    server.register("asks", lambda: 1, ready=is_ready)
    assert [get(server, "/health/ready")[0] for _ in range(2)] == [503, 503]
    assert caplog.messages == [r"the server is not ready, because of model 'asks': the feature store\nis away"]


def test_a_model_that_is_loading_is_named_too(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[int, object]] = []

    def load() -> None:
        seen.append(get(server, "/health/ready"))

    server.register("m", lambda: 1, load=load)
    server.start()
    assert seen == [(503, {"ready": False, "live": True, "models": [{"name": "m", "state": "LOADING"}]})]
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ["the server is not ready, because of model 'm': it is still loading"]
    assert get(server, "/health/ready")[0] == 200
    assert caplog.records[-1].getMessage() == "the server is ready again"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class MuteForClients(InferenceError):
    """The same, of the kind whose text is for the client."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def of_any_exception(kind: str, debug: bool) -> Any:
    text = "Mute, whose text cannot be made" if debug else "see the server's log"
    record = "model 'mute' failed on the request with id 'r'"
    return pytest.param(Mute(), kind, debug, 500, f"model 'mute' failed: {text}", "failed", record, id=f"{kind}, debug={debug}")


FOR_CLIENTS = "MuteForClients, whose text cannot be made"
REFUSED = f"model 'mute': a request was refused with 422: {FOR_CLIENTS}"


@pytest.mark.parametrize(
    ("raised", "kind", "debug", "status", "text", "outcome", "record"),
    [
        *(of_any_exception(kind, True) for kind in ("thread", "inline", "async", "stream", "batch")),
        of_any_exception("thread", False),
        *((MuteForClients("never said", status=422), kind, False, 422, FOR_CLIENTS, "invalid", REFUSED) for kind in ("thread", "batch")),
    ],
)
def test_an_exception_whose_text_cannot_be_made_is_counted_and_its_line_names_the_model(
    raised: Exception, kind: str, debug: bool, status: int, text: str, outcome: str, record: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(x: list[str]) -> Any:
        raise raised

    async def fails_async(x: list[str]) -> Any:
        raise raised

    def streams(x: list[str]) -> Iterator[Any]:
        yield fails(x)

    caplog.set_level(logging.DEBUG, "oip_asgi")
    server = InferenceServer(debug=debug)
    options: dict[str, Any] = {"run": "inline"} if kind == "inline" else {"max_batch_size": 4} if kind == "batch" else {}
    server.register("mute", {"async": fails_async, "stream": streams}.get(kind, fails), **options)
    path = "infer_stream" if kind == "stream" else "infer"
    body = b'{"id":"r","inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","data":["a"]}]}'
    for _ in range(2):
        answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/mute/{path}", (), body))
        assert (answer.status, json.loads(answer.body)["error"]) == (status, text)
    assert outcomes(server, "mute") == {outcome: 2}
    assert [(each.getMessage(), fields(each)["oip_model"]) for each in caplog.records] == [(record, "mute")] * 2
    server.stop()


def test_where_the_host_has_disabled_the_logger_the_reason_of_a_500_goes_to_stderr(
    server: InferenceServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As `dictConfig` and `fileConfig` disable each logger that is there and that they do not name."""
    logger = logging.getLogger("oip_asgi")
    monkeypatch.setattr(logger, "disabled", True)
    assert send(server, "raises") == 500
    told = capsys.readouterr().err
    assert "model 'raises' failed on a request" in told
    assert "ValueError: a" in told
    assert "\nERROR forged" not in told
    assert send(server, "speaks", inputs=said(500)) == 500
    assert "model 'speaks' version '2': a request failed with 500: no: a" in capsys.readouterr().err
    assert send(server, "speaks", inputs=said(418)) == 418  # which the client is told
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(logger.manager, "disable", logging.CRITICAL)  # who wants no log at all gets none
    assert send(server, "raises") == 500
    assert capsys.readouterr().err == ""
    monkeypatch.undo()
    assert send(server, "raises") == 500
    assert capsys.readouterr().err == ""
    caplog.set_level(logging.CRITICAL, "oip_asgi")
    assert send(server, "raises") == 500
    assert capsys.readouterr().err == ""
