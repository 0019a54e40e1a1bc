"""What a model declares of its tensors, read from its metadata. A client asks for it before it first sends a
list to the model, which then becomes what is declared, as on the server itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from .._codecs.column_dtypes import CATEGORIES, DTYPE, is_dtype
from .._codecs.content_types import default_codecs
from .._protocol.errors import ErrorResponse, InferenceError, InvalidResponse, ModelFault, show
from .._protocol.specs import OpenSpec, TensorSpec
from .._protocol.tensors import InferenceResponse, Tensor
from . import _questions as questions
from ._questions import Inference, Options

if TYPE_CHECKING:
    from ._grpc import GRPCLink
    from ._http import HTTPLink


class Calls:
    """Calls of models, with what is known of these: both clients make them here."""

    def __init__(self, link: HTTPLink | GRPCLink, max_body_bytes: int | None) -> None:
        self.link, self._limit = link, max_body_bytes
        self._specs: dict[tuple[str, str | int | None], Mapping[str, TensorSpec]] = {}

    async def infer(
        self, model: str, inputs: Any, timeout: float | None, **options: Unpack[Options]
    ) -> InferenceResponse:
        with self._forgotten_if_refused(model, options):
            inference = await self._make_inference(model, inputs, timeout, options)
            return await self.link.infer(inference, timeout)

    async def stream(
        self, model: str, inputs: Any, timeout: float | None, options: Options
    ) -> AsyncGenerator[InferenceResponse]:
        with self._forgotten_if_refused(model, options):
            inference = await self._make_inference(model, inputs, timeout, options)
            async with aclosing(self.link.stream(inference, timeout)) as responses:
                async for response in responses:
                    yield response

    async def _make_inference(
        self, model: str, inputs: Any, timeout: float | None, options: Options
    ) -> Inference:
        specs = await self._find(model, inputs, timeout, options)
        return questions.make_inference(specs, self._limit, model, inputs, **options)

    async def _find(
        self, model: str, inputs: Any, timeout: float | None, options: Options
    ) -> Mapping[str, TensorSpec]:
        """The inputs of a model, by name; none if the values have no lists or scalars, or the server does not
        tell them."""
        if not isinstance(inputs, Mapping) or all(
            isinstance(value, Tensor) or hasattr(value, "dtype") for value in inputs.values()
        ):
            return {}  # arrays, columns and tensors say themselves what they are
        version = options.get("version")
        specs = self._specs.get((model, version))
        if specs is None:
            try:
                metadata = await self.link.ask(
                    questions.ask_of(model, version, questions.MODEL_METADATA), timeout
                )
                specs = {spec.name: spec for spec in read_specs(metadata, "inputs")}
            except (InvalidResponse, ModelFault) as error:
                specs = {}
                if isinstance(error, ErrorResponse) and error.response_status == 503:  # it is not loaded yet
                    return specs
            self._specs[model, version] = specs
        return specs

    @contextmanager
    def _forgotten_if_refused(self, model: str, options: Options) -> Iterator[None]:
        """Around a call: if it is refused, here or by the server, the model may be another one by now, and is
        asked again before the next list; not if this call has asked itself, as it is the values then."""
        key = model, options.get("version")
        was_known = key in self._specs
        try:
            yield
        except InferenceError:
            if was_known:
                self._specs.pop(key, None)
            raise


def get_list(document: Mapping[str, Any], name: str) -> list[Any]:
    """A list of a document; an empty one if there is something else."""
    return value if isinstance(value := document.get(name), list) else []


def read_specs(metadata: Mapping[str, Any], what: str) -> list[TensorSpec]:
    """Read what a model declares, as a `Client` does before it sends lists.

    Args:
        metadata: What `Client.model_metadata` returns.
        what: "inputs" or "outputs".

    Returns:
        One for each that is declared, in the model's order; none if it declares nothing.

    Raises:
        InferenceError: The metadata is not as the protocol has it, or has an unknown datatype.

    Example:
        >>> [spec] = read_specs({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}, "inputs")
        >>> spec.name, spec.shape, spec.may_miss
        ('x', (-1, 4), False)
    """
    specs: list[TensorSpec] = []
    for each in get_list(metadata, what):
        try:
            shape, parameters = [int(size) for size in each["shape"]], each.get("parameters") or {}
            fields = {**_find_column(parameters, each["datatype"]), **OpenSpec.find_fields(shape, parameters)}
            specs.append(OpenSpec(each["name"], each["datatype"], shape, **fields))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelFault(
                f"the metadata of the model has {show(each)} among its {what}: {error}"
            ) from None
    return specs


def _find_column(parameters: Mapping[str, Any], datatype: str) -> dict[str, Any]:
    """What the parameters of a declared tensor say of a data frame's column, if this server has such a
    content type and dtype."""
    content_type, dtype, categories = map(parameters.get, ("content_type", DTYPE, CATEGORIES))
    codec = default_codecs().inputs.get(content_type) if isinstance(content_type, str) else None
    return {
        "content_type": content_type if codec is not None and codec.datatype in (None, datatype) else None,
        **(
            {DTYPE: dtype, CATEGORIES: categories}
            if is_dtype(dtype) and (dtype == "category") is isinstance(categories, str)
            else {}
        ),
    }
