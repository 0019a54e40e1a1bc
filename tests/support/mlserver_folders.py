"""Folders as MLServer has them, after its documentation: what `model-settings.json` says, and the models' files, their imports changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.mlserver import register_folder
from tests.support.ways import Answer, Request, over_asgi

SUMS = """
import json

import numpy as np

from oip_asgi.mlserver import MLModel, types
from oip_asgi.mlserver.errors import InferenceError
from oip_asgi.mlserver.utils import get_model_uri


class Sums(MLModel):
    async def load(self) -> bool:
        with open(await get_model_uri(self._settings, ["weights.json"])) as file:
            self._weights = json.load(file)
        self.ready = True
        return self.ready

    async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
        if len(payload.inputs) != 1:
            raise InferenceError("send one input")
        total = np.dot(np.array(payload.inputs[0].data), self._weights)
        return types.InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[types.ResponseOutput(name="total", shape=total.shape, datatype="FP32", data=total.tolist())],
        )
"""

HELLO = """
import json

from oip_asgi.mlserver import MLModel, types
from oip_asgi.mlserver.codecs import StringCodec


class Hello(MLModel):
    async def load(self) -> bool:
        return await super().load()

    async def predict(self, payload: types.InferenceRequest) -> types.InferenceResponse:
        asked = {each.name: json.loads("".join(self.decode(each, default_codec=StringCodec()))) for each in payload.inputs}
        text = json.dumps({"asked": asked, "agent": payload.parameters.headers.get("user-agent")}).encode()
        parameters = types.Parameters(content_type="str")
        output = types.ResponseOutput(name="answer", shape=[len(text)], datatype="BYTES", data=[text], parameters=parameters)
        return types.InferenceResponse(model_name=self.name, outputs=[output])
"""

WORDS = """
from collections.abc import AsyncIterator

from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.codecs import StringCodec
from oip_asgi.mlserver.types import InferenceRequest, InferenceResponse


class Words(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        text = StringCodec.decode_input(payload.inputs[0])[0]
        return self._respond(text)

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        [payload] = [each async for each in payloads]
        for word in StringCodec.decode_input(payload.inputs[0])[0].split(" "):
            yield self._respond(word)

    def _respond(self, text):
        output = StringCodec.encode_output(name="output", payload=[text], use_bytes=True)
        return InferenceResponse(model_name=self._settings.name, outputs=[output])
"""

ECHO = """
import json

from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.codecs import DecodedParameterName, NumpyCodec, register_input_codec
from oip_asgi.mlserver.codecs import InputOrOutput
from oip_asgi.mlserver.logging import logger
from oip_asgi.mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

LEFT_OUT = {"parameters": {DecodedParameterName, "headers"}}


@register_input_codec
class HexCodec(NumpyCodec):
    ContentType = "hex"

    @classmethod
    def decode_input(cls, request_input: InputOrOutput) -> bytes:
        if request_input.datatype != "BYTES":
            return super().decode_input(request_input).tobytes()
        return bytes.fromhex(request_input.data.root[0])


class Echo(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = []
        for each in payload.inputs:
            decoded = self.decode(each)
            logger.info("%r", decoded)
            seen = json.dumps({"sent": each.dict(exclude=LEFT_OUT), "decoded": repr(decoded)})
            outputs.append(ResponseOutput(name=each.name, datatype=each.datatype, shape=each.shape, data=each.data))
            outputs.append(ResponseOutput(name=f"{each.name} seen", datatype="BYTES", shape=[1], data=[seen]))
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""

QUESTIONS = """
from typing import List

import numpy as np

from oip_asgi.mlserver import MLModel
from oip_asgi.mlserver.codecs import decode_args


class Questions(MLModel):
    @decode_args
    async def predict(self, questions: List[str], context: List[str]) -> np.ndarray:
        return np.array([len(question) + len(text) for question, text in zip(questions, context)])
"""


def write(folder: Path, settings: dict[str, Any] | None = None, /, **files: str) -> Path:
    """Write a model's folder: its `model-settings.json`, and files of Python by the names of their modules."""
    folder.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (folder / "model-settings.json").write_text(json.dumps(settings))
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def serve(folder: Path, **options: Any) -> InferenceServer:
    server = InferenceServer(**options)
    register_folder(server, folder)
    return server


def post(server: InferenceServer, path: str, document: Any) -> Answer:
    return over_asgi(OIPApp(server), "")(Request("POST", path, (), json.dumps(document).encode()))


def tensor(name: str, datatype: str, shape: list[int], data: Any, content_type: str | None = None) -> dict[str, Any]:
    parameters = {} if content_type is None else {"parameters": {"content_type": content_type}}
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **parameters}
