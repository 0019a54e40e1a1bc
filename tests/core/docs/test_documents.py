"""What the OpenAPI documents say: they are valid, agree with the routes, and their examples work when they are sent."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
from fastapi import FastAPI

from oip_asgi import Access, InferenceServer, OIPApp, TensorSpec
from oip_asgi.codecs import Base64Codec
from oip_asgi.specs import specs_of
from tests.support.described import LARGE, described_server
from tests.support.inside.http import http_exchange as exchange
from tests.support.ways import Request, Way, over_asgi


@pytest.fixture(scope="module")
def server() -> InferenceServer:
    return described_server(model_control=True)


@pytest.fixture(scope="module")
def way(server: InferenceServer) -> Way:
    return over_asgi(OIPApp(server), "")


def got(way: Way, path: str) -> Any:
    answer = way(Request("GET", path))
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body)


def posted(document: Any) -> Iterator[tuple[str, Any]]:
    """Each path of a model to which a body is posted, and what is said of that."""
    for path, operations in document["paths"].items():
        if path.startswith("/models/") and "post" in operations:
            yield path, operations["post"]


@pytest.mark.ci
@pytest.mark.parametrize("path", ["/openapi.json", "/models/chat/openapi.json"])
def test_a_document_is_valid(way: Way, path: str) -> None:
    validator = pytest.importorskip("openapi_spec_validator").OpenAPIV31SpecValidator
    assert list(validator(got(way, path)).iter_errors()) == []


@pytest.mark.ci
@pytest.mark.parametrize("prefix", ["/", "/{path:path}/v2"])
def test_a_host_s_document_is_valid_with_ours(prefix: str) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, version="1", inputs=[TensorSpec("x", "FP32", [-1])])
    validator = pytest.importorskip("openapi_spec_validator").OpenAPIV31SpecValidator
    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, **server.openapi(prefix)}
    assert list(validator(document).iter_errors()) == []


def test_each_example_works_and_is_as_the_schemas_say(way: Way) -> None:
    validators = pytest.importorskip("openapi_schema_validator")
    document = got(way, "/openapi.json")
    components = {"components": document["components"]}
    paths = [path for path, _ in posted(document)]
    assert len(paths) == 2 * len({path.rpartition("/")[0] for path in paths}) == 40
    seen = 0
    for path, operation in posted(document):
        content = operation["requestBody"]["content"]["application/json"]
        if path.startswith(f"/models/{LARGE}/"):
            assert "example" not in content
            assert "12288 elements" in operation["requestBody"]["description"]
            continue
        validators.OAS31Validator({**content["schema"], **components}).validate(content["example"])
        answer = way(Request("POST", path, (), json.dumps(content["example"]).encode()))
        assert answer.status == 200, (path, content["example"], answer.body)
        response = operation["responses"]["200"]["content"].get("application/json")
        if response is None:  # a stream
            continue
        seen += 1
        schema = validators.OAS31Validator({**response["schema"], **components})
        schema.validate(json.loads(answer.body))
        if "example" in response:
            schema.validate(response["example"])
    assert seen >= 30


def test_the_example_of_bytes_is_a_picture(way: Way) -> None:
    example = got(way, "/models/files/openapi.json")["paths"]["/models/files/infer"]["post"]["requestBody"]["content"]
    [[text]] = [tensor["data"] for tensor in example["application/json"]["example"]["inputs"]]
    picture = base64.b64decode(text)
    assert (picture[:8], len(picture) < 200) == (b"\x89PNG\r\n\x1a\n", True)
    assert len(zlib.decompress(picture[picture.index(b"IDAT") + 4 : -16])) == 64 * (1 + 3 * 64)


def test_documents_of_other_routes_are_as_the_schemas_say(way: Way) -> None:
    validators = pytest.importorskip("openapi_schema_validator")
    document = got(way, "/openapi.json")
    for path, operations in document["paths"].items():
        if "get" in operations:
            schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            validators.OAS31Validator({**schema, "components": document["components"]}).validate(got(way, path))
    schema = document["paths"]["/repository/index"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = json.loads(way(Request("POST", "/repository/index")).body)
    validators.OAS31Validator({**schema, "components": document["components"]}).validate(answer)


def test_the_schema_of_a_request_says_what_is_declared(way: Way) -> None:
    validators = pytest.importorskip("openapi_schema_validator")
    document = got(way, "/models/org%2Fscorer/versions/1/openapi.json")
    [schema] = [name for name in document["components"]["schemas"] if name.startswith("OipRequest_")]
    validator = validators.OAS31Validator({"$ref": f"#/components/schemas/{schema}", "components": document["components"]})
    good = {"name": "x", "datatype": "INT32", "shape": [1], "data": [5]}
    for same in (good, {**good, "parameters": {"content_type": "np"}}):
        assert validator.is_valid({"inputs": [same]})
    others: list[dict[str, Any]] = [
        {"parameters": {"content_type": "str"}},
        {"shape": [2], "data": [5, 5]},
        {"shape": [1, 1]},
        {"datatype": "INT64"},
        {"name": "y"},
    ]
    wrong = [*({**good, **other} for other in others), {**good, "data": [2**31]}, {**good, "data": ["5"]}]
    for inputs in (*([each] for each in wrong), [{name: good[name] for name in ("name", "datatype", "shape")}], [good, good], []):
        assert not validator.is_valid({"inputs": inputs}), inputs


def test_every_route_is_in_the_document_and_no_other(way: Way) -> None:
    """But for the routes of the documents themselves, and of shared memory, which is for Triton's own clients.

    Of the models, one answers with streams and one does not.
    """
    documented = {
        (method.upper(), path.replace("/chat", "/{model}").replace("/iris", "/{model}"))
        for path, operations in got(way, "/openapi.json")["paths"].items()
        for method in operations
        if path.count("/models/") == 0 or "/models/iris" in path or "/models/chat" in path or path == "/models/stats"
    }
    routes = {(route.method, route.pattern.replace("[/versions/{version}]", "") or "/") for route in exchange.ROUTES}
    assert documented == {(method, path) for method, path in routes if "sharedmemory" not in path}


def test_each_version_has_paths_of_its_own_and_the_default_one_is_there_without(way: Way) -> None:
    paths = got(way, "/models/org%2Fscorer/openapi.json")["paths"]
    assert [path for path in paths if path.endswith("/infer")] == [
        "/models/org%2Fscorer/infer",
        *[f"/models/org%2Fscorer/versions/{version}/infer" for version in ("1", "9", "10")],
    ]
    example = paths["/models/org%2Fscorer/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert example["inputs"][0]["shape"] == [10]
    one = got(way, "/models/org%2Fscorer/versions/9/openapi.json")["paths"]
    assert {path.removeprefix("/models/org%2Fscorer/versions/9") for path in one} == {
        *("", "/ready", "/stats", "/config", "/infer", "/generate"),
        *("/repository/models/org%2Fscorer/load", "/repository/models/org%2Fscorer/unload"),
    }


@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_s_document_has_what_this_client_may_do_to_it(is_async: bool) -> None:
    allowed = set[str]()

    def authorize(access: Access) -> bool:
        return access.action not in ("load", "unload") or access.action in allowed

    async def authorize_later(access: Access) -> bool:
        return authorize(access)

    server = InferenceServer(model_control=True, authorize=authorize_later if is_async else authorize)
    server.register("a/b", lambda x: x, version="1")
    way = over_asgi(OIPApp(server), "")
    for action in (None, "load", "unload"):
        allowed |= {action} if action else set()
        for path in ("/models/a%2Fb/openapi.json", "/models/a%2Fb/versions/1/openapi.json"):
            paths = {each for each in got(way, path)["paths"] if each.startswith("/repository")}
            assert paths == {f"/repository/models/a%2Fb/{each}" for each in allowed}
        assert (b"/repository/models/a%2Fb/load" in way(Request("GET", "/docs")).body) is ("load" in allowed)


def test_an_undeclared_model_says_what_to_declare(way: Way) -> None:
    def body_of(model: str, action: str = "infer") -> Any:
        return got(way, f"/models/{model}/openapi.json")["paths"][f"/models/{model}/{action}"]["post"]["requestBody"]

    assert body_of("double")["description"] == (
        "This model does not declare its inputs and outputs, so they are not checked, and the example is a guess. Declare them where the "
        'model is registered, such as `inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])]`.'
    )
    names = {"name": "names", "shape": [1], "datatype": "BYTES", "data": ["text"]}
    assert body_of("greet")["content"]["application/json"]["example"] == {"inputs": [names]}
    assert "description" not in body_of("iris")
    # only what a request must have
    assert body_of("scalar", "generate")["content"]["application/json"]["example"] == {"x": 0.0}


def test_a_document_is_of_what_is_registered_now() -> None:
    server = InferenceServer()
    way = over_asgi(OIPApp(server), "")

    def actions() -> list[str]:
        return [path.rpartition("/")[2] for path in got(way, "/openapi.json")["paths"] if path.startswith("/models/m/")]

    assert actions() == []
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [1])])
    assert {"infer", "generate"} < {*actions()}
    server.unregister_sync("m")
    assert actions() == []

    def load() -> Any:
        async def tokens(prompt: Any) -> Any:
            yield prompt

        return tokens

    server.register("m", load=load)
    assert "infer" in actions()
    server.load_sync("m")
    assert ("infer" in actions(), "infer_stream" in actions()) == (False, True)
    server.stop()


def test_the_prefix_of_a_host_s_document(server: InferenceServer) -> None:
    before, changed = server.openapi(), server.openapi()
    for schema in changed["components"]["schemas"].values():
        schema["description"] = "changed"  # a host may change what it gets
    changed["components"]["schemas"]["OipError"]["properties"]["error"]["description"] = "changed"
    assert server.openapi() == before
    server = InferenceServer()
    with pytest.raises(ValueError, match="must begin with a slash"):
        server.openapi("v2")
    assert next(iter(server.openapi("/v2"))) == "openapi"
    assert "servers" not in server.openapi()
    assert [*server.openapi("/ml/v2/")["paths"]][:2] == ["/ml/v2", "/ml/v2/health/live"]
    assert [*server.openapi("/")["paths"]][:2] == ["/", "/health/live"]
    ours, others = server.openapi("/v2")["components"]["schemas"], server.openapi("/ml/v2")["components"]["schemas"]
    assert ours.keys().isdisjoint(others)
    assert all(name.startswith("OipMlV2") for name in others)


def test_a_model_whose_tensors_have_reserved_names_has_no_flat_form() -> None:
    server = InferenceServer()
    server.register("in", lambda id, x: x)  # noqa: A006  (a name that clients may use)
    server.register("out", lambda x: x, outputs=[TensorSpec("error", "FP32", [-1])])
    paths = [path for path in server.openapi()["paths"] if path.endswith(("/generate", "/infer"))]
    assert paths == ["/v2/models/in/infer", "/v2/models/out/infer"]


@dataclass
class Row:
    a: int
    b: list[float] = field(default_factory=list)


class Scorer:
    """Scores of a class."""

    def __call__(self, x: Any) -> Any:
        return x

    def score(self, x: Any) -> Any:
        """Scores.

        An example.
        """
        return x


def count_up(x: Any) -> Iterator[Any]:
    """Counts.\f Not for clients."""
    yield from x


def test_the_docstrings_of_models_are_in_the_documents() -> None:
    server = InferenceServer()
    models: dict[str, Any] = {"object": Scorer(), "method": Scorer().score, "partial": partial(Scorer().score)}
    models |= {"stream": count_up, "none": lambda x: x}
    for name, function in models.items():
        server.register(name, function)
    server.register("made", load=lambda: Scorer().score)
    way = over_asgi(OIPApp(server), "")
    scores = "Scores.\n\nAn example."
    expected = {"object": "Scores of a class.", "method": scores, "partial": scores, "stream": "Counts.", "none": None, "made": None}
    document = got(way, "/openapi.json")
    assert {tag["name"]: tag.get("description") for tag in document["tags"][1:]} == {
        f"model {name}": text for name, text in expected.items()
    }
    for name, text in expected.items():
        actions = ("infer_stream", "generate_stream") if name == "stream" else ("infer", "generate")
        assert [document["paths"][f"/models/{name}/{action}"]["post"].get("description") for action in actions] == [text] * 2
    server.start()
    assert got(way, "/openapi.json")["tags"][-1]["description"] == scores
    server.stop()
    app = FastAPI()
    OIPApp(server).install(app)
    assert app.openapi()["tags"][-1] == {"name": "model made", "description": scores}


def test_a_librarys_docstring_describes_no_model() -> None:
    linear_model, pipelines = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.pipeline")

    class Churn(linear_model.LogisticRegression):  # type: ignore[misc, name-defined]  # without stubs, its base is Any
        def predict(self, x: Any) -> Any:
            """Who leaves."""
            return super().predict(x)

    x, kinds = np.arange(8.0)[:, None], [0, 1] * 4
    churn = Churn().fit(x, kinds)
    pipeline = pipelines.make_pipeline(linear_model.LogisticRegression()).fit(x, kinds)
    server = InferenceServer()
    server.register("own docstring", churn.predict)
    for place, function in enumerate((churn.predict_proba, partial(pipeline.predict_proba), pipeline.predict)):
        server.register(f"m{place}", function)
    server.register("loaded", load=lambda: pipeline.predict_proba)
    server.start()
    document = got(over_asgi(OIPApp(server), ""), "/openapi.json")
    server.stop()
    assert [tag for tag in document["tags"][1:] if "description" in tag] == [{"name": "model own docstring", "description": "Who leaves."}]
    described = {
        path: each["post"].get("description") for path, each in document["paths"].items() if path.endswith(("/infer", "/generate"))
    }
    assert {path: text for path, text in described.items() if text} == {
        f"/models/own%20docstring/{action}": "Who leaves." for action in ("infer", "generate")
    }
    assert len(described) == 10


def test_the_defaults_of_scalars_are_said() -> None:
    server = InferenceServer()

    @server.model("m", inputs=[TensorSpec("x", "FP32", [-1])])
    def model(x: Any, factor: float = 2.5, top: int = 3, exact: bool = False, unit: str = "cm", most: float = float("inf")) -> Any:
        return x

    document = got(over_asgi(OIPApp(server), ""), "/models/m/openapi.json")
    items = document["components"]["schemas"]["OipRequest_m"]["properties"]["inputs"]["items"]["oneOf"]
    defaults = {item["properties"]["name"]["enum"][0]: item["properties"]["data"].get("default") for item in items}
    assert defaults == {"x": None, "factor": [2.5], "top": [3], "exact": [False], "unit": ["cm"], "most": None}


def test_labels_and_examples_may_be_numpy_s() -> None:
    server = InferenceServer()
    label, number = np.array(["setosa"])[0], np.float64(1.5)
    x, y = TensorSpec("x", "FP64", [-1], example=[number]), TensorSpec("y", "FP64", [-1, 1], labels=[label])
    server.register("m", lambda x: x[:, None], inputs=[x], outputs=[y])
    ask = over_asgi(OIPApp(server), "")
    for path in ("docs/state.json", "docs/dataplane.json", "openapi.json", "config"):
        assert ask(Request("GET", f"/models/m/{path}")).status == 200, path
    assert json.loads(ask(Request("GET", "/models/m/config")).body)["name"] == "m"


def test_the_schema_of_generate_says_which_keys_are_refused() -> None:
    validators = pytest.importorskip("openapi_schema_validator")
    server = InferenceServer()

    @server.model("scaled", inputs=[TensorSpec("x", "FP32", [-1])])
    def scaled(x: Any, factor: float = 1.0) -> Any:
        return x * factor

    @server.model("rows")
    def rows(rows: list[Row]) -> list[Row]:
        return rows

    server.register("plain", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, -1])], outputs=[TensorSpec("y", "FP32", [-1, -1])])
    way = over_asgi(OIPApp(server), "")
    components = server.openapi()["components"]
    asked: list[tuple[str, Any, bool]] = [
        ("scaled", {"x": [1, 2.5], "factor": 2}, True),
        ("scaled", {"x": [1, None], "id": "a", "parameters": {"priority": 1}}, True),
        ("scaled", {"x": 1, "other": 2}, False),
        ("plain", {"x": [[1, 2.5]], "other": 2}, True),
        ("rows", {"a": [1, 2], "id": "i"}, True),
        ("rows", {"a": 1, "c": 2}, False),
        ("rows", [{"a": 1, "b": [1.5]}], True),
        ("rows", [{"a": 1, "id": "i"}], False),
        ("rows", [{"a": 1, "b": [[1.5]]}], False),
        ("rows", [{"b": []}], False),
    ]
    for name, body, is_valid in asked:
        answer = way(Request("POST", f"/models/{name}/generate", (), json.dumps(body).encode()))
        assert (answer.status == 200) is is_valid, (body, answer.body)
        validator = validators.OAS31Validator({"$ref": f"#/components/schemas/OipGenerateRequest_{name}", "components": components})
        assert validator.is_valid(body) is is_valid, body
        if is_valid:
            response = {"$ref": f"#/components/schemas/OipGenerateResponse_{name}", "components": components}
            validators.OAS31Validator(response).validate(json.loads(answer.body))


def example_answers(server: InferenceServer, name: str) -> Any:
    """What a model answers to its example, as a whole request and as a flat object."""
    way = over_asgi(OIPApp(server), "")
    document = json.loads(way(Request("GET", f"/models/{name}/openapi.json")).body)
    for action in ("infer", "generate"):
        path = f"/models/{name}/{action}"
        operation = document["paths"][path]["post"]
        example = operation["requestBody"]["content"]["application/json"]["example"]
        answer = way(Request("POST", path, (), json.dumps(example).encode()))
        assert answer.status == 200, (example, answer.body)
    return document["paths"][f"/models/{name}/infer"]["post"]["requestBody"]


def test_the_example_of_a_data_frame() -> None:
    server = InferenceServer()
    columns = [TensorSpec("age", "INT64", [-1]), TensorSpec("name", "BYTES", [-1]), TensorSpec("since", "BYTES", [-1, 1], "datetime")]

    @server.model("frame", inputs=columns)
    def frame(df: pd.DataFrame) -> Any:
        assert list(df.columns) == ["age", "name", "since"]
        assert df["since"].dtype.kind == "M"
        return df

    @server.model("named", content_type="pd", inputs=columns)
    def named(df: Any) -> Any:
        return pd.DataFrame({"rows": [len(df)]})

    @server.model("any")
    def any_frame(df: pd.DataFrame) -> Any:
        return df

    inputs = example_answers(server, "frame")["content"]["application/json"]["example"]["inputs"]
    assert [(each["name"], each["shape"], each["data"]) for each in inputs] == [
        ("age", [1], [0]),
        ("name", [1], ["text"]),
        ("since", [1, 1], ["2026-01-31T12:00:00"]),
    ]
    example_answers(server, "named")
    assert "does not declare its inputs and outputs" in example_answers(server, "any")["description"]


def test_examples_of_categories_and_of_dates_fit_their_columns() -> None:
    server = InferenceServer()
    dates = pd.to_datetime(["2026-01-01", "2026-02-01"])
    categories: dict[str, Any] = {"text": ["red", "blue"], "number": [3, 4], "date": dates, "zoned": dates.tz_localize("Asia/Tokyo")}
    frames = {"categories": pd.DataFrame({name: pd.Categorical(values, categories=values) for name, values in categories.items()})}
    frames |= {f"m{place}": pd.DataFrame({"day": dates.tz_localize(zone)}) for place, zone in enumerate((None, "UTC", "Asia/Tokyo"))}
    for name, frame in frames.items():
        server.register(name, lambda df: len(df), content_type="pd", inputs=specs_of(frame))
        example_answers(server, name)


def test_the_example_has_what_the_content_type_reads() -> None:
    server = InferenceServer()

    @server.model("model", content_type="datetime", inputs=[TensorSpec("a", "BYTES", [-1]), TensorSpec("b", "BYTES", [2])])
    def by_model(a: Any, b: Any) -> Any:
        assert all(isinstance(each, datetime) for each in [*a, *b])
        return a

    @server.model("rest", content_type="base64", inputs=[TensorSpec("a", "BYTES", [-1])])
    def rest(**inputs: Any) -> Any:
        assert inputs["a"][0].startswith(b"\x89PNG")
        return [b"text"]

    @server.model("codec")
    def codec(a: Annotated[Any, Base64Codec], b: list[bytes]) -> Any:
        assert a[0].startswith(b"\x89PNG")
        assert b == [b"text"]
        return b

    for name in ("model", "rest", "codec"):
        example_answers(server, name)
