"""`specs_of`: the declaration of a model, read from ONNX Runtime's sessions and MLflow's signatures.

Stand-ins have the attributes that it reads. The real objects are asked where they are installed: tox -e recipe-onnx_session and -e
recipe-mlflow_pyfunc.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.codecs import PandasCodec
from oip_asgi.specs import specs_of
from tests.support.ways import Request, over_asgi

ONNX = {
    "bool": "BOOL",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}
MLFLOW = {
    "boolean": ("BOOL", None),
    "integer": ("INT32", None),
    "long": ("INT64", None),
    "float": ("FP32", None),
    "double": ("FP64", None),
    "string": ("BYTES", "str"),
    "binary": ("BYTES", "base64"),
    "datetime": ("BYTES", "datetime"),
}


def node(name: str, kind: str, shape: list[Any]) -> Any:
    return SimpleNamespace(name=name, type=kind, shape=shape)


def session(inputs: list[Any], outputs: list[Any]) -> Any:
    return SimpleNamespace(get_inputs=lambda: inputs, get_outputs=lambda: outputs)


def column(name: str | None, kind: str | None) -> Any:
    """A column of MLflow; without a kind one of arrays, whose type has no name."""
    return SimpleNamespace(name=name, type=SimpleNamespace() if kind is None else SimpleNamespace(name=kind))


def tensor(name: str | None, dtype: str, shape: tuple[int, ...]) -> Any:
    return SimpleNamespace(name=name, type=np.dtype(dtype), shape=shape)


def signature(inputs: list[Any] | None, outputs: list[Any] | None) -> Any:
    return SimpleNamespace(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(("kind", "datatype"), ONNX.items())
def test_each_type_of_onnx_has_its_datatype(kind: str, datatype: str) -> None:
    if datatype == "BF16":
        pytest.importorskip("ml_dtypes")
    inputs, outputs = specs_of(session([node("x", f"tensor({kind})", ["batch", 3, None])], [node("y", f"tensor({kind})", [])]))
    assert inputs == [TensorSpec("x", datatype, [-1, 3, -1])]  # type: ignore[arg-type]
    assert outputs == [TensorSpec("y", datatype, [])]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["seq(map(string,tensor(float)))", "sparse_tensor(float)", "optional(tensor(float))", "tensor(complex64)"])
def test_what_is_no_tensor_in_onnx_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^output 'chances' is a ") as raised:
        specs_of(session([], [node("chances", kind, [])]))
    assert kind in str(raised.value)
    assert '{"zipmap": False}' in str(raised.value)


def test_each_column_of_mlflow_has_its_datatype_and_content_type() -> None:
    inputs, outputs = specs_of(signature([column(kind, kind) for kind in MLFLOW], [column(None, "double")]))
    assert inputs == [TensorSpec(kind, datatype, [-1], content_type) for kind, (datatype, content_type) in MLFLOW.items()]  # type: ignore[arg-type]
    assert outputs == [TensorSpec("output_0", "FP64", [-1])]


def test_columns_of_arrays_and_objects_are_json() -> None:
    pytest.importorskip("pandas")
    inputs, _ = specs_of(signature([column("tags", None)], None))
    assert inputs == [TensorSpec("tags", "BYTES", [-1], "pd_json")]


def test_tensors_of_mlflow_keep_their_shapes() -> None:
    inputs, outputs = specs_of(
        signature(
            [tensor("image", "uint8", (-1, 28, 28)), tensor("word", "<U0", (-1,))], [tensor(None, ">f4", (-1, 2)), tensor(None, "O", (-1,))]
        )
    )
    assert inputs == [TensorSpec("image", "UINT8", [-1, 28, 28]), TensorSpec("word", "BYTES", [-1])]
    assert outputs == [TensorSpec("output_0", "FP32", [-1, 2]), TensorSpec("output_1", "BYTES", [-1])]


def test_a_dtype_without_a_datatype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^input 'when' has the dtype datetime64\[ns\], for which there is no datatype"):
        specs_of(signature([tensor("when", "datetime64[ns]", (-1,))], None))


def test_a_signature_without_schemas_declares_nothing() -> None:
    assert specs_of(signature(None, None)) == ([], [])


def test_a_model_without_a_signature_is_told_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"^specs_of\(None\): .*infer_signature\(X, y\)"):
        specs_of(None)


def test_an_array_is_told_what_to_write() -> None:
    with pytest.raises(TypeError) as raised:
        specs_of(np.zeros((1000, 1000)))
    assert len(str(raised.value)) < 500
    assert str(raised.value).endswith('For an array, write a TensorSpec, such as TensorSpec("x", "FP64", [-1, 4])')


def test_a_session_that_is_not_taken_apart_is_told_of() -> None:
    specs: Any = specs_of(session([node("x", "tensor(float)", [1])], []))
    text = 'must be a list of TensorSpec, such as [TensorSpec("x", "FP32", [-1, 4])], or as in inputs, outputs = specs_of(session)'
    with pytest.raises(TypeError, match=re.escape(text)):
        InferenceServer().register("m", lambda **inputs: inputs, inputs=specs)


def test_what_is_read_declares_a_model() -> None:
    specs = specs_of(session([node("x", "tensor(float)", ["batch", 2])], [node("y", "tensor(float)", ["batch", 2])]))
    server = InferenceServer()
    server.register("double", load=lambda: lambda **inputs: inputs["x"] * 2, inputs=specs.inputs, outputs=specs.outputs)
    response = server.infer_sync("double", {"x": np.array([[1, 2]], np.float32)})
    assert response["y"].tolist() == [[2.0, 4.0]]


def test_a_real_session_says_what_the_stand_ins_say() -> None:
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    types = {kind: getattr(kinds, {"float": "FLOAT", "double": "DOUBLE"}.get(kind, kind.upper())) for kind in ONNX}
    nodes = [helper.make_node("Identity", [kind], [f"{kind} again"]) for kind in types]
    inputs = [helper.make_tensor_value_info(kind, number, ["batch", 3, None]) for kind, number in types.items()]
    outputs = [helper.make_tensor_value_info(f"{kind} again", number, ["batch", 3, None]) for kind, number in types.items()]
    model = helper.make_model(helper.make_graph(nodes, "again", inputs, outputs), opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    read = specs_of(onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]))
    assert read.inputs == [TensorSpec(kind, datatype, [-1, 3, -1]) for kind, datatype in ONNX.items()]  # type: ignore[arg-type]
    assert read.outputs == [TensorSpec(f"{kind} again", datatype, [-1, 3, -1]) for kind, datatype in ONNX.items()]  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_real_signature_says_what_the_stand_ins_say() -> None:
    models, types = pytest.importorskip("mlflow.models"), pytest.importorskip("mlflow.types")
    schema = pytest.importorskip("mlflow.types.schema")
    read_column, any_type = types.ColSpec, [schema.Array(types.DataType.double), schema.Map(types.DataType.long), schema.AnyType()]
    inputs = [*(read_column(kind, kind) for kind in MLFLOW), *(read_column(kind, f"json {place}") for place, kind in enumerate(any_type))]
    read = specs_of(models.ModelSignature(types.Schema(inputs), types.Schema([types.TensorSpec(np.dtype("float32"), (-1, 2))])))
    assert read.inputs == [
        *(TensorSpec(kind, datatype, [-1], content_type) for kind, (datatype, content_type) in MLFLOW.items()),  # type: ignore[arg-type]
        *(TensorSpec(f"json {place}", "BYTES", [-1], "pd_json") for place in range(3)),
    ]
    assert read.outputs == [TensorSpec("output_0", "FP32", [-1, 2])]


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_each_type_of_column_reaches_a_real_pyfunc_and_comes_back(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    python_model: Any = mlflow.pyfunc.PythonModel

    class Same(python_model):  # type: ignore[misc]
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            return model_input  # which MLflow has checked against the signature

    frame = pd.DataFrame(
        {
            "boolean": [True, False],
            "integer": np.array([1, 2], np.int32),
            "long": [1, 2],
            "float": np.array([1, 2], np.float32),
            "double": [1.5, np.nan],
            "string": ["a", "é"],
            "binary": [b"\xff\x00", b"b"],
            "datetime": pd.to_datetime(["2024-01-01", "2024-05-06"]),
            "json": [[1.5, 2.5], [3.5]],
        }
    )
    types = mlflow.types
    columns = [types.ColSpec(kind, kind) for kind in MLFLOW]
    schema = types.Schema([*columns, types.ColSpec(types.schema.Array(types.DataType.double), "json")])
    mlflow.pyfunc.save_model(tmp_path / "same", python_model=Same(), signature=mlflow.models.ModelSignature(schema, schema))
    model = mlflow.pyfunc.load_model(tmp_path / "same")

    inputs, outputs = specs_of(model.metadata.signature)
    server = InferenceServer()
    server.register("same", lambda columns: model.predict(columns), content_type="pd", inputs=inputs, outputs=outputs)
    request = PandasCodec.encode_request(frame)
    response = server.infer_sync("same", {tensor.name: tensor for tensor in request.inputs})
    pd.testing.assert_frame_equal(PandasCodec.decode_response(response), frame, check_dtype=False)


def test_a_fitted_model_says_what_its_method_would_declare() -> None:
    frame, kinds = pd.DataFrame({"age": [1.0, 5], "fee": [9.0, 1]}), [0, 1]
    specs = {"columns": [("age", (-1,)), ("fee", (-1,))], "array": [("X", (-1, 2))]}
    for name, rows in {"columns": frame, "array": frame.to_numpy()}.items():
        model, server = LogisticRegression().fit(rows, kinds), InferenceServer()
        server.register("m", model.predict)
        inputs, outputs = specs_of(model)
        assert [(spec.name, spec.shape) for spec in inputs] == specs[name]
        assert (inputs, outputs) == ([*server.models()[0].inputs], [])
        assert [(spec.name, spec.shape) for spec in specs_of(StandardScaler().fit(rows)).inputs] == specs[name]
    with pytest.raises(TypeError, match=r"onnxruntime\.InferenceSession, a fitted model,"):
        specs_of(SimpleNamespace(predict=len))


def test_a_pandas_frame() -> None:
    frame = pd.DataFrame(
        {
            "count": [1, 2],
            "weight": np.array([0.5, np.nan], "f4"),
            "city": [None, "Bonn"],
            "day": pd.Series(["2026-01-31", None], dtype="M8[s]"),
            "kind": pd.Categorical(["a", "b"]),
            "maybe": pd.array([None, 3], dtype="Int64"),
            "ok": [True, None],
            "bytes": [b"x", b"y"],
            "any": [[1], {"a": 2}],
            7: [1, 2],
        }
    )
    categories = '{"datatype":"BYTES","data":["a","b"],"content_type":"str"}'
    text = "object" if pd.__version__ < "3" else "str"
    assert specs_of(frame, example=True) == [
        TensorSpec("count", "INT64", [-1], example=[1]),
        TensorSpec("weight", "FP32", [-1], example=[0.5]),
        TensorSpec("city", "BYTES", [-1], "str", example=["Bonn"], pd_dtype=text),
        TensorSpec("day", "BYTES", [-1], "datetime", example=["2026-01-31T00:00:00"], pd_dtype="datetime64[s]"),
        TensorSpec("kind", "BYTES", [-1], "str", example=["a"], pd_dtype="category", pd_categories=categories),
        TensorSpec("maybe", "INT64", [-1], example=[3], pd_dtype="Int64"),
        TensorSpec("ok", "BYTES", [-1], "pd_json", example=["true"], pd_dtype="object"),
        TensorSpec("bytes", "BYTES", [-1], "base64", example=["eA=="]),
        TensorSpec("any", "BYTES", [-1], "pd_json", example=["[1]"], pd_dtype="object"),
        TensorSpec("7", "INT64", [-1], example=[1]),
    ]
    assert [spec.example for spec in specs_of(frame.iloc[:0], example=True)] == [None] * 10
    assert [spec.example for spec in specs_of(frame)] == [None] * 10  # a row of the training is for nobody who does not say so


def test_a_polars_frame() -> None:
    """Stand-ins for its columns: what it has no place for, it cannot install."""

    def column(name: str, values: list[Any], dtype: Any, *, zone: str | None = None, is_nested: bool = False) -> Any:
        kind = SimpleNamespace(is_nested=lambda: is_nested, is_integer=lambda: False, **({} if zone is None else {"time_zone": zone}))
        return SimpleNamespace(name=name, dtype=kind, to_numpy=lambda: np.array(values, dtype), to_list=lambda: values)

    columns = [
        column("n", [1], "i1"),
        column("gaps", [None, 1], "f8"),
        column("city", [None, "Bonn"], object),
        column("day", [None, "2026-01-31"], "M8[D]"),
        column("moment", ["2026-01-31T11"], "M8[us]", zone="Europe/Zurich"),  # in UTC
        column("pair", [[1, 2]], "i8", is_nested=True),
    ]
    frame: Any = SimpleNamespace(columns=["n", "gaps", "city", "day", "moment", "pair"], get_columns=lambda: columns)
    assert specs_of(frame, example=True) == [
        TensorSpec("n", "INT8", [-1], example=[1]),
        TensorSpec("gaps", "FP64", [-1], example=[1.0]),
        TensorSpec("city", "BYTES", [-1], "str", example=["Bonn"], pd_dtype="object" if pd.__version__ < "3" else "str"),
        TensorSpec("day", "BYTES", [-1], "datetime", example=["2026-01-31T00:00:00"], pd_dtype="datetime64[s]"),
        TensorSpec("moment", "BYTES", [-1], "datetime", example=["2026-01-31T11:00:00+00:00"], pd_dtype="datetime64[us, Europe/Zurich]"),
        TensorSpec("pair", "BYTES", [-1], "pd_json", example=["[1,2]"], pd_dtype="object"),
    ]


def columns_with_gaps() -> dict[str, Any]:
    """A column of each dtype that a tensor can be, whose second value is missing, if the dtype has such values."""
    day = pd.Timestamp("2026-01-31")
    columns: dict[str, Any] = {dtype: pd.Series([1, 0], dtype=dtype) for dtype in ("bool", "int8", "uint64", "float32", "float64")}
    columns |= {dtype: pd.Series([1, None], dtype=dtype) for dtype in ("Int8", "Int64", "UInt32", "boolean", "Float32", "Float64")}
    columns |= {dtype: pd.Series(["a", None], dtype=dtype) for dtype in ("string", "object", "category")}
    columns |= {f"M8[{unit}]": pd.Series([day, None], dtype=f"M8[{unit}]") for unit in ("s", "ns")}
    columns["zoned"] = columns["M8[s]"].dt.tz_localize("Europe/Berlin")
    objects = {"bytes": b"a", "dates": day, "floats": 1.5, "integers": 7, "booleans": True, "lists": [1]}
    columns |= {f"{name} as objects": pd.Series([value, None], dtype=object) for name, value in objects.items() if name != "bytes"}
    columns["bytes"] = pd.Series([b"a", b"b"], dtype=object)
    columns["NaN as objects"] = pd.Series([1.5, np.nan], dtype=object)
    columns |= {f"category of {dtype}": pd.Series(pd.Categorical(columns[dtype])) for dtype in ("bool", "int8", "float64", "M8[ns]")}
    columns |= {f"{dtype} with gaps": column.mask([False, True]) for dtype, column in columns.items() if "category of" in dtype}
    columns["inferred"] = pd.Series(["a", None])  # since pandas 3 the dtype str
    return columns


@pytest.mark.parametrize("rows", [slice(0, 2), slice(0, 1), slice(1, 2), slice(0, 0)], ids=["both", "first", "second", "none"])
@pytest.mark.parametrize(("_", "column"), columns_with_gaps().items(), ids=columns_with_gaps())
def test_what_a_frame_declares_takes_this_frame(_: str, column: Any, rows: slice) -> None:
    frame = pd.DataFrame({"column": column})[rows].reset_index(drop=True)
    server, got = InferenceServer(), []

    @server.model("m", inputs=specs_of(frame))
    def m(df: pd.DataFrame) -> int:
        got.append(df)
        return 1

    headers, body = PandasCodec.encode_request(frame).to_http(binary=True)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", tuple(headers.items()), body))
    assert (answer.status, answer.body) == (200, answer.body)
    pd.testing.assert_frame_equal(got[0], PandasCodec.decode_request(PandasCodec.encode_request(frame)))


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64"])
def test_a_column_may_miss_values_that_none_missed_where_it_was_declared(dtype: str) -> None:
    server = InferenceServer()

    @server.model("m", inputs=specs_of(pd.DataFrame({"x": pd.Series([1, 0], dtype=dtype)})))
    def m(df: pd.DataFrame) -> list[str]:
        return [str(df.dtypes["x"]), *map(str, df["x"].isna())]

    def infer(**tensor: Any) -> Any:
        inputs = [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["1", "null"], **tensor}]
        answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), json.dumps({"inputs": inputs}).encode()))
        return answer.status, json.loads(answer.body).get("error") or json.loads(answer.body)["outputs"][0]["data"]

    datatype = {"Int64": "INT64", "boolean": "BOOL", "Float64": "FP64"}[dtype]
    data = ["true" if dtype == "boolean" else "1", "null"]
    assert infer(data=data, parameters={"content_type": "pd_json", "pd_dtype": dtype}) == (200, [dtype, "False", "True"])
    wrong = ["1.5", "[]"]
    status, text = infer(data=wrong, parameters={"content_type": "pd_json", "pd_dtype": dtype})
    assert (status, text) == (400, f"column 'x' cannot be {dtype}, as its pd_dtype says: its values are object")
    refused = (400, f"input 'x' has datatype BYTES: expected {datatype}; in pandas, frame.astype({{'x': {dtype!r}}}) makes it so")
    assert infer(data=data, parameters={"content_type": "pd_json"}) == (200, [dtype, "False", "True"])
    assert infer(data=data, parameters={"content_type": "pd_json", "pd_dtype": "Int32"}) == (200, [dtype, "False", "True"])
    assert infer(data=data) == refused


def test_a_frame_declares_a_model_whose_documented_example_works() -> None:
    server = InferenceServer()

    @server.model("m", inputs=specs_of(pd.DataFrame({"age": [34, 51], "city": ["Bonn", None]}), example=True))
    def m(df: pd.DataFrame) -> Any:
        return df["city"] + df["age"].astype(str)

    document = server.openapi()["paths"]["/v2/models/m/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert document["inputs"] == [
        {"name": "age", "shape": [1], "datatype": "INT64", "data": [34]},
        {"name": "city", "shape": [1], "datatype": "BYTES", "data": ["Bonn"]},
    ]
    asked = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), json.dumps(document).encode()))
    assert json.loads(asked.body)["outputs"][0]["data"] == ["Bonn34"]


def test_a_frame_with_a_column_that_no_tensor_can_be() -> None:
    with pytest.raises(TypeError, match="column 'wait' has dtype timedelta64"):
        specs_of(pd.DataFrame({"wait": pd.to_timedelta([1], unit="s")}))


@pytest.mark.parametrize(
    ("shape", "example", "error", "text"),
    [
        ([-1], "text", TypeError, "example='text' must be a flat list of numbers, booleans or strings"),
        ([-1], [[1.0]], TypeError, "example=[[1.0]] must be a flat list of numbers, booleans or strings"),
        ([-1, 4], [1.0], ValueError, "example= has 1 elements, and with 1 for each -1 the shape has 4"),
    ],
)
def test_an_example_that_is_none(shape: list[int], example: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        TensorSpec("x", "FP32", shape, example=example)


GUIDE = (Path(__file__).parent.parent / "examples" / "guide" / "content-types.md").read_text()
MISSING = [
    ("number", TensorSpec("x", "FP32", [-1])),
    ("integer", TensorSpec("x", "FP64", [-1])),
    ("integer, kept as one", TensorSpec("x", "INT64", [-1], pd_dtype="Int64")),
    ("boolean", TensorSpec("x", "BOOL", [-1], pd_dtype="boolean")),
    ("string", TensorSpec("x", "BYTES", [-1], content_type="str")),
    ("date", TensorSpec("x", "BYTES", [-1], content_type="datetime")),
]


@pytest.mark.parametrize(("row", "spec"), MISSING, ids=[row for row, _ in MISSING])
def test_the_guide_says_how_to_write_a_missing_value(row: str, spec: TensorSpec) -> None:
    [written] = re.findall(rf"^\| {re.escape(row)} \| [^|]* \| `([^`]*)`", GUIDE, re.MULTILINE)
    server = InferenceServer()

    @server.model("m", inputs=[spec])
    def m(df: pd.DataFrame) -> Any:
        return df["x"].isna().to_numpy()

    tensor = {"name": "x", "shape": [2], "datatype": spec.datatype, **json.loads(f"{{{written}}}")}
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), json.dumps({"inputs": [tensor]}).encode()))
    assert (answer.status, json.loads(answer.body)["outputs"][0]["data"]) == (200, [False, True])
