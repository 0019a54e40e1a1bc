"""A callable, ready to be called with requests: its arguments are bound and its outputs known. Knows no limits and no life.

A model that is loaded again gets a new one. Each request keeps the one that it began with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from .._codecs.registry import Codecs
from .._rest.generate import RESERVED_INPUTS, RESERVED_OUTPUTS
from .annotations import Outputs
from .batching import check_batching
from .binding import Binding
from .callables import STREAMS, kind_of
from .options import ModelOptions
from .signature import bind
from .specs import TensorSpec
from .uses import Uses


class Handler:
    """How a model's function is called, and what is known of its outputs."""

    def __init__(self, function: Callable[..., Any], options: ModelOptions, codecs: Codecs) -> None:
        options.check_function(function)
        self.function = function
        self.kind = kind_of(function, options.run)
        self.streams = self.kind in STREAMS
        self.uses = Uses()
        self._options = options
        self._codecs = codecs
        self._check_content_types((*options.inputs, *options.outputs))
        inputs = tuple(options.inputs)
        self.binding: Binding = bind(function, inputs, codecs, options.content_type)
        if self.binding.returned.is_partial and not options.outputs:
            raise TypeError(f"{options}: its return annotation declares some outputs only: give each a TensorSpec, or use outputs=")
        if options.cache is not None and self.binding.takes_surroundings:
            raise TypeError(
                f"{options}: it takes an InferenceRequest or an InferenceContext, which are other ones for equal inputs: leave cache= out, "
                "or take the tensors"
            )
        self.inputs = self.binding.inputs
        self.outputs = tuple(options.outputs) or self.binding.returned.specs
        self._check_content_types((*self.inputs, *self.outputs))
        self.content_type = None if options.content_type in codecs.request_only else options.content_type
        """The declared content type of each tensor that `content_types` does not name."""
        self.content_types = {spec.name: spec.content_type for spec in self.inputs if spec.content_type is not None}
        for spec in self.inputs:
            if spec.labels is not None:
                raise ValueError(f"{options}: TensorSpec {spec.name!r} has labels, and is an input: labels are for outputs")
        for what, specs in (("input", self.inputs), ("output", self.outputs)):
            names = [spec.name for spec in specs]
            if len(set(names)) != len(names):
                raise ValueError(f"{options}: two {what}s have the same name among {names}")
        if self.streams:
            self._check_members()
        if options.max_batch_size is not None:
            check_batching(options, self.kind, self.binding, self.inputs, self.outputs)
        self.answers = Outputs(self.outputs, self.binding.returned, codecs)
        self._bindings = self._other_bindings(inputs) if self.binding.is_untyped else {}

    def binding_for(self, content_type: str | None) -> Binding:
        """How the function is called for a request with this content type: what a request says goes before what is declared."""
        return self.binding if content_type is None else self._bindings.get(content_type, self.binding)

    def _other_bindings(self, inputs: tuple[TensorSpec, ...]) -> dict[str, Binding]:
        """How it is called for content types of requests that make of its parameter what is not declared: one value of all tensors,
        or of one where it is declared to have all."""
        function, codecs, declared = self.function, self._codecs, self._options.content_type
        bindings = {name: bind(function, inputs, codecs, name) for name in codecs.request_only if name != declared}
        if declared in codecs.request_only:
            with contextlib.suppress(TypeError):  # more is declared than one tensor could be
                bindings.update(dict.fromkeys(codecs.inputs, bind(function, inputs, codecs, None)))
        return bindings

    def _check_members(self) -> None:
        outputs = [spec.name for spec in self.outputs]
        for what, names, reserved in (("input", self.binding.named, RESERVED_INPUTS), ("output", outputs, RESERVED_OUTPUTS)):
            for name in reserved.intersection(names):
                raise ValueError(
                    f"{self._options}: {what} {name!r} of a generator has the name of another member of generate's JSON objects "
                    f"({', '.join(sorted(reserved))}): give it another name"
                )

    def _check_content_types(self, specs: Sequence[TensorSpec]) -> None:
        options, codecs = self._options, self._codecs
        if options.content_type is not None:
            codecs.check_declared(options.content_type, str(options), of_request=True)
        for spec in specs:
            if spec.content_type is None:
                continue
            codecs.check_declared(spec.content_type, f"{options}: TensorSpec {spec.name!r}", of_request=False)
            datatype = codecs.inputs[spec.content_type].datatype
            if datatype not in (None, spec.datatype):
                raise ValueError(
                    f"{options}: TensorSpec {spec.name!r} has content_type={spec.content_type!r}, which needs datatype {datatype}"
                )
