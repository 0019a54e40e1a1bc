"""`python -m oip_asgi TARGET` without a process: what a target is, what is known of a model's file, and what a mistake is answered with."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import shlex
import socket
import sys
import traceback
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import joblib
import numpy as np
import pandas as pd
import pytest
import uvicorn
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from uvicorn.importer import import_from_string

from oip_asgi import InferenceError, InferenceServer, OIPApp
from oip_asgi.__main__ import main
from tests.support.asking import ask, error, get, outputs
from tests.support.inside.command import describe_models, find_target
from tests.support.lifespan import Lifespan
from tests.support.mlserver_folders import ECHO, write
from tests.support.processes import ROOT, free_port
from tests.support.ways import Request, over_asgi

X, Y = load_iris(return_X_y=True)
NAMES = load_iris().target_names


def read(file: Path) -> InferenceServer:
    return find_target(str(file), None, model_control=False)


def printed(file: Path) -> list[str]:
    return list(describe_models(read(file), "http://h:1", has_key=False))


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
    estimator, file = SERVED_FROM_FILES[name], tmp_path / "m.pkl"
    file.write_bytes(pickle.dumps(estimator))
    server = InferenceServer()
    server.register("m", estimator.predict)
    registered, of_file = (get(each, "/models/m")[1] for each in (server, read(file)))
    assert registered["inputs"]
    assert of_file["inputs"] == registered["inputs"]
    assert of_file.get("parameters") == registered.get("parameters")
    first, _, curl = printed(file)
    assert answer_to_the_curl_line(read(file), curl).status == 200
    if name == "numbers":
        assert first == "model 'm': takes size FP64 [-1], built FP64 [-1]; returns outputs that it does not declare"
        assert error(ask(read(file), "m", size=[np.nan], built=[1])) == (400, "model 'm' refused the request: Input X contains NaN.")


def test_where_nothing_is_declared_no_request_is_guessed(tmp_path: Path) -> None:
    texts = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["good", "bad", "fine"], [1, 0, 1])
    joblib.dump(texts, tmp_path / "texts.joblib")
    first, _ = printed(tmp_path / "texts.joblib")  # and no line for curl
    assert first == "model 'texts': takes inputs that it does not declare; returns predict INT64 [-1], predict_proba FP64 [-1, 2]"
    assert outputs(ask(read(tmp_path / "texts.joblib"), "texts", X=["good"]))["predict"] == [1]


def test_what_else_is_printed(tmp_path: Path) -> None:
    joblib.dump(LogisticRegression(max_iter=1000).fit(X, Y), tmp_path / "iris.joblib")
    guide = (ROOT / "examples/guide/command.md").read_text()
    assert "\n".join(printed(tmp_path / "iris.joblib")).replace("http://h:1", "http://127.0.0.1:8000") in guide
    server = InferenceServer()
    server.register("up", load=lambda: 1 / 0)
    server.start()
    assert next(describe_models(server, "http://h:1", has_key=False)) == "model 'up' is not ready: load failed, see the server's log"
    server.stop()


def test_files_of_lightgbm(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame({"town": ["a", "b"] * 50, "level": [10, 10, 20, 20] * 25, "area": np.arange(100.0)})
    fitted = frame.astype({"town": "category", "level": "category"})
    target = frame["level"] + frame["town"].map({"a": 0, "b": 500})
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(fitted, target), 20)
    booster.save_model(tmp_path / "rent.txt")
    server = read(tmp_path / "rent.txt")
    for rows in (frame[["area", "level", "town"]], frame.astype({"level": "category"})):
        assert np.allclose(server.infer_sync("rent", rows)["predict"], booster.predict(fitted))
    # texts where the file has numbers as categories
    for rows in (frame.astype({"level": str}), frame.astype({"level": str}).astype("category").astype({"area": float})):
        with pytest.raises(InferenceError, match=r"^input 'level' has datatype BYTES: expected INT64") as caught:
            server.infer_sync("rent", rows)
        assert caught.value.status == 400
    assert answer_to_the_curl_line(server, printed(tmp_path / "rent.txt")[-1]).status == 200
    assert error(ask(server, "rent", town=["c"], level=[10], area=[1.0]))[0] == 400
    of_array = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, Y), 5)
    of_array.save_model(tmp_path / "iris.bst")
    assert np.allclose(read(tmp_path / "iris.bst").infer_sync("iris", {"X": X})["predict"], of_array.predict(X))
    assert printed(tmp_path / "iris.bst")[0] == "model 'iris': takes X FP64 [-1, 4]; returns outputs that it does not declare"


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
    with pytest.raises(SystemExit, match=r"minus\.onnx: it cannot be read"):
        read(tmp_path / "minus.onnx")


class Session:
    """As ONNX Runtime has it, of a model that gives its texts back."""

    def __init__(self, file: str, providers: list[str]) -> None:
        assert file.endswith("texts.onnx")

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="text", type="tensor(string)", shape=["rows", 2])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="same", type="tensor(string)", shape=["rows", 2])]

    def run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        assert all(type(text) is str for text in feed["text"].ravel())
        return [feed["text"]]


def test_texts_of_a_file_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(InferenceSession=Session, get_available_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)  # as if it were the module
    (tmp_path / "texts.onnx").write_bytes(b"")
    server = read(tmp_path / "texts.onnx")
    rows = np.array([["a", "b"], ["\u00e9", ""]], object)
    assert outputs(ask(server, "texts", text=rows)) == {"same": ["a", "b", "\u00e9", ""]}
    with pytest.raises(InferenceError, match=r"'text': element 1 is b'\\xff', which is not UTF-8") as caught:
        server.infer_sync("texts", {"text": np.array([[b"a", b"\xff"]], object)})
    assert caught.value.status == 400
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    with pytest.raises(SystemExit, match=r"texts\.onnx: it cannot be read .*onnxruntime.* install them"):
        read(tmp_path / "texts.onnx")


def start(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """The options with which uvicorn is started."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn.main, "callback", lambda **options: given.update(options))
    monkeypatch.setenv("OIP_ASGI_COMMAND", "")  # is put back after the test
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert not caught.value.code
    return given


def test_a_folder_of_mlserver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "echo", {"implementation": "models.Echo"}, models=ECHO)
    port = free_port()
    (tmp_path / "settings.json").write_text(f'{{"server_name": "ours", "host": "127.0.0.1", "http_port": {port}}}')
    server = find_target(str(tmp_path), None, model_control=True)
    assert repr(server).startswith("<InferenceServer 'ours'")
    assert [model.name for model in server.models()] == ["echo"]
    given = start(monkeypatch, str(tmp_path))
    assert (given["host"], given["port"], given["reload"], given["workers"]) == ("127.0.0.1", port, False, None)
    given = start(monkeypatch, str(tmp_path), "--host", "localhost", "--port", "0", "--timeout-keep-alive", "7")
    assert (given["host"], given["timeout_keep_alive"]) == ("localhost", 7)
    assert given["port"] not in (0, port)
    (tmp_path / "settings.json").write_text("{}")
    assert start(monkeypatch, str(tmp_path), "--port", "0")["host"] == "127.0.0.1"
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(SystemExit, match=r"settings\.json: "):
        main([str(tmp_path)])


def test_a_port_that_is_not_opened_beside_a_socket_may_be_that_of_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib.dump(LinearRegression().fit(X, Y), tmp_path / "line.joblib")
    port, socket_file = str(free_port()), str(tmp_path / "socket")
    given = start(monkeypatch, str(tmp_path / "line.joblib"), "--uds", socket_file, "--port", port, "--grpc", port)
    assert given["uds"] == socket_file


@pytest.mark.parametrize("kind", ["file", "folder", "module"])
def test_reload_watches_the_folder_of_a_file_and_a_folder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib.dump(LinearRegression().fit(X, Y), tmp_path / "line.joblib")
    write(tmp_path / "models/echo", {"implementation": "models.Echo"}, models=ECHO)
    (tmp_path / "reloaded.py").write_text("from oip_asgi import InferenceServer\nserver = InferenceServer('s')\n")
    monkeypatch.syspath_prepend(tmp_path)
    target = {"file": str(tmp_path / "line.joblib"), "folder": str(tmp_path / "models"), "module": "reloaded:server"}[kind]
    given = start(monkeypatch, target, "--port", "0", "--reload")
    watched = {
        "file": ([str(tmp_path)], ["line.joblib"]),
        "folder": ([target], ["models/*", "models/*/*", "models/*/*/*"]),
        "module": ([], []),
    }[kind]
    assert (list(given["reload_dirs"]), list(given["reload_includes"]), given["factory"]) == (*watched, True)
    app = import_from_string(given["app"])()  # as uvicorn does it in a process of its own
    assert "/v2" in {route.path for route in app.routes}


def test_mistakes_in_a_process_of_uvicorn_are_one_line_too_and_those_of_a_module_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = start(monkeypatch, "nothing.joblib", "--port", "0", "--reload")
    with pytest.raises(SystemExit, match=r"^nothing\.joblib: there is no such file or folder"):
        import_from_string(given["app"])()
    (tmp_path / "adds.py").write_text("1 + 'a'\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = start(monkeypatch, "adds:server", "--port", "0", "--reload")
    with pytest.raises(RuntimeError, match="adds:server cannot be imported") as caught:
        import_from_string(given["app"])()
    assert 'adds.py", line 1' in "".join(traceback.format_exception(caught.value))


@pytest.fixture(autouse=True)
def without_logging_of_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set for the process, and would write into the closed standard error of this test when another one logs."""
    monkeypatch.setattr("uvicorn.Config.configure_logging", lambda _: None)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mistaken.py").write_text(
        "from starlette.applications import Starlette\nfrom oip_asgi import InferenceServer\n"
        "server, app, rows = InferenceServer(), Starlette(), []\n"
    )
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "notes.txt").write_text("hello")
    joblib.dump({"weights": 1}, tmp_path / "dict.joblib")
    (tmp_path / "cut.joblib").write_bytes(b"\x80\x04")
    (tmp_path / "page.joblib").write_bytes(b"<html>")
    joblib.dump(LinearRegression().fit(np.ones((1, 900)), [1.0]), tmp_path / "half.joblib")
    (tmp_path / "half.joblib").write_bytes((tmp_path / "half.joblib").read_bytes()[:3000])
    (tmp_path / "empty").mkdir()
    (tmp_path / "keys.env").write_text("# keys\nexport OIP_API_KEY=s3cret\n")
    joblib.dump(LinearRegression().fit(X, Y), tmp_path / "line.joblib")
    for name in ("net.pt", "net.Keras", "net.safetensors"):
        (tmp_path / name).write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)


WHOLE = (
    "expected a whole file, and here the libraries, classes and functions with which it was written, in their versions: install them, or "
    "start this where they can be imported"
)
OF_CODE = (
    "the command has no library that runs this: export it to ONNX, or load it in a module, and register a function with server.register"
)
START = "Start the command in the folder where the module is"
OF_A_MODEL = "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"


MISTAKES = {
    "nothing.joblib": "there is no such file or folder: expected module:server, a folder of MLServer, or a file: " + OF_A_MODEL,
    "mistaken.py": f"for a server, write module:name, such as app:server: expected {OF_A_MODEL}",
    "notes.txt": f"this is no file of a model: expected {OF_A_MODEL}",
    **dict.fromkeys(("net.pt", "net.Keras", "net.safetensors"), f"{OF_CODE}: expected {OF_A_MODEL}"),
    "dict.joblib": "it holds a value of the type dict: expected an estimator with predict",
    "cut.joblib": f"it cannot be read (EOFError: ): {WHOLE}",
    "page.joblib": f"it cannot be read (KeyError: 60): {WHOLE}",
    "half.joblib": "it cannot be read (ValueError: EOF: reading array data, ",
    "empty": "there is no model-settings.json in this folder or below it",
    "no_module:app": f'Could not import module "no_module". {START}',
    "mistaken:sever": f'Attribute "sever" not found in module "mistaken". {START}',
    "mistaken:rows": "has the type list: expected an InferenceServer; for an ASGI application, run uvicorn mistaken:rows",
    "mistaken:app": "has the type Starlette: expected an InferenceServer; for an ASGI application, run uvicorn mistaken:app",
}
WRONG_OPTIONS = {
    "line.joblib --port 70000": "port 70000: expected 0 to 65535",
    "line.joblib --workers 2 --grpc 0": "the ports of --grpc and --metrics are for one process, and cannot be shared by --workers: "
    "leave out one or the other",
    "mistaken:server --name n": "--name is for a file with one model",
    "mistaken:server --model-control": "--model-control is for a file or folder: write InferenceServer(model_control=True)",
    "line.joblib --api-key ''": "--api-key has to be ASCII, as the value of a header, and not empty",
    "line.joblib --env-file keys.env": "--env-file is read too late for OIP_API_KEY: set it in the environment",
    "line.joblib --grpc 0 --ssl-certfile keys.env": "--grpc has no TLS, so the key and all data would be readable: leave out "
    "--ssl-certfile, or write an application with install(..., grpc=True)",
    "line.joblib --port 0 --grpc 5001 --metrics 5001": "--port, --grpc and --metrics have to be different ports",
}


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("line", [*MISTAKES, *WRONG_OPTIONS])
def test_a_mistake_is_one_line_that_says_what_was_expected(line: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(line if "--port" in line else f"{line} --port 0"))
    expected = WRONG_OPTIONS.get(line) or f"{line}{' ' if line in ('mistaken:rows', 'mistaken:app') else ': '}{MISTAKES[line]}"
    assert str(caught.value.code).startswith(expected) if expected.endswith((": ", ", ")) else caught.value.code == expected


@pytest.mark.usefixtures("module")
def test_a_key_that_is_empty_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIP_API_KEY", "")
    with pytest.raises(SystemExit) as caught:
        main(["line.joblib", "--port", "0"])
    assert caught.value.code == "the environment variable OIP_API_KEY is empty: expected a key, or unset it to serve without one"


@pytest.mark.usefixtures("module")
def test_what_a_module_raises_keeps_its_traceback_and_a_taken_port_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        main(["broken:app", "--port", "0"])
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
        main(["x", "--grpc", "70000"])
    assert caught.value.code == 2
    assert "Invalid value for '--grpc'" in capsys.readouterr().err


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
        main(["line.joblib", "--port", "0", *option])
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

    def run(self: Any, sockets: Any = None) -> None:
        asyncio.run(talk(self.config.app))
        self.started = True

    monkeypatch.setattr("uvicorn.Server.run", run)
    ports = ["--port", "0", "--grpc", "0", "--metrics", "0"]
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "iris.joblib"), *ports, *([] if key is None else ["--api-key", key])])
    assert not ended.value.code
    assert codes == ([0, 0] if key is None else [16, 0])
