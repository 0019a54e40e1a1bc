"""The codecs and the class of models that were written for MLServer, called as its documentation and users' tests call them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from oip_asgi.mlserver import MLModel, ModelParameters, ModelSettings, codecs, types
from oip_asgi.mlserver.codecs import (
    Base64Codec,
    DatetimeCodec,
    InputCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    RequestCodec,
    StringCodec,
    StringRequestCodec,
)
from oip_asgi.mlserver.errors import CodecError, MLServerError
from oip_asgi.mlserver.utils import get_model_uri


def test_a_tensor_goes_there_and_back() -> None:
    dates = [datetime(2022, 1, 11), datetime(2023, 1, 11)]
    values: list[tuple[Any, Any, str, list[Any]]] = [
        (NumpyCodec, np.array([1, 2], np.int32), "INT32", [1, 2]),
        (StringCodec, ["a", "ö"], "BYTES", ["a", "ö"]),
        (Base64Codec, [b"a", b"\xff"], "BYTES", ["YQ==", "/w=="]),
        (DatetimeCodec, dates, "BYTES", ["2022-01-11T00:00:00", "2023-01-11T00:00:00"]),
    ]
    for codec, value, datatype, data in values:
        expected = {"name": "x", "datatype": datatype, "shape": [2, 1], "parameters": {"content_type": codec.ContentType}, "data": data}
        for encode, decode in ((codec.encode_input, codec.decode_input), (codec.encode_output, codec.decode_output)):
            made = encode("x", value, use_bytes=False)
            assert made.dict() == expected
            assert list(np.ravel(decode(made))) == list(value)
            assert codec.can_encode(value)
        assert datatype == "INT32" or all(isinstance(element, bytes) for element in codec.encode_input("x", value).data)


def test_a_request_goes_there_and_back() -> None:
    frame = pd.DataFrame({"a": [1], "b": ["x"]})
    values: dict[Any, Any] = {NumpyRequestCodec: np.array([[1, 2]], np.float32), StringRequestCodec: ["a"], PandasCodec: frame}
    for codec, value in values.items():
        request, response = codec.encode_request(value), codec.encode_response("m", value, "1")
        assert (request.parameters.content_type, response.model_name, response.model_version) == (codec.ContentType, "m", "1")
        for back in (codec.decode_request(request), codec.decode_response(response)):
            assert np.array_equal(np.ravel(back), np.ravel(value))


def test_what_a_codec_decodes_belongs_to_the_model() -> None:
    array = np.array([1, 2], np.float32)
    array.flags.writeable = False
    message = types.RequestInput(name="x", shape=[2], datatype="FP32", data=array)
    message.data = types.TensorData(array)
    decoded = NumpyCodec.decode_input(message)
    decoded += 1
    assert (decoded.tolist(), array.tolist()) == ([2, 3], [1, 2])
    text = types.RequestInput(name="x", shape=[2, 1], datatype="BYTES", data=["a", "bc"])
    assert NumpyCodec.decode_input(text).tolist() == [["a"], ["bc"]]


def test_the_data_that_models_write() -> None:
    written: list[tuple[str, list[int], Any, Any]] = [
        ("FP64", [2, 2], [[1, 2], [3, 4]], [[1.0, 2.0], [3.0, 4.0]]),
        ("FP32", [], 1.5, 1.5),
        ("INT64", [0], [], []),
        ("BYTES", [2, 1], [["a"], [b"b"]], [[b"a"], [b"b"]]),
        ("BYTES", [11], "hello world", [b"hello world"]),
        ("BYTES", [1, 5], [b"hello"], [b"hello"]),
        ("FP64", [2], [2**53 + 1, 0.5], [2.0**53, 0.5]),  # the datatype says that they are floats
        ("FP32", [2], [-1, 2**64 - 1], [-1.0, 2.0**64]),
        ("UINT64", [2, 1], [[0], [2**64 - 1]], [[0], [2**64 - 1]]),
        ("FP64", [1], [2**70], [2.0**70]),
        ("FP64", [1], np.array([1.5], np.longdouble), [1.5]),
    ]
    for datatype, shape, data, expected in written:
        array = types.ResponseOutput(name="y", shape=shape, datatype=datatype, data=data).to_ours().array
        assert array.astype(object).tolist() == expected
    gap = types.ResponseOutput(name="y", shape=[2], datatype="FP32", data=[1, None]).to_ours().array
    assert np.array_equal(gap, [1, np.nan], equal_nan=True)
    of: dict[str, list[Any]] = {"FP32": [1.5, 2], "INT8": [1, 2], "BOOL": [1, 0], "BF16": [1.5, 2], "FP16": [True], "FP64": [1, 2]}
    makers: list[Any] = [list, np.array, partial(np.array, dtype=object)]
    for make in makers:
        for datatype, data in of.items():
            made = types.ResponseOutput(name="y", shape=[len(data)], datatype=datatype, data=make(data)).to_ours()
            assert (made.datatype, made.array.tolist()) == (datatype, data)


def test_data_that_are_not_of_the_datatype() -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("INT32", [1.5], r"'y': \[1.5\] cannot be INT32"),
        ("UINT8", [300], "cannot be UINT8"),
        ("UINT64", [-1, 2**63], "cannot be UINT64"),
        ("UINT64", [2**64], "cannot be UINT64"),
        ("UINT8", np.array([300]), "cannot be UINT8"),
        ("UINT8", np.array([1.5], object), "cannot be UINT8"),
        ("BOOL", [5], "cannot be BOOL"),
        ("FP32", ["1"], "cannot be FP32"),
        ("BYTES", np.array([1.5]), "cannot be BYTES"),
        ("FP32", np.ma.array([1, 2], mask=[False, True]), "masked elements"),
        ("FLOAT", [1.5], "unknown datatype 'FLOAT'"),
    ]
    for datatype, data, text in wrong:
        with pytest.raises(TypeError, match=text):
            types.ResponseOutput(name="y", shape=[1], datatype=datatype, data=data).to_ours()


def settings(**more: Any) -> ModelSettings:
    return ModelSettings(implementation="models.Model", name="m", parameters=ModelParameters(version="1", **more))


def test_a_model_decodes_and_encodes() -> None:
    model = MLModel(settings(content_type="pd"))
    model.inputs = [types.MetadataTensor(name="when", datatype="BYTES", shape=[-1], parameters=types.Parameters("datetime"))]
    model.outputs = [types.MetadataTensor(name="text", datatype="BYTES", shape=[-1], parameters=types.Parameters("str"))]
    when = types.RequestInput(name="when", shape=[1], datatype="BYTES", data=["2022-01-11"])
    plain = types.RequestInput(name="plain", shape=[1], datatype="INT8", data=[7])
    assert model.decode(when) == [datetime(2022, 1, 11)]
    assert list(model.decode(plain)) == [7]
    assert model.decode(plain, default_codec=NumpyCodec).tolist() == [7]
    frame = model.decode_request(types.InferenceRequest(inputs=[when, plain]))
    assert (frame["when"].tolist(), frame["plain"].tolist()) == ([pd.Timestamp("2022-01-11")], [7])
    assert model.encode(["a"], types.RequestOutput(name="text")).datatype == "BYTES"
    assert model.encode(np.array([1], np.int8), types.RequestOutput(name="other")).datatype == "INT8"
    assert model.encode_response(frame[["plain"]]).outputs[0].name == "plain"
    with pytest.raises(CodecError, match="no codec for a set"):
        model.encode_response({1})
    assert (model.name, model.version, model.ready) == ("m", "1", False)


def test_a_model_streams_what_it_predicts_and_unloads() -> None:
    class One(MLModel):
        async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
            return types.InferenceResponse(outputs=[], id=payload.id)

    async def run() -> Any:
        async def payloads() -> AsyncIterator[types.InferenceRequest]:
            yield types.InferenceRequest(inputs=[], id="7")

        with pytest.raises(NotImplementedError):
            await MLModel(settings()).predict(types.InferenceRequest(inputs=[]))
        return [response.id async for response in One(settings()).predict_stream(payloads())], await One(settings()).unload()

    assert asyncio.run(run()) == (["7"], True)


def test_arguments_are_decoded_as_annotated() -> None:
    class Model(MLModel):
        @codecs.decode_args
        def predict(self, frame: pd.DataFrame, names: list[str]) -> tuple[npt.NDArray[np.int64], pd.DataFrame]:
            return frame["a"].to_numpy() + len(names), frame

    a = types.RequestInput(name="a", shape=[2], datatype="INT64", data=[1, 2])
    names = types.RequestInput(name="names", shape=[1], datatype="BYTES", data=["x"])
    response = asyncio.run(Model(settings()).predict(types.InferenceRequest(inputs=[a, names])))
    assert [(output.name, list(output.data)) for output in response.outputs] == [("output-0", [2, 3]), ("a", [1, 2])]
    with pytest.raises(CodecError, match="no codec for set: take an InferenceRequest"):

        @codecs.decode_args
        def predict(self, x: set) -> np.ndarray:  # type: ignore[no-untyped-def, type-arg]
            raise AssertionError


def test_codecs_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hex(InputCodec):
        ContentType = "hex"

    class Whole(RequestCodec):
        ContentType = "whole"

    token = codecs.registry.set(codecs.registry.get().copy())
    try:
        assert (codecs.register_input_codec(Hex), codecs.register_request_codec(Whole)) == (Hex, Whole)
        known = codecs.registry.get()
        assert (known.inputs["hex"], known.requests["whole"], Hex.can_encode(1)) == (Hex, Whole, False)
    finally:
        codecs.registry.reset(token)
    assert "hex" not in codecs.registry.get().inputs


def test_where_a_model_is(tmp_path: Path) -> None:
    folder = tmp_path / "a #1? %20"  # of which nothing is a part of a URL
    folder.mkdir()
    for where in (str(folder), f"file://{folder}", f"file:{folder}", f"FILE://localhost{folder}"):
        assert asyncio.run(get_model_uri(settings(uri=where), ["weights"])) == str(folder)
    (folder / "weights").touch()
    assert asyncio.run(get_model_uri(settings(uri=str(folder)), ["weights"])) == str(folder / "weights")
    assert asyncio.run(get_model_uri(settings(uri="s3://bucket/model"))) == "s3://bucket/model"
    for uri in (None, "/nowhere"):
        with pytest.raises(MLServerError, match="there is no file or folder") as missing:
            asyncio.run(get_model_uri(settings(uri=uri)))
        assert missing.value.status == 422
