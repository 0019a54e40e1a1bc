"""Folders of MLServer's documentation, registered and asked as its clients ask: what each example answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.asking import ask, error, get, logged, outputs
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import Client, blocking, wire_request
from tests.support.mlserver_folders import ECHO, HELLO, QUESTIONS, WORDS, post, serve, tensor, write
from tests.support.ways import Answer, Request, over_asgi, ways_into

pytestmark = pytest.mark.ci  # as no machine breaks it

ROWS, KINDS = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def iris() -> Any:
    return LogisticRegression(max_iter=1000).fit(ROWS, KINDS)


class Slow:
    """What takes a while to open, and notes how many are opened at that time."""

    opening = 0
    most = 0

    def __setstate__(self, state: object) -> None:
        Slow.opening += 1
        Slow.most = max(Slow.most, Slow.opening)
        time.sleep(0.05)
        Slow.opening -= 1

    def __getstate__(self) -> object:
        return {"is": "slow"}

    def predict(self, rows: Any) -> Any:
        return rows


def test_models_of_a_folder_are_opened_one_after_the_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        folder = write(tmp_path / name, {"name": name, "implementation": "mlserver_sklearn.SKLearnModel"})
        joblib.dump(Slow(), folder / "model.joblib")

    async def main() -> list[str]:
        server = serve(tmp_path)
        async with server.lifespan():
            return [model.state for model in server.models()]

    assert asyncio.run(main()) == ["ready"] * 3
    assert Slow.most == 1


def serve_estimator(folder: Path, model: Any, **settings: Any) -> InferenceServer:
    write(folder, {"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", **settings})
    joblib.dump(model, folder / "model.joblib")
    return serve(folder)


def test_scikit_learn(tmp_path: Path, iris: Any) -> None:
    joblib.dump(iris, tmp_path / "m.joblib")
    server = serve_estimator(tmp_path, None, parameters={"uri": "./m.joblib", "version": "v1"})
    rows = ROWS[48:52]
    request = {"inputs": [tensor("predict", "FP32", [4, 4], rows.tolist())]}
    assert json.loads(post(server, "/models/m/versions/v1/infer", request).body) == {
        "model_name": "m",
        "model_version": "v1",
        "outputs": [tensor("predict", "INT64", [4, 1], [0, 0, 1, 1], "np")],
    }
    both = outputs(post(server, "/models/m/infer", {**request, "outputs": [{"name": "predict_proba"}, {"name": "predict"}]}))
    assert list(both) == ["predict_proba", "predict"]
    assert np.allclose(both["predict_proba"], iris.predict_proba(np.float32(rows)).ravel())
    for asked, text in (
        (["transform"], "LogisticRegression has no output 'transform': ask for predict, predict_proba or transform"),
        (["predict"] * 2, "output 'predict' is asked for twice: expected each name once"),
    ):
        refused = post(server, "/models/m/infer", {**request, "outputs": [{"name": name} for name in asked]})
        assert error(refused) == (400, text)
    as_frame = {"parameters": {"content_type": "pd"}, "inputs": [tensor(str(n), "FP64", [4], rows[:, n].tolist()) for n in range(4)]}
    with pytest.warns(UserWarning, match="feature names"):
        assert outputs(post(server, "/models/m/infer", as_frame)) == {"predict": [0, 0, 1, 1]}


COLUMNS = pd.DataFrame({"age": [1.0, 5, 2, 8], "net debt": [9.0, 1, 7, 2]})
DECLARED = [{"name": name, "datatype": "FP64", "shape": [-1]} for name in COLUMNS]


class Clip(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, x: Any, y: Any = None) -> Clip:
        return self

    def transform(self, x: Any) -> Any:
        return np.clip(np.asarray(x, float), -9, 9)


def fit_nameless() -> Any:
    return make_pipeline(Clip(), LogisticRegression()).fit(COLUMNS, [0, 1, 0, 1])


def fit_named() -> Any:
    return LogisticRegression().fit(COLUMNS, [0, 1, 0, 1])


def ask_frame(server: InferenceServer, *names: str) -> Answer:
    columns = [tensor(name, "FP64", [4], COLUMNS[name if name in COLUMNS else "age"].tolist()) for name in names]
    return post(server, "/models/m/infer", {"parameters": {"content_type": "pd"}, "inputs": columns})


def test_a_frame_for_an_estimator_that_does_not_know_its_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serve_estimator(tmp_path, fit_nameless())
    for _ in range(2):
        assert ask_frame(server, "age", "net debt").status == 200
    [record] = logged(caplog)
    text, _, inputs = record.getMessage().partition(', as in "inputs": ')
    assert text == (
        f"{tmp_path}/model-settings.json: the Pipeline does not know the names of its columns, so it takes any, in any order: "
        "add them, in the order of the training"
    )
    assert json.loads(inputs) == DECLARED
    text = "the request has 4097 columns: expected 4096 at most, as the settings do not declare them"
    assert error(ask_frame(server, *map(str, range(4097)))) == (400, text)


@pytest.mark.parametrize(
    ("fit", "inputs"), [(fit_nameless, DECLARED), (fit_named, []), (fit_named, DECLARED[::-1])], ids=["settings", "own", "both"]
)
def test_columns_of_a_frame_come_in_the_order_of_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fit: Any, inputs: Any
) -> None:
    server = serve_estimator(tmp_path, fit(), inputs=inputs)
    for names in (("age", "net debt"), ("net debt", "age")):
        assert outputs(ask_frame(server, *names)) == {"predict": fit().predict(COLUMNS).tolist()}
    assert logged(caplog) == []
    if fit is fit_nameless:
        assert error(ask_frame(server, "age", "x")) == (400, "the columns are ['age', 'x']: expected ['age', 'net debt']")


def test_a_transformer_knows_its_columns_too(tmp_path: Path) -> None:
    scaler = StandardScaler().fit(COLUMNS)
    server, asked = serve_estimator(tmp_path, scaler), {"outputs": [{"name": "transform"}]}
    columns = [tensor(name, "FP64", [4], COLUMNS[name].tolist()) for name in ("net debt", "age")]
    request = {**asked, "parameters": {"content_type": "pd"}, "inputs": columns}
    assert outputs(post(server, "/models/m/infer", request)) == {"transform": scaler.transform(COLUMNS).ravel().tolist()}
    wide = {**asked, "inputs": [tensor("x", "FP64", [1, 3], [1.0, 2.0, 3.0])]}
    text = "the rows have the shape [1, 3]: expected [-1, 2], as in the training"
    assert error(post(server, "/models/m/infer", wide)) == (400, text)


def test_settings_may_declare_what_a_model_does_not_say(tmp_path: Path) -> None:
    """Whether its texts miss None or NaN, for which it was fitted with both."""
    frame = pd.DataFrame({"age": [1.0, 5, 2, 8], "city": ["Ulm", None, np.nan, "Bern"]}, dtype=object)
    encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    model = make_pipeline(encoded, LogisticRegression()).fit(frame, [0, 1, 0, 1])
    inputs = [{"name": "age", "datatype": "FP64", "shape": [-1]}, {"name": "city", "datatype": "BYTES", "shape": [-1]}]
    server = serve_estimator(tmp_path, model, inputs=inputs)
    sent = [tensor("city", "BYTES", [2], ["Ulm", "Bern"]), tensor("age", "FP64", [2], [1.0, 8.0])]
    answer = post(server, "/models/m/infer", {"parameters": {"content_type": "pd"}, "inputs": sent})
    assert outputs(answer) == {"predict": model.predict(frame.iloc[[0, 3]]).tolist()}


def fit_with_texts() -> Any:
    encoded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    frame = pd.DataFrame({"age": [1.0, 5, 2, 8], "city": ["Ulm", "Bern", "Ulm", "Bern"]})
    return make_pipeline(encoded, LogisticRegression()).fit(frame, [0, 1, 0, 1])


def fit_with_an_array() -> Any:
    return LogisticRegression().fit(COLUMNS.to_numpy(), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("fit", "content_type", "known"),
    [
        (fit_with_an_array, None, [("x", "FP64", [1, 2])]),
        (fit_named, "pd", [("age", "FP64", [1]), ("net debt", "FP64", [1])]),
        (fit_with_texts, "pd", [("age", "FP64", [1]), ("city", "BYTES", [1])]),
        (fit_with_texts, None, []),
        (fit_with_an_array, "pd", []),
    ],
)
def test_the_example_has_what_the_model_knows_where_the_settings_declare_nothing(
    tmp_path: Path, fit: Any, content_type: str | None, known: list[Any]
) -> None:
    server = serve_estimator(tmp_path, fit(), parameters={} if content_type is None else {"content_type": content_type})
    server.load_sync("m")
    shown = get(server, "/models/m")[1]["inputs"]  # in MLServer there are none: requests may have other names
    assert [(each["name"], each["datatype"], [abs(size) for size in each["shape"]]) for each in shown] == known
    body = get(server, "/models/m/openapi.json")[1]["paths"]["/models/m/infer"]["post"]["requestBody"]
    assert "description" not in body  # nothing is to be declared in Python
    example = body["content"]["application/json"]["example"]
    if known:
        assert [(each["name"], each["datatype"], each["shape"]) for each in example["inputs"]] == known
        answer = post(server, "/models/m/infer", example)
        assert answer.status == 200, answer.body
        if content_type is None:  # and other names are taken as before
            other = {"inputs": [{**example["inputs"][0], "name": "predict"}]}
            assert json.loads(post(server, "/models/m/infer", other).body) == json.loads(answer.body)
            for array, shape in ((np.ones((1, 3)), [1, 3]), (np.ones(1), [1]), (np.ones((1, 1, 2)), [1, 1, 2])):
                expected = (400, f"the rows have the shape {shape}: expected [-1, 2], as in the training")
                assert error(ask(server, "m", predict=array)) == expected


def test_columns_for_lightgbm_come_in_the_order_of_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    many = pd.concat([COLUMNS] * 20, ignore_index=True)
    options = {"objective": "binary", "verbose": -1, "min_data_in_leaf": 1}
    lightgbm.train(options, lightgbm.Dataset(many, many["age"] > 3), 3).save_model(tmp_path / "model.bst")
    expected = lightgbm.Booster(model_file=tmp_path / "model.bst").predict(COLUMNS).tolist()
    write(tmp_path, {"name": "m", "implementation": "mlserver_lightgbm.LightGBMModel"})
    server = serve(tmp_path)
    for names in (("age", "net debt"), ("net debt", "age")):
        assert outputs(ask_frame(server, *names)) == {"predict": expected}
    assert error(ask_frame(server, "age", "x")) == (400, "the columns are ['age', 'x']: expected ['age', 'net_debt']")
    assert logged(caplog) == []


def test_a_class_of_ones_own(sums: Path) -> None:
    server = serve(sums)
    for name, way in ways_into(server).items():
        body = b'{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'
        answer = way(Request("POST", "/models/sums/infer", (), body))
        assert (name, answer.status, answer.body) == (
            name,
            200,
            b'{"model_name":"sums","outputs":[{"name":"total","shape":[],"datatype":"FP32","data":[21.0]}],"id":"7"}',
        )
    assert error(ask(server, "sums", x=[1.0, 2.0], y=[1.0])) == (400, "send one input")
    assert get(server, "/models/sums") == (200, {"name": "sums", "platform": "python", "inputs": [], "outputs": []})


def test_json_as_text(tmp_path: Path) -> None:
    write(tmp_path, {"name": "hello", "implementation": "jsonmodels.Hello"}, jsonmodels=HELLO)
    way, text = over_asgi(OIPApp(serve(tmp_path)), ""), '{"name": "Foo"}'

    def ask_with(shape: list[int]) -> Answer:
        body = json.dumps({"inputs": [tensor("echo", "BYTES", shape, [text])]}).encode()
        return way(Request("POST", "/models/hello/infer", (("user-agent", "curl/8"),), body))

    [output] = json.loads(ask_with([1]).body)["outputs"]  # the model says the length of the text
    assert (output["shape"], output["parameters"]) == ([1], {"content_type": "str"})
    assert json.loads(output["data"][0]) == {"asked": {"echo": {"name": "Foo"}}, "agent": "curl/8"}
    [output] = json.loads(ask_with([len(text)]).body)["outputs"]  # as MLServer's documentation does
    assert json.loads(output["data"][0])["asked"] == {"echo": {"name": "Foo"}}


@pytest.fixture
def seen(tmp_path: Path) -> InferenceServer:
    """A model that answers what it sees, and a function beside it."""
    text = """
from oip_asgi.mlserver import MLModel, types

class Seen(MLModel):
    async def predict(self, payload):
        seen = repr([(each.name, each.shape, each.data.root) for each in payload.inputs])
        return types.InferenceResponse(outputs=[types.ResponseOutput(name="seen", datatype="BYTES", shape=[1], data=[seen])])
"""
    write(tmp_path, {"name": "seen", "implementation": "models.Seen"}, models=text)
    server = serve(tmp_path)
    server.register("strict", lambda request: request.inputs, inputs=[TensorSpec("x", "BYTES", [-1])])
    return server


def test_texts_whose_shape_does_not_count_them(seen: InferenceServer) -> None:
    for shape, data, expected in (
        ([3], ["abc"], ([1], ["abc"])),
        ([1], "abc", ([1], ["abc"])),
        ([3], "abc", ([1], ["abc"])),
        ([2, 11], ["hello world", "b"], ([2], ["hello world", "b"])),
        ([2, 2], ["a", "b", "c", "d"], ([2, 2], ["a", "b", "c", "d"])),
        ([7], ["a" * 30_000], ([1], ["a" * 30_000])),
    ):
        sent = {"inputs": [tensor("x", "BYTES", shape, data), tensor("y", "BYTES", [2, 1], ["a", "b"]), tensor("z", "BYTES", [5], ["a"])]}
        found = [("x", *expected), ("y", [2, 1], ["a", "b"]), ("z", [1], ["a"])]
        for path in ("infer", "generate"):
            assert outputs(post(seen, f"/models/seen/{path}", sent)) == {"seen": [repr(found)]}
        if shape != [2, 2]:
            assert error(post(seen, "/models/strict/infer", {"inputs": sent["inputs"][:1]}))[0] == 400


def test_what_else_is_wrong_is_refused_as_ever(seen: InferenceServer) -> None:
    wrong: list[tuple[Any, str]] = [
        ([tensor("x", "FP32", [3], [1, 2])], "inputs[0] ('x'): data has 2 elements: expected 3"),
        ([tensor("x", "FP32", [1], 5)], "inputs[0] ('x'): data is an integer: expected 1 in a flat array"),
        ([tensor("x", "BYTES", [3], [5])], "inputs[0] ('x'): data[0] is an integer: expected a string for BYTES"),
        ([tensor("x", "BYTES", [3], "a"), tensor("y", "FP32", [3], [1])], "inputs[1] ('y'): data has 1 elements: expected 3"),
        ([tensor("x", "BYTES", [3], None)], "inputs[0] ('x'): data is missing"),
        ([tensor("x", "BYTES", [1], ["a"]), tensor("y", "BYTES", [2], "a" * 2**20)], "inputs[1] ('y'): data is a string: expected 2"),
        ([{"name": "x", "datatype": "BYTES", "data": "a"}], "inputs[0]: object missing required field shape"),
        ("x", "inputs: expected array, got str"),
    ]
    for inputs, text in wrong:
        status, found = error(post(seen, "/models/seen/infer", {"inputs": inputs}))
        assert (status, found[: len(text)]) == (400, text)


@pytest.fixture(params=["grpcio", "ASGI"])
def grpc_client(seen: InferenceServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "ASGI":
        yield ASGI_CLIENTS[request.param](seen)
        return
    with blocking(seen) as address:
        yield Client(address)


def test_texts_over_grpc_are_bytes_of_any_shape(grpc_client: Any) -> None:
    def answered(asked: Any, *raw: bytes) -> bytes:
        data: bytes = grpc_client.ask("ModelInfer", wire_request("seen", [asked], raw)).raw_output_contents[0][4:]
        return data

    sent = {"name": "x", "datatype": "BYTES", "shape": [3], "contents": {"bytes_contents": [b"abc"]}}
    wrong = {"name": "x", "datatype": "FP32", "shape": [3], "contents": {"fp32_contents": [1]}}
    found = repr([("x", [1], [b"abc"])]).encode()
    assert answered(sent) == found
    expected = "inputs[0] ('x'): contents.{}_contents has 1 elements: expected 3 for shape [3]"
    assert grpc_client.refusal("ModelInfer", wire_request("seen", [wrong])) == ("INVALID_ARGUMENT", expected.format("fp32"))
    assert grpc_client.refusal("ModelInfer", wire_request("strict", [sent])) == ("INVALID_ARGUMENT", expected.format("bytes"))
    # MLServer's client sends empty contents beside raw ones
    raw, empty = b"\3\0\0\0abc", {**sent, "shape": [1], "contents": {}}
    assert answered(empty, raw) == found
    for model, asked in (("seen", {**sent, "shape": [1]}), ("strict", empty)):
        code, text = grpc_client.refusal("ModelInfer", wire_request(model, [asked], [raw]))
        assert (code, "contents field must not be specified" in text) == ("INVALID_ARGUMENT", True)


def test_streams(tmp_path: Path) -> None:
    specs = {
        "inputs": [{"name": "prompt", "datatype": "BYTES", "shape": [1]}],
        "outputs": [{"name": "output", "datatype": "BYTES", "shape": [1]}],
    }
    write(tmp_path, {"name": "text", "implementation": "text_model.Words", **specs}, text_model=WORDS)
    server = serve(tmp_path)
    request = {"inputs": [tensor("prompt", "BYTES", [1], ["What is it"], "str")], "outputs": [{"name": "output"}]}
    for path in ("generate_stream", "infer_stream"):
        answer = post(server, f"/models/text/{path}", request)
        events = [json.loads(line.removeprefix("data: ")) for line in answer.body.decode().split("\n\n") if line]
        assert [event["outputs"][0]["data"] for event in events] == [["What"], ["is"], ["it"]]
    for path in ("infer", "generate"):  # which want one response
        assert outputs(post(server, f"/models/text/{path}", request)) == {"output": ["What is it"]}
    assert json.loads(post(server, "/models/text/generate", {"prompt": "What is it"}).body)["output"] == "What is it"
    [response] = list(server.infer_stream_sync("text", {"prompt": ["one"]}))
    assert response["output"].tolist() == [[b"one"]]
    assert get(server, "/models/text")[1]["inputs"] == specs["inputs"]


def test_content_types_and_a_codec_of_ones_own(tmp_path: Path) -> None:
    inputs = [
        {"name": "numbers", "datatype": "INT32", "shape": [2, 2], "parameters": {"content_type": "np"}},
        {"name": "text", "datatype": "BYTES", "shape": [11], "parameters": {"content_type": "str"}},
    ]
    write(tmp_path, {"name": "echo", "implementation": "runtime.Echo", "inputs": inputs}, runtime=ECHO)
    server = serve(tmp_path)
    sent = [tensor("numbers", "INT32", [2, 2], [1, 2, 3, 4]), tensor("text", "BYTES", [1], ["hello world"])]
    answer = outputs(post(server, "/models/echo/infer", {"inputs": sent}))
    assert (answer["numbers"], answer["text"]) == ([1, 2, 3, 4], ["hello world"])
    assert [json.loads(answer[f"{each['name']} seen"][0])["sent"] for each in sent] == sent
    assert json.loads(answer["text seen"][0])["decoded"] == "['hello world']"
    sent[1] |= {"shape": [11], "data": "hello world"}  # as MLServer's documentation does
    assert outputs(post(server, "/models/echo/infer", {"inputs": sent})) == answer
    own = [tensor("a", "UINT8", [2], [7, 8], "hex"), tensor("b", "BYTES", [1], ["0708"], "hex")]
    answer = outputs(post(server, "/models/echo/infer", {"inputs": own}))
    assert [json.loads(answer[f"{name} seen"][0])["decoded"] for name in "ab"] == [repr(b"\7\10")] * 2
    assert error(post(server, "/models/echo/infer", {"inputs": [tensor("a", "UINT8", [1], [7], "img")]})) == (
        400,
        "input 'a' has the unknown content_type 'img': expected one of np, str, base64, datetime, pd_json, hex",
    )
    assert get(server, "/models/echo")[1]["inputs"] == inputs


def test_arguments_that_are_decoded(tmp_path: Path) -> None:
    write(tmp_path, {"name": "asks", "implementation": "models.Questions"}, models=QUESTIONS)
    server = serve(tmp_path)

    def ask_with(*names: str) -> Answer:
        return post(server, "/models/asks/infer", {"inputs": [tensor(name, "BYTES", [2], ["a", "bc"]) for name in names]})

    assert json.loads(ask_with("questions", "context").body)["outputs"] == [tensor("output-0", "INT64", [2, 1], [2, 4], "np")]
    expected = "expected ['questions', 'context']"
    assert error(ask_with("x")) == (400, f"unknown inputs ['x']: {expected}")
    assert error(ask_with("questions")) == (400, f"missing inputs ['context']: {expected}")


def test_requests_share_calls(tmp_path: Path, iris: Any) -> None:
    server, rows = serve_estimator(tmp_path, iris, max_batch_size=5, max_batch_time=30), ROWS[::30]

    def ask_one(row: Any) -> Any:
        response = server.infer_sync("m", {"x": row[np.newaxis]}, outputs=["predict"], id=str(row[0]))
        return response.id, response["predict"].tolist()

    with ThreadPoolExecutor(5) as pool:  # the fifth fills the batch, which would wait for 30 seconds else
        answers = list(pool.map(ask_one, rows))
    assert answers == [(str(row[0]), [[label]]) for row, label in zip(rows, iris.predict(rows), strict=True)]
    [stats] = get(server, "/models/m/stats")[1]["model_stats"]
    assert [batch["batch_size"] for batch in stats["batch_stats"]] == [5]


def test_what_requests_ask_for_does_not_mix_in_a_batch(tmp_path: Path, iris: Any) -> None:
    server = serve_estimator(tmp_path, iris, max_batch_size=2, max_batch_time=30)
    with ThreadPoolExecutor(4) as pool:
        asked = ["predict", "predict_proba"] * 2
        responses = list(pool.map(lambda name: server.infer_sync("m", {"x": ROWS[:1]}, outputs=[name]), asked))
    assert [response.outputs[0].shape for response in responses] == [(1, 1), (1, 3)] * 2


def test_a_batch_has_no_headers_of_one_request(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"name": "who", "implementation": "models.Who", "max_batch_size": 2, "max_batch_time": 30},
        models="""
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceResponse

class Who(MLModel):
    async def predict(self, payload):
        rows = payload.inputs[0].shape[0]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("who", [str(payload.parameters.headers)] * rows)])
""".replace("from mlserver", "from oip_asgi.mlserver"),
    )
    app = OIPApp(serve(tmp_path))
    body = json.dumps({"inputs": [tensor("x", "FP32", [1], [1.0])], "parameters": {"headers": "of a client"}}).encode()
    with ThreadPoolExecutor(2) as pool:
        requests = [Request("POST", "/models/who/infer", (("x-user", user),), body) for user in ("alice", "bob")]
        answers = list(pool.map(over_asgi(app, ""), requests))
    assert [json.loads(answer.body)["outputs"][0]["data"] for answer in answers] == [["None"]] * 2


ANSWERS = """
from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.types import InferenceResponse, ResponseOutput


class Answers(MLModel):
    async def predict(self, payload):
        return InferenceResponse(outputs=[ResponseOutput(name="y", datatype={!r}, shape=[{}], data={})])
"""


def test_a_wrong_output_is_the_models_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def ask_for(datatype: str, *data: float) -> Answer:
        folder = tmp_path / datatype
        write(folder, {"name": "m", "implementation": "answers.Answers"}, answers=ANSWERS.format(datatype, len(data), [*data]))
        return ask(serve(folder), "m", x=[1.0])

    for answer, text in (
        (ask_for("FLOAT", 1.5), "'y': unknown datatype 'FLOAT'"),
        (ask_for("FP32", 1e300), "'y': [1e+300] cannot be FP32"),
    ):
        assert answer.status == 500
        assert f"TypeError: {text}" in caplog.text
    assert outputs(ask_for("BYTES")) == {"y": []}  # an output may be without texts


def test_a_parameter_may_have_any_name(sums: Path) -> None:
    for name in ("self", "content", "headers"):
        asked = {**tensor("x", "FP32", [2], [1, 2]), "parameters": {name: 1}}
        assert post(serve(sums), "/models/sums/infer", {"inputs": [asked], "parameters": {name: 1}}).status == 200


def test_links_are_followed_and_hidden_names_passed_over(sums: Path) -> None:
    (sums / "sums").rename(sums / ".2026")
    (sums / "sums").symlink_to(".2026")  # as Kubernetes mounts a ConfigMap
    (sums / "latest").symlink_to("sums")
    for name in ("again", "and", "over"):  # each way back leads to all others: followed blindly, they take for ever
        (sums / ".2026" / name).symlink_to("..")
    assert [model.name for model in serve(sums).models()] == ["sums"]


def test_a_model_tells_when_it_is_not_ready(tmp_path: Path) -> None:
    text = """
from oip_asgi.mlserver import MLModel

class Model(MLModel):
    async def load(self):
        return self.settings.parameters.extra["is_ready"]

    async def predict(self, payload):
        self.ready = False
"""
    for name in ("yes", "no"):
        write(tmp_path / name, {"implementation": "models.Model", "parameters": {"extra": {"is_ready": name == "yes"}}}, models=text)
    server = serve(tmp_path)
    assert get(server, "/models/no/ready")[0] == 503
    assert get(server, "/models/yes/ready")[0] == 200
    assert ask(server, "yes", x=[1.0]).status == 500
    assert get(server, "/models/yes/ready")[0] == 503


def test_where_calls_run(tmp_path: Path) -> None:
    text = """
import threading

from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.types import InferenceResponse, ResponseOutput

class Model(MLModel):
    async def load(self):
        self.thread = threading.get_ident()
        return True

    async def unload(self):
        (self.folder() / "unloaded").touch()
        return True

    def folder(self):
        from pathlib import Path
        return Path(self.settings.parameters.uri)

    async def predict(self, payload):
        same = self.thread == threading.get_ident()
        return InferenceResponse(outputs=[ResponseOutput(name="same", shape=[1], datatype="BOOL", data=[same])])
"""
    write(tmp_path, {"name": "model", "implementation": "models.Model"}, models=text)
    server = serve(tmp_path)

    async def call() -> Any:
        async with server.lifespan():
            return (await server.infer("model", {}))["same"].tolist()

    assert asyncio.run(call()) == [True]
    assert (tmp_path / "unloaded").exists()
