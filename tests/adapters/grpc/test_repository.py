"""The model repository extension over gRPC."""

from __future__ import annotations

from typing import Any

from oip_asgi import InferenceServer, LoadParameters
from tests.support.grpc_ways import Client, Serving, made


def make_server(got: list[LoadParameters], *, model_control: bool = True) -> InferenceServer:
    server = InferenceServer(model_control=model_control)

    def load(parameters: LoadParameters) -> Any:
        got.append(parameters)
        if "fail" in parameters.config:
            raise RuntimeError("a secret")
        return lambda: len(got)

    server.register("made", load=load)
    server.register("plain", lambda: 1, version="3")
    return server


def index(client: Client, **fields: Any) -> list[tuple[str, str, str, str]]:
    models = client.ask("RepositoryIndex", made("RepositoryIndexRequest", **fields)).models
    return [(model.name, model.version, model.state, model.reason) for model in models]


def test_index_load_and_unload(serving: Serving) -> None:
    got: list[LoadParameters] = []
    with serving(make_server(got)) as address:
        client = Client(address)
        name = b"\x0a\x04made"  # field 1: what KServe's ModelRepository messages call model_name
        for method in ("RepositoryModelUnload", "RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.ask(method, name).SerializeToString() == b"\x0a\x04made\x10\x01"  # field 1, and field 2 that is true
        assert len(got) == 1
    got.clear()
    with serving(make_server(got)) as address:
        client = Client(address)
        assert index(client) == [("made", "", "UNAVAILABLE", "not loaded yet"), ("plain", "3", "READY", "")]
        assert index(client, ready=True) == [("plain", "3", "READY", "")]
        parameters = {"config": {"string_param": '{"a": 1}'}, "file:1/a": {"bytes_param": b"\0\xff"}, "n": {"int64_param": 5}}
        answer = client.ask("RepositoryModelLoad", made("RepositoryModelLoadRequest", model_name="made", parameters=parameters))
        assert (answer.model_name, answer.is_loaded) == ("made", True)
        assert (got[0].config, got[0].files, got[0].parameters) == ({"a": 1}, {"1/a": b"\0\xff"}, {"n": 5})
        assert client.ask("ModelReady", made("ModelReadyRequest", name="made")).ready
        failing = made("RepositoryModelLoadRequest", model_name="made", parameters={"config": {"string_param": '{"fail": 1}'}})
        assert client.refusal("RepositoryModelLoad", failing) == ("INTERNAL", "failed to load 'made': see the server's log")
        assert index(client)[0] == ("made", "", "READY", "load failed, see the server's log: what was loaded before still serves")
        unload = made("RepositoryModelUnloadRequest", model_name="made", parameters={"unload_dependents": {"bool_param": False}})
        answer = client.ask("RepositoryModelUnload", unload)
        assert (answer.model_name, answer.is_unloaded) == ("made", True)
        assert not client.ask("ModelReady", made("ModelReadyRequest", name="made")).ready
        assert client.ask("ServerReady").ready
        assert client.refusal("ModelInfer", made("ModelInferRequest", model_name="made")) == (
            "UNAVAILABLE",
            "model 'made' is not ready: it was unloaded",
        )


def test_what_is_refused(serving: Serving) -> None:
    got: list[LoadParameters] = []
    with serving(make_server(got)) as address:
        client = Client(address)
        both = {"repository_name": "elsewhere", "model_name": "made"}
        assert client.refusal("RepositoryIndex", made("RepositoryIndexRequest", repository_name="elsewhere"))[0] == "NOT_FOUND"
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.refusal(method, made(f"{method}Request", **both))[0] == "NOT_FOUND"
            assert client.refusal(method, made(f"{method}Request", model_name="nope"))[0] == "NOT_FOUND"
            assert client.refusal(method, made(f"{method}Request"))[0] == "NOT_FOUND"
            empty = made(f"{method}Request", model_name="made", parameters={"config": {}})
            assert client.refusal(method, empty)[0] == "INVALID_ARGUMENT"
        for parameters in (
            {"config": {"bytes_param": b"{}"}},
            {"file:1/a": {"bytes_param": b""}},
            {"config": {"string_param": "{}"}, "file:1/a": {"string_param": "text"}},
            {"config": {"string_param": "{}"}, "file:../a": {"bytes_param": b""}},
        ):
            message = made("RepositoryModelLoadRequest", model_name="made", parameters=parameters)
            assert client.refusal("RepositoryModelLoad", message)[0] == "INVALID_ARGUMENT"
        message = made("RepositoryModelUnloadRequest", model_name="made", parameters={"unload_dependents": {"string_param": "no"}})
        assert client.refusal("RepositoryModelUnload", message)[0] == "INVALID_ARGUMENT"
    assert got == []


def test_clients_control_nothing_unless_the_host_says_so(serving: Serving) -> None:
    with serving(make_server([], model_control=False)) as address:
        client = Client(address)
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert client.refusal(method, made(f"{method}Request", model_name="plain"))[0] == "PERMISSION_DENIED"
        assert len(index(client)) == 2
        assert "model_repository" not in client.ask("ServerMetadata").extensions
