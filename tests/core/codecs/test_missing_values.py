"""Missing values: gaps in columns of objects, and None in lists. A model gets what it was fitted with, over every way in."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from oip_asgi.codecs import PandasCodec
from oip_asgi.specs import specs_of
from tests.support.asking import get, outputs
from tests.support.ways import Answer, Headers, Request, over_asgi

TEXT = "city,member,since\nBonn,True,1.5\n,,2\nRome,False,\nBonn,True,3\n,False,1\nRome,,2\n"
HOME = [0, 1, 0, 0, 1, 1]
OBJECTS: dict[str, list[Any]] = {"city": [None, "Bonn", "Oslo", None], "member": [None, True, None, False]}
GAPS = pd.DataFrame({**{name: pd.Series(values, dtype=object) for name, values in OBJECTS.items()}, "since": [1, 2, 3, np.nan]})


def read_csv(*, with_none: bool = False) -> Any:
    frame = pd.read_csv(io.StringIO(TEXT))
    objects = frame[["city", "member"]].astype(object)
    return frame.assign(**objects.where(objects.notna(), None)) if with_none else frame


def fit(frame: Any) -> Any:
    """The city goes as it is, so that NaN and None are two categories of it; gaps of the others are filled, which knows NaN only."""
    fill = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    columns = [(OneHotEncoder(handle_unknown="ignore"), ["city"]), (SimpleImputer(), ["since"])]
    columns += [] if frame["member"].dtype == object and None in frame["member"].tolist() else [(fill, ["member"])]
    return make_pipeline(make_column_transformer(*columns), LogisticRegression()).fit(frame, HOME)


def post(server: InferenceServer, path: str, body: bytes, headers: Headers = ()) -> Answer:
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{path}", headers, body))


def over_rest(server: InferenceServer, frame: Any, *, binary: bool) -> Any:
    headers, body = PandasCodec.encode_request(frame).to_http(binary=binary)
    return outputs(post(server, "infer", body, tuple(headers.items())))["output_0"]


def in_python(server: InferenceServer, frame: Any) -> Any:
    return server.infer_sync("m", {name: frame[name] for name in frame})["output_0"].tolist()


WAYS: dict[str, Callable[[InferenceServer, Any], Any]] = {
    "JSON": partial(over_rest, binary=False),
    "binary": partial(over_rest, binary=True),
    "Python": in_python,
}


@pytest.mark.parametrize("with_none", [False, True], ids=["fitted with NaN", "fitted with None"])
def test_a_pipeline_predicts_as_where_it_was_fitted(with_none: bool) -> None:
    train = read_csv(with_none=with_none)
    pipeline, fitted_with = fit(train), None if with_none else np.nan
    of_none, of_nan = (GAPS.assign(**GAPS[["city", "member"]].where(GAPS.notna(), value)) for value in (None, np.nan))
    own = of_none if with_none else of_nan
    assert {type(each) for each in own["city"]} == {str, type(fitted_with)}
    server = InferenceServer()
    server.register("m", pipeline.predict_proba, content_type="pd", inputs=specs_of(train))
    wanted = pipeline.predict_proba(own.astype({"city": train["city"].dtype})).ravel().tolist()
    for name, way in WAYS.items():
        for sent in (of_none, of_nan):
            assert np.ravel(way(server, sent)).tolist() == wanted, name
    if not with_none:  # which an estimator gets without a declaration too
        server.register("m", pipeline.predict_proba, content_type="pd", replace=True)
        for name in ("JSON", "binary", "Python"):
            assert np.ravel(WAYS[name](server, of_nan)).tolist() == pipeline.predict_proba(of_nan).ravel().tolist()


@pytest.mark.parametrize("missing", [np.nan, None], ids=str)
def test_a_frame_comes_back_with_what_is_missing_in_it(missing: Any) -> None:
    server = InferenceServer()

    @server.model("m")
    def m(df: pd.DataFrame) -> pd.DataFrame:
        return df

    frame = pd.DataFrame({"city": ["Bonn", missing], "member": [True, missing], "mixed": [{"a": 1}, missing]}, dtype=object)
    back = PandasCodec.decode_response(server.infer_sync("m", {name: frame[name] for name in frame}))
    assert [type(each) for each in back.iloc[1]] == [type(missing)] * 3
    pd.testing.assert_frame_equal(back, frame, check_exact=True)


def test_a_declaration_says_what_is_missing_where_all_of_it_is_nan() -> None:
    of_nan: list[list[Any]] = [["a", np.nan], [1, np.float64("nan")], [1.5, np.nan]]
    others: list[list[Any]] = [["a", None], ["a", np.nan, None], ["a", pd.NA], ["a", "b"]]
    for columns, dtype in ((of_nan, "object[NaN]"), (others, "object")):
        for values in columns:
            assert specs_of(pd.DataFrame({"x": pd.Series(values, dtype=object)}))[0].pd_dtype == dtype
    frame = pd.DataFrame({"text": pd.Series(["a", None], dtype="string"), "kind": pd.Categorical(["a", None])})
    assert [spec.pd_dtype for spec in specs_of(frame)] == ["string", "category"]


def test_any_column_declared_by_hand_may_be_one_of_objects() -> None:
    got: list[Any] = []

    def note(df: pd.DataFrame) -> int:
        got.append(df["x"])
        return 1

    columns: list[tuple[Any, str | None, list[Any], list[Any]]] = [
        ("BYTES", "str", ["a", "b"], ["a", "b"]),
        ("BYTES", "datetime", ["2026-01-31", "NaT"], [pd.Timestamp("2026-01-31"), pd.NaT]),
        ("INT64", None, [1, 2], [1, 2]),
        ("BYTES", "pd_json", ["[null]", "null"], [[None], np.nan]),
        ("BYTES", "pd_json", ["null", "null"], [np.nan, np.nan]),
    ]
    for datatype, content_type, data, wanted in columns:
        server = InferenceServer()
        server.register("m", note, inputs=[TensorSpec("x", datatype, [-1], content_type, pd_dtype="object[NaN]")])
        tensor = {"name": "x", "datatype": datatype, "shape": [2], "data": data}
        assert post(server, "infer", json.dumps({"inputs": [tensor]}).encode()).status == 200
        pd.testing.assert_series_equal(got.pop(), pd.Series(wanted, dtype=object, name="x"))
        [shown] = get(server, "/models/m")[1]["inputs"]
        assert shown["parameters"]["pd_dtype"] == "object[NaN]"


@pytest.mark.parametrize("pd_dtype", [None, "object[NaN]"])
def test_a_series_takes_what_a_column_of_a_frame_takes(pd_dtype: Any) -> None:
    def of_series(s: pd.Series) -> list[str]:
        return list(map(repr, s))

    def of_frame(df: pd.DataFrame) -> list[str]:
        return list(map(repr, df["s"]))

    servers = InferenceServer(), InferenceServer()
    functions: list[Callable[..., Any]] = [of_series, of_frame]
    for server, function in zip(servers, functions, strict=True):
        server.register("m", function, inputs=[TensorSpec("s", "BYTES", [-1], "str", pd_dtype=pd_dtype)])
    texts: list[list[str]] = [['"a"', "null"], ["1", "null"], ['{"k": 1}']]
    tensors = [
        {"name": "s", "datatype": "BYTES", "shape": [len(data)], "data": data, "parameters": {"content_type": "pd_json"}} for data in texts
    ]
    values: list[Any] = [["a", None], [None], "a", [1]]
    asked: list[tuple[str, Any]] = [
        *(("infer", {"inputs": [tensor]}) for tensor in tensors),
        *(("generate", {"s": value}) for value in values),
    ]
    for (path, body), status in zip(asked, (200, 400, 400, 200, 200, 200, 400), strict=True):
        one, other = (post(server, path, json.dumps(body).encode()) for server in servers)
        assert (one, one.status) == (other, status), body


def infer(values: dict[str, Any], **options: Any) -> Any:
    """The frame that the model got."""
    server, seen = InferenceServer(), list[Any]()

    def keep(frame: Any) -> int:
        seen.append(frame)
        return 1

    server.register("m", keep, content_type="pd", **options)
    server.infer_sync("m", values)
    return seen[0]


@pytest.mark.parametrize(("spec", "value"), [
    (TensorSpec("x", "BYTES", [-1], "str", pd_dtype="str"), "a"), (TensorSpec("x", "BYTES", [-1], "datetime"), datetime(2026, 1, 1))
])  # fmt: skip
def test_none_in_a_column_declared_by_hand_is_a_missing_value(spec: TensorSpec, value: Any) -> None:
    """For other dtypes: "one missing" of tests/table/values."""
    column = infer({"x": [value, None]}, inputs=[spec])["x"]
    assert (column[0], column.isna().tolist()) == (value, [False, True])


def refusal(values: list[Any], spec: TensorSpec) -> str:
    with pytest.raises(InferenceError) as refused:
        infer({spec.name: values}, inputs=[spec])
    assert refused.value.status == 400
    return str(refused.value).split("; for a missing value")[0]


DATE = TensorSpec("x", "BYTES", [-1], "datetime", pd_dtype="datetime64[ns]")
ZONED = TensorSpec("x", "BYTES", [-1], "datetime", pd_dtype="datetime64[ns, UTC]")


WHOLE, FLAG = TensorSpec("x", "INT64", [-1], pd_dtype="Int64"), TensorSpec("x", "BOOL", [-1], pd_dtype="boolean")
WRONG: list[tuple[TensorSpec, Any]] = [
    *((DATE, wrong) for wrong in (1, 1.5, True, "today", b"2026-01-01", datetime(2026, 1, 1, tzinfo=UTC))),
    *((ZONED, wrong) for wrong in ("2026-01-01", datetime(2026, 1, 1))),
    *((WHOLE, wrong) for wrong in (True, 1.5, "1")),
    (TensorSpec("x", "INT8", [-1], pd_dtype="Int8"), 128),
    *((FLAG, wrong) for wrong in (2, "yes")),
    (specs_of(pd.DataFrame({"x": pd.Categorical(["a", "b"])}))[0], 1),
]


@pytest.mark.parametrize(("spec", "wrong"), WRONG, ids=str)
def test_what_is_refused_without_none_is_refused_beside_it(spec: TensorSpec, wrong: Any) -> None:
    alone = refusal([wrong], spec)
    assert refusal([wrong, None], spec) == alone
    assert refusal([None, wrong], spec) == re.sub(r"data\[0\]|element 0", lambda place: place[0].replace("0", "1"), alone)


def test_none_beside_values_of_several_kinds_in_a_column_that_is_not_declared() -> None:
    several = ["a", 1], [True, 1], [datetime(2026, 1, 1), "x"]
    for wrong in (*several, [["a", "b"]], [[1, 2], [3, 4]], [b"\xff"]):
        with pytest.raises(InferenceError, match="'x'"):
            infer({"x": [*wrong, None]})


def test_an_empty_array_of_objects_is_bytes() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    for shape in ((0,), (0, 3)):
        [output] = server.infer_sync("echo", {"x": np.empty(shape, object)}).outputs
        assert (output.datatype, output.array.shape) == ("BYTES", shape)


def test_series_take_the_same_whether_they_are_named_or_not() -> None:
    def named(x: pd.Series) -> Any:
        return x.tolist()

    def unnamed(**inputs: pd.Series) -> Any:
        return inputs["x"].tolist()

    spec, column = TensorSpec("x", "FP64", [-1]), [[1.5], [2.5]]
    for function, inputs in ((named, ()), (named, [spec]), (unnamed, ()), (unnamed, [spec])):
        server = InferenceServer()
        server.register("m", function, inputs=inputs)
        answer = post(server, "generate", b'{"x": [1.5, null]}')
        assert (answer.status, json.loads(answer.body)) == (200, {"model_name": "m", "output_0": [1.5, None]})
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2, 1], "data": column}]}
        assert outputs(post(server, "infer", json.dumps(body).encode(), ())) == {"output_0": [1.5, 2.5]}
