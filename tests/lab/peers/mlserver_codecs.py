"""MLServer's codecs behind a pipe: each line on standard input is a job in JSON, each line on standard output what came of it.

Run by MLServer's own Python, so it imports nothing of this package. Values travel as JSON: arrays with dtype and shape, bytes in hex,
frames by column.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from mlserver import codecs, types
from mlserver.codecs.string import StringRequestCodec


def from_json(value: Any) -> Any:
    match value["kind"]:
        case "array":
            return np.array(value["data"], value["dtype"]).reshape(value["shape"])
        case "strings":
            return value["data"]
        case "bytes":
            return [bytes.fromhex(element) for element in value["data"]]
        case "datetimes":
            return [datetime.fromisoformat(element) for element in value["data"]]
        case "cells":
            cells = np.empty(len(value["data"]), object)
            cells[:] = [np.array(data) for data in value["data"]]
            return pd.DataFrame({"x": pd.Series(cells)})
        case _:
            return pd.DataFrame({name: pd.Series(data, dtype=dtype) for name, dtype, data in value["columns"]})


def plain(element: Any) -> Any:
    if isinstance(element, float) and element != element:
        return None
    return element.hex() if isinstance(element, bytes) else element


def to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = [plain(element) for element in value.ravel().tolist()]
        return {"kind": "array", "dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, pd.DataFrame):
        columns = [[name, str(value[name].dtype), [to_json(element) for element in value[name].tolist()]] for name in value]
        return {"kind": "frame", "columns": columns}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [to_json(element) for element in value]
    return plain(value)


def work(job: Any) -> Any:
    codec = StringRequestCodec if job["codec"] == "StringRequestCodec" else getattr(codecs, job["codec"])
    is_whole = hasattr(codec, "encode_request")
    if job["do"] == "encode":
        value = from_json(job["value"])
        options = {} if "use_bytes" not in job else {"use_bytes": job["use_bytes"]}
        if is_whole:
            request = codec.encode_request(value, **options)
        else:
            request = types.InferenceRequest(inputs=[codec.encode_input("foo", value, **options)])
        return json.loads(request.model_dump_json())
    if job["do"] == "decode request":
        request = types.InferenceRequest(**job["document"])
        codecs.decode_inference_request(request)  # as its server does first
        return to_json(codec.decode_request(request) if is_whole else codec.decode_input(request.inputs[0]))
    response = types.InferenceResponse(**job["document"])
    for output in response.outputs:
        content_type = output.parameters and output.parameters.content_type
        if is_whole and content_type and content_type != "pd_json":
            output.parameters._decoded_payload = codecs.base.find_input_codec(content_type).decode_output(output)
    return to_json(codec.decode_response(response) if is_whole else codec.decode_output(response.outputs[0]))


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            answer = {"value": work(json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
