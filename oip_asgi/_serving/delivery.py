"""What a request asks of an output beside its form: its largest elements only, or to be put into shared memory. Knows no transport.

Specification: Triton's Classification Extension and System Shared Memory Extension.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .._models.classification import check_classified, classified
from .._models.specs import TensorSpec
from .._protocol.errors import InvalidRequest, shown
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensor_bytes import view_raw
from .._protocol.tensors import CLASSIFICATION, SHARED_MEMORY, InferenceResponse, Tensor
from .shared_memory import Extent, Regions, place_of

SUPPORTED = (CLASSIFICATION, *SHARED_MEMORY)
"""The parameters of a requested output that are looked at here."""


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """How some outputs of one request leave. It is carried out in a worker thread.

    Args:
        classes: How many of the largest elements are asked for, by output.
        extents: Where in shared memory outputs go.
    """

    classes: dict[str, int]
    extents: dict[str, Extent]

    def deliver(self, response: InferenceResponse, specs: Sequence[TensorSpec]) -> InferenceResponse:
        """The response as its form encodes it. Outputs that go to shared memory are written to it, and stay as they are."""
        labels = {spec.name: spec.labels for spec in specs}
        outputs = [self._classified(tensor, labels.get(tensor.name) or ()) for tensor in response.outputs]
        for tensor in outputs:
            extent = self.extents.get(tensor.name)
            if extent is not None:
                extent.write(view_raw(tensor.array))
        return InferenceResponse(outputs, response.parameters, response.id, response.model_name, response.model_version)

    def _classified(self, tensor: Tensor, labels: Sequence[str]) -> Tensor:
        most = self.classes.get(tensor.name)
        return tensor if most is None else classified(tensor, most, labels)


def delivery_of(outputs: Sequence[RequestOutput], specs: Sequence[TensorSpec], regions: Regions, *, streams: bool) -> Delivery | None:
    """What a request asks of its outputs; None for nothing."""
    classes: dict[str, int] = {}
    extents: dict[str, Extent] = {}
    for output in outputs:
        parameters, where = output.parameters, f"requested output {shown(output.name)}"
        if not parameters:
            continue
        most = _most(parameters, where)
        place = place_of(parameters, where)
        if most:
            classes[output.name] = most
            if "content_type" in parameters:
                raise InvalidRequest(f"{where} has the parameters {CLASSIFICATION} and content_type: expected one of them")
        if place is not None:
            if most or parameters.get("binary_data"):
                other = CLASSIFICATION if most else "binary_data: true"
                raise InvalidRequest(f"{where} goes to shared memory and has the parameter {other}: expected one of them")
            if streams:
                raise InvalidRequest(f"{where} goes to shared memory, but the model answers with a stream: leave the parameter out")
            extents[output.name] = regions.find(place, f"output {shown(output.name)}")
    for spec in specs:
        if spec.name in classes:
            check_classified(spec.name, spec.dtype)
    return Delivery(classes, extents) if classes or extents else None


def _most(parameters: Parameters, where: str) -> int:
    most = parameters.get(CLASSIFICATION, 0)
    if type(most) is not int or most < 0:
        raise InvalidRequest(f"{where} has the parameter {CLASSIFICATION} = {shown(most)}: expected an integer, 0 or more")
    return most
