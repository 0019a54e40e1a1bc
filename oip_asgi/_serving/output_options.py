"""Output options: a request may ask for an output's largest elements only, or for an output in shared memory.

Knows no transport.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._extensions import classification
from .._extensions.rows import ApplyOptions
from .._extensions.shared_memory import Regions
from .._models.handler import Handler
from .._protocol.schemas import RequestOutput


def prepare_output_options(outputs: Sequence[RequestOutput], handler: Handler, regions: Regions) -> ApplyOptions | None:
    """Make what applies a request's output options to its response. None if it has none."""
    dtypes = {spec.name: spec.dtype for spec in handler.outputs}
    labels = {spec.name: spec.labels or () for spec in handler.outputs}
    classify = classification.prepare(outputs, dtypes, labels)
    write = regions.prepare_outputs(outputs, streams=handler.streams)
    if classify is None or write is None:
        return classify or write
    return lambda response: write(classify(response))
