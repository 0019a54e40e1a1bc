"""Which inputs a model declares to be encoded text, such as base64: a client asks for that before it first sends texts or bytes to the
model. Sent as they are, they could be valid as encoded text too, and be other values for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from numpy import ndarray

from .._protocol.errors import ErrorResponse, InvalidResponse
from .._protocol.specs import TensorSpec
from . import _questions as questions

if TYPE_CHECKING:
    from ._grpc import GRPCLink
    from ._http import HTTPLink

_ENCODED: Final = ("base64", "pd_json")
"""The content types whose elements are not the text or the bytes that the model gets."""

_NOT_FOR_US: Final = (401, 403, 405, 501)
"""The statuses of a server that may be asked for inference alone: it is not asked again."""


def have_texts(inputs: Any) -> bool:
    """Whether values by name have texts or bytes in lists or alone. Arrays and tensors are sent as they are."""
    if isinstance(inputs, Mapping):
        for value in inputs.values():
            if type(value) is not ndarray and _is_text(value):
                return True
    return False


def _is_text(value: Any) -> bool:
    while isinstance(value, (list, tuple)):
        value = next((each for each in value if each is not None), None)
    return isinstance(value, (str, bytes))


class Declarations:
    """What is known of the models that one client calls."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[str, str | int | None], Mapping[str, TensorSpec]] = {}

    async def find_encoded(
        self, link: HTTPLink | GRPCLink, model: str, version: str | int | None, timeout: float | None
    ) -> Mapping[str, TensorSpec]:
        """The inputs that are encoded text, by name; none if the server does not tell it."""
        encoded = self._encoded.get((model, version))
        if encoded is None:
            try:
                metadata = await link.ask(questions.ask_of(model, version, questions.MODEL_METADATA), timeout)
            except InvalidResponse as error:
                if not (isinstance(error, ErrorResponse) and error.response_status in _NOT_FOR_US):
                    return {}
                metadata = {}
            encoded = self._encoded[model, version] = _read_encoded(metadata)
        return encoded


def _read_encoded(metadata: Mapping[str, Any]) -> Mapping[str, TensorSpec]:
    encoded: dict[str, TensorSpec] = {}
    inputs = metadata.get("inputs")
    for each in inputs if isinstance(inputs, list) else ():
        parameters = each.get("parameters") if isinstance(each, dict) else None
        content_type = parameters.get("content_type") if isinstance(parameters, dict) else None
        if content_type in _ENCODED and isinstance(each.get("name"), str):
            encoded[each["name"]] = TensorSpec(each["name"], "BYTES", [-1], content_type)
    return encoded
