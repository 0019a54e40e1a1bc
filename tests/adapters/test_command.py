"""`python -m oip_asgi TARGET` without a process: what a target is, what is known of a model's file, and what a mistake is answered with."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import shlex
import socket
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc.aio
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from oip_asgi.__main__ import main
from tests.support.asking import ask, error, get, outputs
from tests.support.inside.command import describe_models, find_target
from tests.support.lifespan import Lifespan, live_through
from tests.support.mlserver_folders import ECHO, write
from tests.support.processes import ROOT
from tests.support.ways import Request, over_asgi

X, Y = load_iris(return_X_y=True)
NAMES = load_iris().target_names


def read(file: Path) -> InferenceServer:
    served = find_target(str(file), None, model_control=False).served
    assert isinstance(served, InferenceServer)
    return served


def printed(file: Path) -> list[str]:
    target = find_target(str(file), None, model_control=False)
    return list(describe_models(target.served, "http://h:1", has_key=False))


def answer_to_the_curl_line(server: InferenceServer, line: str) -> Any:
    words = shlex.split(line)
    path, body = words[words.index("curl") + 1], words[words.index("-d") + 1]
    return over_asgi(OIPApp(server), "")(Request("POST", path.removeprefix("http://h:1/v2"), (), body.encode()))


def test_a_classifier_that_was_fitted_with_an_array(tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=1000).fit(X, NAMES[Y])
    joblib.dump(model, tmp_path / "iris.joblib")
    server = read(tmp_path / "iris.joblib")
    response = server.infer_sync("iris", {"X": X[48:52]})
    assert response.as_("predict", list[str]) == ["setosa", "setosa", "versicolor", "versicolor"]
    assert np.allclose(response["predict_proba"], model.predict_proba(X[48:52]))
    assert error(ask(server, "iris", X=X[:1, :3]))[0] == 400
    assert error(ask(server, "iris", X=np.full((1, 4), np.nan))) == (400, "model 'iris' refused the request: Input X contains NaN.")
    first, page, curl = printed(tmp_path / "iris.joblib")
    assert first == "model 'iris': takes X FP64 [-1, 4]; returns predict BYTES [-1], predict_proba FP64 [-1, 3]"
    assert page == "page: http://h:1/v2/docs"
    answer = answer_to_the_curl_line(server, curl)
    assert (answer.status, outputs(answer)["predict"]) == (200, model.predict(np.zeros((1, 4))).tolist())
    labels = {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP64", "data": X[0].tolist()}]}
    labels["outputs"] = [{"name": "predict_proba", "parameters": {"classification": 1}}]
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/iris/infer", (), json.dumps(labels).encode()))
    assert outputs(answer)["predict_proba"][0].endswith(":setosa")


def test_the_guide_has_what_is_printed(tmp_path: Path) -> None:
    joblib.dump(LogisticRegression(max_iter=1000).fit(X, Y), tmp_path / "iris.joblib")
    guide = (ROOT / "examples/guide/command.md").read_text()
    assert "\n".join(printed(tmp_path / "iris.joblib")).replace("http://h:1", "http://127.0.0.1:8000") in guide


def test_an_estimator_that_was_fitted_with_a_frame_of_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"b": [1.0, 2, 3], "a": [3.0, 2, 1]})
    (tmp_path / "sum.pkl").write_bytes(pickle.dumps(LinearRegression().fit(frame, [5.0, 6, 7])))
    server = read(tmp_path / "sum.pkl")
    assert outputs(ask(server, "sum", a=np.array([3.0]), b=np.array([1.0]))) == {"predict": [pytest.approx(5)]}
    assert error(ask(server, "sum", a=np.array([np.nan]), b=np.array([1.0]))) == (
        400,
        "model 'sum' refused the request: Input X contains NaN.",
    )
    first, _, curl = printed(tmp_path / "sum.pkl")
    assert first == "model 'sum': takes b FP64 [-1], a FP64 [-1]; returns outputs that it does not declare"
    assert answer_to_the_curl_line(server, curl).status == 200


def test_a_pipeline_with_columns_of_text_takes_a_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame({"town": ["a", "b", "a"], "area": [1.0, 2, 3]})
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    joblib.dump(make_pipeline(columns, LinearRegression()).fit(frame, [11.0, 22, 13]), tmp_path / "rent.joblib")
    server = read(tmp_path / "rent.joblib")
    assert server.infer_sync("rent", frame[["area", "town"]])["predict"].tolist() == pytest.approx([11, 22, 13])
    assert error(ask(server, "rent", area=np.array([1.0])))[0] == 400
    first, page, curl = printed(tmp_path / "rent.joblib")
    assert first == "model 'rent': takes town BYTES [-1], area FP64 [-1]; returns outputs that it does not declare"
    assert page == "page: http://h:1/v2/docs"
    assert outputs(answer_to_the_curl_line(server, curl)) == {"predict": [pytest.approx(10)]}  # of "a", which it knows


def houses() -> pd.DataFrame:
    frame = pd.DataFrame({"zip": ["01234", "04103", "99999"] * 4, "size": np.arange(12.0), "built": np.arange(12)})
    frame.loc[::5, "zip"] = np.nan  # as `read_csv` has it; the oldest SimpleImputer takes no None
    return frame


def encode(column: str, **options: Any) -> Any:
    steps = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(**options))
    return make_column_transformer((steps, [column]), remainder="passthrough")


SERVED_FROM_FILES: dict[str, Any] = {
    "texts": make_pipeline(encode("zip", handle_unknown="ignore"), LinearRegression()).fit(houses(), np.arange(12.0)),
    "known texts": make_pipeline(encode("zip"), LogisticRegression()).fit(houses(), ["a", "b"] * 6),
    "any": HistGradientBoostingRegressor(max_iter=2).fit(houses()[["size", "built"]], np.arange(12.0)),
    "numbers": LinearRegression().fit(houses()[["size", "built"]], np.arange(12.0)),
    "an array": HistGradientBoostingRegressor(max_iter=2).fit(X, Y),
    "a search": GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2).fit(X, Y),
}


@pytest.mark.parametrize("name", SERVED_FROM_FILES)
def test_what_is_declared_is_what_register_declares(name: str, tmp_path: Path) -> None:
    estimator = SERVED_FROM_FILES[name]
    joblib.dump(estimator, tmp_path / "m.joblib")
    server = InferenceServer()
    server.register("m", estimator.predict)
    registered, of_file = (get(each, "/models/m")[1] for each in (server, read(tmp_path / "m.joblib")))
    assert registered["inputs"]
    assert of_file["inputs"] == registered["inputs"]
    assert of_file.get("parameters") == registered.get("parameters")
    assert answer_to_the_curl_line(read(tmp_path / "m.joblib"), printed(tmp_path / "m.joblib")[-1]).status == 200


def test_a_model_that_failed_to_load_says_so() -> None:
    server = InferenceServer()
    server.register("up", load=lambda: 1 / 0)
    server.start()
    assert next(describe_models(server, "http://h:1", has_key=False)) == "model 'up' is not ready: its load failed, see the server's log"
    server.stop()


def test_files_of_lightgbm(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame({"town": ["a", "b"] * 50, "area": np.arange(100.0)})
    target = frame["area"] + frame["town"].map({"a": 0, "b": 500})
    options = {"objective": "regression", "verbose": -1}
    booster = lightgbm.train(options, lightgbm.Dataset(frame.astype({"town": "category"}), target), 20)
    booster.save_model(tmp_path / "rent.txt")
    predicted = read(tmp_path / "rent.txt").infer_sync("rent", frame[["area", "town"]])["predict"]
    assert np.allclose(predicted, booster.predict(frame.astype({"town": "category"})))
    of_array = lightgbm.train(options, lightgbm.Dataset(X, Y), 5)
    of_array.save_model(tmp_path / "iris.bst")
    assert np.allclose(read(tmp_path / "iris.bst").infer_sync("iris", {"X": X})["predict"], of_array.predict(X))
    assert printed(tmp_path / "iris.bst")[0] == "model 'iris': takes X FP64 [-1, 4]; returns outputs that it does not declare"


def test_texts_where_a_file_of_lightgbm_has_numbers_as_categories(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame({"town": ["a", "b"] * 50, "level": [10, 10, 20, 20] * 25, "area": np.arange(100.0)})
    fitted = frame.astype({"town": "category", "level": "category"})
    target = frame["level"] + frame["town"].map({"a": 0, "b": 500})
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(fitted, target), 20)
    booster.save_model(tmp_path / "rent.txt")
    server = read(tmp_path / "rent.txt")
    assert np.allclose(server.infer_sync("rent", frame.astype({"level": "category"}))["predict"], booster.predict(fitted))
    for rows in (frame.astype({"level": str}), frame.astype({"level": str}).astype("category").astype({"area": float})):
        with pytest.raises(InferenceError, match=r"^input 'level' has datatype BYTES: expected INT64") as caught:
            server.infer_sync("rent", rows)
        assert caught.value.status == 400
    assert answer_to_the_curl_line(server, printed(tmp_path / "rent.txt")[-1]).status == 200
    assert error(ask(server, "rent", town=["c"], level=[10], area=[1.0]))[0] == 400


@pytest.mark.parametrize("name", ["iris.json", "iris.ubj", "iris.bst"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the suffix .bst
def test_files_of_xgboost(tmp_path: Path, name: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=3).fit(X, Y)
    model.save_model(tmp_path / name)
    assert printed(tmp_path / name)[0] == "model 'iris': takes X FP64 [-1, 4]; returns predict INT64 [-1], predict_proba FP64 [-1, 3]"
    response = read(tmp_path / name).infer_sync("iris", {"X": X})
    assert np.array_equal(response["predict"], model.predict(X))


def field(number: int, value: int | bytes) -> bytes:
    """A field of protobuf, shorter than 128 bytes, as ONNX's files have them."""
    return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value


def tensor_type(name: bytes) -> bytes:
    shape = field(1, field(2, b"rows")) + field(1, field(1, 2))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def test_a_file_of_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    node = field(1, b"x") + field(2, b"y") + field(4, b"Neg")
    graph = field(1, node) + field(2, b"g") + field(11, tensor_type(b"x")) + field(12, tensor_type(b"y"))
    (tmp_path / "minus.onnx").write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    assert printed(tmp_path / "minus.onnx")[0] == "model 'minus': takes x FP32 [-1, 2]; returns y FP32 [-1, 2]"
    answer = ask(read(tmp_path / "minus.onnx"), "minus", x=np.array([[1, 2]], "f4"))
    assert outputs(answer) == {"y": [-1.0, -2.0]}
    (tmp_path / "minus.onnx").write_bytes(b"no model")
    with pytest.raises(Exception, match=r"minus\.onnx: cannot be read"):
        read(tmp_path / "minus.onnx")


def test_a_folder_of_mlserver(tmp_path: Path) -> None:
    write(tmp_path / "echo", {"implementation": "models.Echo"}, models=ECHO)
    (tmp_path / "settings.json").write_text('{"server_name": "ours", "grpc_port": 7, "metrics_port": 8}')
    target = find_target(str(tmp_path), None, model_control=True)
    assert target.settings is not None
    assert (target.settings.server_name, target.settings.grpc_port, target.settings.metrics_port) == ("ours", 7, 8)
    assert [model.name for model in target.served.models()] == ["echo"]


def test_a_server_and_an_application_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_module.py").write_text(
        "from starlette.applications import Starlette\nfrom oip_asgi import InferenceServer\n"
        "server, app = InferenceServer('s'), Starlette()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = find_target("served_module:server", None, model_control=False).served
    assert repr(server) == "<InferenceServer 's': no models>"
    assert type(find_target("served_module:app", None, model_control=False).served).__name__ == "Starlette"
    del sys.modules["served_module"]


@pytest.mark.parametrize(
    ("made", "prefix"),
    [
        ("app = FastAPI(); OIPApp(server).install(app, '/api/v2')", "/api/v2"),
        ("app = Starlette(); app.mount('/m', OIPApp(server))", "/m"),
        ("app = OIPMiddleware(Starlette(), server, '/v2')", "/v2"),
        ("app = OIPApp(server, path='/v2')", "/v2"),
        ("app = Starlette()", None),
        ("app, other = OIPApp(server, path='/v2'), InferenceServer()", None),  # which of the two?
    ],
)
def test_the_server_in_an_application_is_found(made: str, prefix: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_in.py").write_text(
        "from fastapi import FastAPI\nfrom starlette.applications import Starlette\nfrom oip_asgi import *\n"
        f"server = InferenceServer('s')\n{made}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    target = find_target("found_in:app", None, model_control=False)
    del sys.modules["found_in"]
    if prefix is None:
        assert target.server is None
        return
    assert target.server is not None
    target.server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
    _, page, curl = describe_models(target.server, "http://h:1", has_key=False, prefix=target.prefix)
    assert page == f"page: http://h:1{prefix}/docs"
    path, body = shlex.split(curl)[2], shlex.split(curl)[-1]
    assert outputs(over_asgi(target.served, "")(Request("POST", path.removeprefix("http://h:1"), (), body.encode()))) == {"output_0": [0.0]}


@pytest.fixture(autouse=True)
def without_logging_of_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set for the process, and would write into the closed standard error of this test when another one logs."""
    monkeypatch.setattr("uvicorn.Config.configure_logging", lambda _: None)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mistaken.py").write_text(
        "from flask import Flask\nfrom starlette.applications import Starlette\nfrom oip_asgi import InferenceServer\n"
        "server, app, flask_app, rows = InferenceServer(), Starlette(), Flask('x'), []\ndef make(): pass\n"
    )
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "plain.py").write_text("rows = []\n")
    (tmp_path / "notes.txt").write_text("hello")
    joblib.dump({"weights": 1}, tmp_path / "dict.joblib")
    (tmp_path / "cut.joblib").write_bytes(b"\x80\x04")
    (tmp_path / "page.joblib").write_bytes(b"<html>")
    joblib.dump(LinearRegression().fit(np.ones((1, 900)), [1.0]), tmp_path / "half.joblib")
    (tmp_path / "half.joblib").write_bytes((tmp_path / "half.joblib").read_bytes()[:3000])
    (tmp_path / "empty").mkdir()
    joblib.dump(LinearRegression().fit(X, Y), tmp_path / "line.joblib")
    for name in ("net.pt", "net.Keras", "net.safetensors"):
        (tmp_path / name).write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)


OF_JOBLIB = "expected a whole file that joblib.dump or pickle has written, with the versions of the libraries that are here"
OF_CODE = (
    "the command has no library that runs this: export it to ONNX, or load it in a module, and register a function with server.register"
)
OF_A_MODEL = "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["nothing.joblib"],
            "nothing.joblib: there is no such file or folder: expected module:server, module:app, a folder of MLServer, or a file: "
            + OF_A_MODEL,
        ),
        (["mistaken.py"], "mistaken.py: for an application or a server, write module:name, such as mistaken:app"),
        (["notes.txt"], f"notes.txt: this is no file of a model: expected {OF_A_MODEL}"),
        (["net.pt"], f"net.pt: {OF_CODE}: expected {OF_A_MODEL}"),
        (["net.Keras"], f"net.Keras: {OF_CODE}: expected {OF_A_MODEL}"),
        (["net.safetensors"], f"net.safetensors: {OF_CODE}: expected {OF_A_MODEL}"),
        (["dict.joblib"], "dict.joblib: holds a dict: expected an estimator with predict, such as scikit-learn has them"),
        (["cut.joblib"], f"cut.joblib: joblib cannot read it (EOFError: ): {OF_JOBLIB}"),
        (["page.joblib"], f"page.joblib: joblib cannot read it (KeyError: 60): {OF_JOBLIB}"),
        (["half.joblib"], "half.joblib: joblib cannot read it (ValueError: EOF: reading array data, "),
        (["plain:app"], "plain:app: there is no 'app' in it, and nothing else that is an InferenceServer or an application of ASGI"),
        (["empty"], "empty: there is no model-settings.json in this folder or below it"),
        (["no_module:app"], "no_module:app: there is no module 'no_module' here: start the command in the folder where it is"),
        (["mistaken:sever"], "mistaken:sever: there is no 'sever': did you mean server or app?"),
        (["mistaken:rows"], "mistaken:rows is a list: expected an InferenceServer or an application of ASGI"),
        (
            ["mistaken:make"],
            "mistaken:make is a function: give a name to what it makes, such as app = make(), and write that name",
        ),
        (
            ["mistaken:flask_app"],
            "mistaken:flask_app is a Flask, an application of WSGI, and this serves ASGI: run gunicorn --threads 8 mistaken:flask_app",
        ),
        (
            ["mistaken:app", "--api-key", "k"],
            "--api-key is not for an application, which has its own: write it there, or name its InferenceServer as the target",
        ),
        (["mistaken:server", "--name", "n"], "--name is for a file with one model"),
        (["mistaken:server", "--model-control"], "--model-control is for a file or folder: write InferenceServer(model_control=True)"),
        (["line.joblib", "--api-key", ""], "--api-key has to be ASCII, as the value of a header, and not empty"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_was_expected(arguments: list[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert str(caught.value.code).startswith(text) if text.endswith((": ", ", ")) else caught.value.code == text


@pytest.mark.usefixtures("module")
def test_what_a_module_raises_keeps_its_traceback() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        main(["broken:app"])


@pytest.mark.usefixtures("module")
def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("--port", "--grpc", "--metrics"):
            with pytest.raises(SystemExit) as caught:
                main(["line.joblib", "--port", "0", option, str(port)])
            assert caught.value.code == f"port {port} of 127.0.0.1 cannot be opened: Address already in use"


def test_the_help_says_what_a_pickle_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "To read a .joblib or .pkl is to run what is in it" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as caught:
        main(["x", "--port", "70000"])
    assert caught.value.code == 2
    assert "argument --port: invalid port value: '70000'" in capsys.readouterr().err


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("package", "option", "install"),
    [
        ("fastapi", ["--api-key", "k"], "fastapi"),
        ("google.protobuf", ["--grpc", "0"], "grpcio protobuf"),
        ("prometheus_client", ["--metrics", "0"], "prometheus_client"),
    ],
)
def test_what_an_option_needs_is_named_before_anything_is_loaded(
    package: str, option: list[str], install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it could not be found
    with pytest.raises(SystemExit) as caught:
        main(["line.joblib", *option])
    assert caught.value.code == f"{option[0]} needs what is not installed: pip install {install}"


@pytest.mark.parametrize("key", [None, "s3cret"])
def test_the_command_opens_what_it_is_told_and_prints_it(
    key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: the server is uvicorn's but for its loop, which asks the application itself."""
    joblib.dump(LogisticRegression(max_iter=1000).fit(X, Y), tmp_path / "iris.joblib")
    codes: list[int] = []

    async def talk(app: Any) -> None:
        async with Lifespan(app) as lifespan:
            assert await lifespan.say("startup") == "lifespan.startup.complete"
            await look()
            assert await lifespan.say("shutdown") == "lifespan.shutdown.complete"
            await lifespan.task

    async def look() -> None:
        address = re.search(r"gRPC: (\S+)", said := capsys.readouterr().out)
        metrics = re.search(r"(http://\S+/metrics)", said)
        assert address is not None
        assert metrics is not None
        assert "/v2/docs" in said
        assert "iris" in said
        numbers = await asyncio.to_thread(lambda: urllib.request.urlopen(metrics[1]).read())
        assert b"oip_" in numbers
        metadata = [("x-api-key", key)] if key else []
        for sent in ((), metadata):
            async with grpc.aio.insecure_channel(address[1]) as channel:
                describe: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
                try:
                    await describe(b"\x0a\x04iris", metadata=sent)
                    codes.append(0)
                except grpc.aio.AioRpcError as refused:
                    codes.append(refused.code().value[0])

    def run(self: Any, sockets: Any) -> None:
        asyncio.run(talk(self.config.app))
        self.started = True

    monkeypatch.setattr("uvicorn.Server.run", run)
    ports = ["--port", "0", "--grpc", "0", "--metrics", "0"]
    main([str(tmp_path / "iris.joblib"), *ports, *([] if key is None else ["--api-key", key])])
    assert codes == ([0, 0] if key is None else [16, 0])


def test_an_application_tells_of_its_models_when_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "told_shop.py").write_text(
        "from starlette.applications import Starlette\n"
        "from oip_asgi import InferenceServer, OIPApp\n"
        "server = InferenceServer()\n"
        "server.register('double', lambda x: x)\n"
        "app = Starlette()\n"
        "OIPApp(server).install(app, '/v2')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sent: list[Any] = []

    def run(self: Any, sockets: Any) -> None:
        sent.extend(asyncio.run(live_through(self.config.app)))
        self.started = True

    monkeypatch.setattr("uvicorn.Server.run", run)
    main(["told_shop:app", "--port", "0"])
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    said = capsys.readouterr().out
    assert "/v2/docs" in said
    assert "double" in said


@pytest.mark.parametrize("is_file", [True, False])
def test_reload_watches_the_folder_of_a_file_and_all_below_a_module(is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    fake = ModuleType("watchfiles")
    fake.__dict__.update(
        DefaultFilter=lambda: "all", PythonFilter=lambda: "python", run_process=lambda path, **options: watched.append((path, options))
    )
    monkeypatch.setitem(sys.modules, "watchfiles", fake)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "iris.joblib"
    file.write_bytes(b"")
    main([str(file) if is_file else "shop:app", "--reload"])
    [(path, options)] = watched
    assert path == tmp_path.resolve()
    chosen = options["watch_filter"]
    assert ([chosen(1, str(file.resolve())), chosen(1, "other")] == [True, False]) if is_file else chosen == "python"


def test_reload_without_watchfiles_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(SystemExit, match=r"--reload needs watchfiles: pip install watchfiles"):
        main(["shop:app", "--reload"])
