"""The readers of a callable's parameters, from their annotations and from what is declared. Knows no requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from .._codecs.base import AnyInputCodec
from .._codecs.plain import NumpyCodec
from .._codecs.reader import Reader
from .._codecs.registry import UNTYPED, Codecs
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import Tensor
from .specs import TensorSpec
from .tensor_annotations import TensorAnnotation


class Readers:
    """Makes the readers of a callable's parameters: the annotation decides, else what is declared, else numpy."""

    def __init__(self, codecs: Codecs, declared: Sequence[TensorSpec], content_type: str | None, called: str) -> None:
        self.codecs = codecs
        self.specs = {spec.name: spec for spec in declared}
        self.called = called
        self.request_codec = codecs.requests[content_type] if content_type in codecs.request_only else None
        """The codec of the declared content type, if it makes one value of all tensors."""
        self.content_type = content_type
        self.unannotated: dict[str, str] = {}

    def content_types(self) -> dict[str, str]:
        """The declared content types by name."""
        return {name: spec.content_type for name, spec in self.specs.items() if spec.content_type is not None}

    def _declared_type(self, name: str) -> str | None:
        spec = self.specs.get(name)
        return (spec and spec.content_type) or (None if self.request_codec else self.content_type)

    def tensor(self, annotation: Any, codec: AnyInputCodec | None, name: str) -> Reader | None:
        """The reader of the tensor `name` for an annotation; None if no tensor can become what the annotation says."""
        reader = self.codecs.reader(annotation, codec)
        if reader is None:
            return None
        spec, content_type = self.specs.get(name), self._declared_type(name)
        if spec is not None:
            self._check_datatype(spec, reader.datatypes, reader.annotation)
            if reader.scalar is not None and any(size not in (1, -1) for size in spec.shape):
                raise TypeError(
                    f"{self.called}: input {name!r} is declared with shape {list(spec.shape)}: declare [1] for {reader.annotation}"
                )
            if codec is None and annotation in UNTYPED:
                self.unannotated[name] = content_type or NumpyCodec.content_type
        if content_type is None:
            return reader
        default = reader.by_content_type.get(content_type)
        if default is None:
            raise TypeError(
                f"{self.called}: the content_type {content_type!r} that is declared for {name!r} cannot become {reader.annotation}: "
                f"declare {', '.join(reader.by_content_type)}, or leave it out"
            )
        return msgspec.structs.replace(reader, default=default, content_type=content_type)

    def _check_datatype(self, spec: TensorSpec, datatypes: Collection[str], annotation: str) -> None:
        if datatypes and spec.datatype not in datatypes:
            raise TypeError(
                f"{self.called}: input {spec.name!r} is declared with datatype {spec.datatype}, which cannot become {annotation}: "
                f"declare {' or '.join(datatypes)}, or annotate another type"
            )

    def check_annotated(self, spec: TensorSpec, tensor: TensorAnnotation | None, annotation: Any) -> None:
        """Check a declared input against the datatype in the parameter's annotation."""
        if tensor is not None:
            self._check_datatype(spec, [tensor.datatype], inspect.formatannotation(annotation))

    def shown(self, name: str, reader: Reader | None) -> TensorSpec:
        """An input as it is shown to people: what is declared or annotated, else a guess, with the content type that reads it."""
        content_type = self._declared_type(name) if reader is None else reader.content_type
        spec = self.specs.get(name)
        if spec is not None:
            return TensorSpec(name, spec.datatype, spec.shape, content_type)
        datatype, shape, _ = (reader and reader.shown) or ("FP32", (-1,), None)
        return TensorSpec(name, datatype, shape, content_type)

    def every(
        self, names: Sequence[str], annotation: Any, codec: AnyInputCodec | None = None, datatype: str | None = None
    ) -> Callable[[Tensor, str | None], Any]:
        """How tensors of any name are read for one annotation. The names are those of the declared inputs among them."""
        other = self.tensor(annotation, codec, "")
        if other is None:
            raise TypeError(f"{self.called}: no tensor can become {inspect.formatannotation(annotation)}: annotate np.ndarray")
        by_name = {name: self.tensor(annotation, codec, name) or other for name in names}

        def read(tensor: Tensor, of_request: str | None) -> Any:
            if datatype is not None and tensor.datatype != datatype:
                raise InvalidRequest(f"input {shown(tensor.name)} has datatype {tensor.datatype}: expected {datatype}")
            return by_name.get(tensor.name, other).read(tensor, of_request)

        return read
