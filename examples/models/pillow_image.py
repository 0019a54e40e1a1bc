"""A model of images that takes files, PNG or JPEG, and opens them with Pillow: which digit is drawn.

    pip install -e . pillow scikit-learn uvicorn httpx2
    python examples/models/pillow_image.py
    uvicorn --factory --app-dir examples/models pillow_image:make_app
    python examples/models/pillow_image.py --check

The second line trains, and writes drawn.joblib into the directory that you are in. The third serves it on http://127.0.0.1:8000. The last
does both in a directory of its own, asks the server, and ends. A joblib file is code: load only files that you trust.

A file is one element of a BYTES tensor. Clients with binary tensor data send it as it is, and clients with JSON as base64, with the
content type `base64`. image_codec.py in the folder above shows images as a content type of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO
from typing import Any

import joblib
import numpy as np
from PIL import Image, UnidentifiedImageError

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec

FILE = "drawn.joblib"
INPUTS = [TensorSpec("image", "BYTES", [-1])]
OUTPUTS = [TensorSpec("digit", "INT64", [-1]), TensorSpec("probability", "FP64", [-1])]
MAX_PIXELS = 4096 * 4096
"""A small file may hold a huge image, so its size is looked at before it is decoded."""


def load_drawn() -> Callable[[list[bytes]], tuple[Any, Any]]:
    """Read the classifier. It runs once in each process, before the server is ready."""
    classifier = joblib.load(FILE)

    def predict(image: list[bytes]) -> tuple[Any, Any]:
        probabilities = classifier.predict_proba(np.array([pixels(file) for file in image]).reshape(-1, 64))
        return probabilities.argmax(axis=1), probabilities.max(axis=1)

    return predict


def pixels(file: bytes) -> Any:
    """An image file as the classifier saw images in its training: [64], 0 is white and 16 is black.

    Raises:
        InferenceError: It is no image, or too large: the client is told.
    """
    try:
        with Image.open(BytesIO(file), formats=["PNG", "JPEG"]) as image:
            if image.width * image.height > MAX_PIXELS:
                raise InferenceError(f"an image of {image.width} x {image.height} pixels is too large", status=413)
            grey = image.convert("L").resize((8, 8), Image.Resampling.BOX)
    except UnidentifiedImageError as error:
        raise InferenceError("send PNG or JPEG files", status=400) from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises for broken files
        raise InferenceError(f"the image cannot be read: {error}", status=400) from error
    return (255 - np.asarray(grey, np.float64).ravel()) / 255 * 16


def make_app() -> OIPApp:
    server = InferenceServer("drawn")
    server.register("drawn", load=load_drawn, inputs=INPUTS, outputs=OUTPUTS)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def train() -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    images, digits = load_digits(return_X_y=True)
    joblib.dump(LogisticRegression(max_iter=5000).fit(images[:1500], digits[:1500]), FILE)


def drawn(image: Any, file_format: str) -> bytes:
    """An image [8, 8] as a file that somebody could have drawn: black on white, 160 pixels wide."""
    grey = Image.fromarray((255 - image / 16 * 255).astype(np.uint8))
    file = BytesIO()
    grey.resize((160, 160), Image.Resampling.NEAREST).convert("RGB").save(file, file_format, quality=95)
    return file.getvalue()


def ask(url: str) -> bool:
    """Ask about drawings that the classifier has not seen: as binary tensor data, and in JSON as base64."""
    from base64 import b64encode

    import httpx2
    from sklearn.datasets import load_digits

    from oip_asgi import InferenceRequest, InferenceResponse, Tensor

    bunch = load_digits()
    images, digits = bunch.images[1500:1516], bunch.target[1500:1516]
    files = [drawn(image, file_format) for image, file_format in zip(images, ["PNG", "JPEG"] * 8, strict=True)]
    address = f"{url}/v2/models/drawn/infer"

    headers, body = InferenceRequest([Tensor("image", np.array(files, object))]).to_http(binary=True)
    answer = httpx2.post(address, headers=headers, content=body).raise_for_status()
    said = InferenceResponse.from_http(answer.headers, answer.content).outputs[0].array.tolist()
    print("as files  ", *said)

    texts = [b64encode(file).decode() for file in files]
    image = {"name": "image", "datatype": "BYTES", "shape": [16], "parameters": {"content_type": "base64"}, "data": texts}
    by_json = httpx2.post(address, json={"inputs": [image]}).raise_for_status().json()["outputs"][0]["data"]
    print("as base64 ", *by_json)
    print("true digit", *digits)

    headers, body = InferenceRequest([Tensor("image", np.array([files[0][:100]], object))]).to_http(binary=True)
    refused = httpx2.post(address, headers=headers, content=body)
    print("half a file", refused.status_code, refused.json()["error"])
    own = joblib.load(FILE).predict(images.reshape(-1, 64)).tolist()
    return said == by_json == own and bool((np.array(said) == digits).mean() > 0.9) and refused.status_code == 400


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
