"""The readers of a callable's parameters, from their annotations and from what is declared. Knows no requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from ..codecs.base import AnyInputCodec
from ..codecs.numpy import NumpyCodec
from ..codecs.reader import Reader
from ..codecs.registry import UNTYPED, Codecs
from ..errors import InvalidRequest, shown
from ..tensors import Tensor
from .said import Said
from .specs import TensorSpec


class Readers:
    """Makes the readers of parameters, from their annotations and from what is declared."""

    def __init__(self, codecs: Codecs, specs: dict[str, TensorSpec], of_model: str | None, called: str) -> None:
        self.codecs = codecs
        self.specs = specs
        self.called = called
        self.only_whole = frozenset(codecs.only_whole())
        self.of_columns = frozenset(codecs.of_columns())
        self.of_one = frozenset(codecs.requests) - self.only_whole
        self.whole = codecs.requests[of_model] if of_model in self.only_whole else None
        self.content_type = of_model
        self.unannotated: dict[str, str] = {}

    def content_types(self) -> dict[str, str]:
        """The declared content types by name."""
        return {name: spec.content_type for name, spec in self.specs.items() if spec.content_type is not None}

    def tensor(self, annotation: Any, codec: AnyInputCodec | None, name: str) -> Reader | None:
        """The reader of the tensor `name` for an annotation; None if no tensor can become what the annotation says.

        Raises:
            TypeError: The declared datatype or content type does not fit the annotation.
        """
        reader = self.codecs.reader(annotation, codec)
        if reader is None:
            return None
        spec = self.specs.get(name)
        if spec is not None:
            self._check_datatype(spec, reader.datatypes, reader.annotation)
            if reader.scalar is not None and any(size not in (1, -1) for size in spec.shape):
                raise TypeError(
                    f"{self.called}: input {name!r} is declared with shape {list(spec.shape)}: declare [1] for {reader.annotation}"
                )
        content_type = (spec and spec.content_type) or (None if self.whole else self.content_type)
        if spec is not None and codec is None and annotation in UNTYPED:
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

    def check_said(self, spec: TensorSpec, said: Said | None, annotation: Any) -> None:
        """Check a declared input against what the annotation says of an array's elements.

        Raises:
            TypeError: They contradict each other.
        """
        if said is not None:
            self._check_datatype(spec, [said.datatype], inspect.formatannotation(annotation))

    def shown(self, name: str, reader: Reader | None) -> TensorSpec:
        """An input as it is shown to people: what is declared or annotated, else a guess, with the content type that reads it.

        Args:
            name: The input's name.
            reader: What reads it; None if no parameter has its name.
        """
        spec = self.specs.get(name)
        if reader is not None:
            content_type = reader.content_type
        else:
            content_type = (spec and spec.content_type) or (None if self.whole else self.content_type)
        if spec is not None:
            return TensorSpec(name, spec.datatype, spec.shape, content_type)
        datatype, shape, _ = (reader and reader.shown) or ("FP32", (-1,), None)
        return TensorSpec(name, datatype, shape, content_type)

    def every(
        self, names: Sequence[str], annotation: Any, codec: AnyInputCodec | None = None, datatype: str | None = None
    ) -> Callable[[Tensor, str | None], Any]:
        """How tensors of any name are read for one annotation.

        Args:
            names: The names of the declared inputs among them.
            annotation: The annotation, without `Optional` and `Annotated`.
            codec: The codec in `Annotated`, or None.
            datatype: The only datatype that they may have; None for any.

        Raises:
            TypeError: No tensor can become what the annotation says, or a declared one cannot.
        """
        other = self.tensor(annotation, codec, "")
        if other is None:
            raise TypeError(f"{self.called}: no tensor can become {inspect.formatannotation(annotation)}: annotate np.ndarray")
        by_name = {name: self.tensor(annotation, codec, name) or other for name in names}

        def read(tensor: Tensor, of_request: str | None) -> Any:
            if datatype is not None and tensor.datatype != datatype:
                raise InvalidRequest(f"input {shown(tensor.name)} has datatype {tensor.datatype}: expected {datatype}")
            return by_name.get(tensor.name, other).read(tensor, of_request)

        return read
