"""A codec of one's own: JPEG files in a BYTES tensor on the wire, `PIL.Image` objects for the model.

python examples/image_codec.py                        serves on http://127.0.0.1:8000
python examples/image_codec.py photo.jpg small.jpg    asks it for a thumbnail of a photo
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import uvicorn
from PIL import Image, UnidentifiedImageError
from starlette.applications import Starlette

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, Tensor
from oip_asgi.codecs import InputCodec


class ImageCodec(InputCodec[list[Image.Image]]):
    """Images as JPEG files, one for each element."""

    content_type = "jpeg"
    type_hint = list[Image.Image]  # parameters and results with this annotation choose the codec
    datatype = "BYTES"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list) and bool(payload) and all(isinstance(image, Image.Image) for image in payload)

    @classmethod
    def encode_input(cls, name: str, payload: list[Image.Image], use_bytes: bool = True) -> Tensor:
        files = np.empty(len(payload), dtype=object)
        for place, image in enumerate(payload):
            file = BytesIO()
            image.save(file, "JPEG")
            files[place] = file.getvalue()
        return Tensor(name, files, {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Image.Image]:
        images: list[Image.Image] = []
        for place, file in enumerate(request_input.array.ravel().tolist()):
            try:
                image = Image.open(BytesIO(file), formats=["JPEG"])
                image.load()
            except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
                raise ValueError(f"element {place} is no JPEG image: {error}") from error  # answered 400
            images.append(image)
        return images


server = InferenceServer(name="images", codecs=[ImageCodec])


@server.model("thumbnail")
def thumbnail(photos: list[Image.Image]) -> list[Image.Image]:
    """Each photo, at most 64 pixels wide and high."""
    for photo in photos:
        photo.thumbnail((64, 64))
    return photos


app = Starlette()
OIPApp(server).install(app)


def ask(url: str, photo: Image.Image) -> Image.Image:
    """The thumbnail that the server at `url` makes."""
    request = InferenceRequest([ImageCodec.encode_input("photos", [photo])], parameters={"binary_data_output": True})
    headers, body = request.to_http(binary=True)
    answer = httpx2.post(f"{url}/v2/models/thumbnail/infer", headers=headers, content=body)
    response = InferenceResponse.from_http(answer.headers, answer.content, answer.status_code)
    return ImageCodec.decode_output(response.outputs[0])[0]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        ask("http://127.0.0.1:8000", Image.open(Path(sys.argv[1]))).save(sys.argv[2])
    else:
        uvicorn.run(app, host="127.0.0.1", port=8000)
