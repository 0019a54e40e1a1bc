"""A callable, ready to be called with requests: its arguments are bound and its outputs known. Knows no limits and no lifecycle.

A model that is loaded again gets a new one. Each request keeps the one that it began with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from .._codecs.content_types import Codecs
from .._codecs.dataframes import PandasCodec
from .._codecs.frame_columns import KNOWN_DTYPES, is_dtype
from .._protocol.specs import TensorSpec
from .._rest.generate import RESERVED_INPUTS, RESERVED_OUTPUTS
from .annotations import Outputs
from .binding import Binding
from .callables import STREAMS, find_owner, kind_of
from .limiter import Uses
from .model_options import ModelOptions
from .signature import Signature


class Loaded(msgspec.Struct, frozen=True, eq=False):
    """What `load=` returns in place of the function alone, if more of the model is known only when it is loaded.

    What `InferenceServer.register` says goes before the same field here.

    Args:
        function (Callable): The function that answers.
        inputs (Sequence[TensorSpec], default ()): The inputs that it takes. Every request is checked against them.
        outputs (Sequence[TensorSpec], default ()): The outputs that it returns.
        optional (Collection[str], default ()): The names of inputs that a request may leave out. For functions that take an
            `InferenceRequest`; others have defaults.
        ready (Callable[[], Any] | None, default None): As `ready=` of `register`.
        unload (Callable[[], Any] | None, default None): As `unload=` of `register`.

    Example:
        >>> def load() -> Loaded:
        ...     session = onnxruntime.InferenceSession("model.onnx")
        ...     return Loaded(function=lambda x: session.run(None, {"x": x})[0], inputs=[TensorSpec("x", "FP32", [-1, 4])])
    """

    function: Callable[..., Any]
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    optional: Collection[str] = ()
    ready: Callable[[], Any] | None = None
    unload: Callable[..., Any] | None = None


class Foreign(Loaded, frozen=True, kw_only=True, eq=False):
    """The same for a function that was written for another server. It takes an `InferenceRequest`, and decodes that itself.

    `inputs` and `outputs` are what metadata shows: requests are not checked against them, and what `register` declares does not count.

    Args:
        content_types: Those that its requests may name beside the server's.
        once: Answers a request that wants one response, if `function` streams.
    """

    content_types: Sequence[str] = ()
    once: Callable[..., Any] | None = None


class Handler:
    """How a model's function is called, and what is known of its outputs."""

    def __init__(self, made: Callable[..., Any] | Loaded, options: ModelOptions, codecs: Codecs, *, is_loaded: bool = True) -> None:
        loaded = made if isinstance(made, Loaded) else Loaded(function=made)
        function, foreign = loaded.function, loaded if isinstance(loaded, Foreign) else None
        options = _merge(options, loaded)
        options.check_function(function)
        self.function = function
        self.ready, self.unload = options.ready, options.unload
        self.kind = kind_of(function, options.run)
        self.is_measured = self.kind in ("async", "async stream")
        """Whether its next call or item is measured: how long each part of it holds the event loop."""
        self.is_warned = False
        """Whether the log has a warning of that."""
        self.streams = self.kind in STREAMS
        self.uses = Uses()
        self._options = options
        declared, content_type = tuple(options.inputs), options.content_type
        if foreign is not None:
            codecs = codecs.with_names(foreign.content_types)
        self.codecs = codecs
        """The content types that requests may name."""
        self.foreign = foreign
        if content_type is not None:
            codecs.check_declared(content_type, str(options), of_request=True)
        self._check_content_types((*declared, *options.outputs), codecs)
        self.binding: Binding = Signature(function, declared, codecs, content_type, loaded.optional).bind()
        if is_loaded and not self.binding.knows_columns:  # `load=` may fit it
            raise TypeError(
                f"{options}: the {type(find_owner(function)).__name__} does not know the names of its columns, so it would take any, in "
                "any order: write inputs=specs_of(X), with the frame that it was fitted with"
            )
        returned = self.binding.returned
        if returned.is_partial and not options.outputs:
            raise TypeError(f"{options}: its return annotation declares some outputs only: give each a TensorSpec, or use outputs=")
        if options.cache is not None and self.binding.of_one_request is not None:
            raise TypeError(
                f"{options}: it takes an InferenceRequest or an InferenceContext, which may differ for equal inputs: leave cache= out, "
                "or take the tensors"
            )
        self.inputs = self.binding.inputs
        self.outputs = tuple(options.outputs) or returned.specs
        self._check_content_types((*self.inputs, *self.outputs), codecs)
        self.content_type = None if content_type in codecs.request_only else content_type
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
            self._check_batching(is_foreign=foreign is not None)
        self.answers = Outputs(self.outputs, returned, codecs)
        self.once: Handler | None = None
        """Answers a request that wants one response, if this streams and there is such a function."""
        self.shown: tuple[Sequence[TensorSpec], Sequence[TensorSpec]] = (self.inputs, self.outputs)
        """The inputs and outputs of its metadata."""
        if foreign is not None:
            self.shown = foreign.inputs, foreign.outputs
            if foreign.once is not None:
                self.once = Handler(msgspec.structs.replace(foreign, function=foreign.once, once=None), options, codecs)
                self.once.uses = self.uses
        self.shown_inputs = {spec.name: spec for spec in self.shown[0]}
        self._bindings: dict[str, Binding] = {}
        """How the function is called if a request has one of these content types: with one value made of all tensors, where one made of one
        tensor is declared, or the other way round."""
        if self.binding.is_untyped:
            self._bindings = {
                name: Signature(function, declared, codecs, name).bind() for name in codecs.request_only if name != content_type
            }
            if content_type in codecs.request_only:
                with contextlib.suppress(TypeError):  # more is declared than one tensor could be
                    self._bindings.update(dict.fromkeys(codecs.inputs, Signature(function, declared, codecs, None).bind()))

    def __str__(self) -> str:
        return str(self._options)

    def binding_for(self, content_type: str | None) -> Binding:
        """How the function is called for a request with this content type: what a request says goes before what is declared."""
        return self.binding if content_type is None else self._bindings.get(content_type, self.binding)

    def _check_members(self) -> None:
        outputs = [spec.name for spec in self.outputs]
        for what, names, reserved in (("input", self.binding.named, RESERVED_INPUTS), ("output", outputs, RESERVED_OUTPUTS)):
            for name in reserved.intersection(names):
                raise ValueError(
                    f"{self._options}: {what} {name!r} of a generator has the name of another member of generate's JSON objects "
                    f"({', '.join(sorted(reserved))}): give it another name"
                )

    def _check_content_types(self, specs: Sequence[TensorSpec], codecs: Codecs) -> None:
        for spec in specs:
            if spec.pd_dtype is not None and not is_dtype(spec.pd_dtype):
                raise ValueError(f"{self._options}: TensorSpec {spec.name!r} has pd_dtype={spec.pd_dtype!r}: expected {KNOWN_DTYPES}")
            if spec.content_type is None:
                continue
            codecs.check_declared(spec.content_type, f"{self._options}: TensorSpec {spec.name!r}", of_request=False)
            datatype = codecs.inputs[spec.content_type].datatype
            if datatype not in (None, spec.datatype):
                raise ValueError(
                    f"{self._options}: TensorSpec {spec.name!r} has content_type={spec.content_type!r}, which needs datatype {datatype}"
                )

    def _check_batching(self, *, is_foreign: bool) -> None:
        """Check that the function can be called with the rows of several requests."""
        here = f"{self._options}: max_batch_size= calls the function with the rows of several requests"
        binding, wanted = self.binding, self.binding.of_one_request
        if self.streams:
            raise TypeError(f"{here}, but a generator answers one request: leave max_batch_size= out, or return arrays")
        if wanted is not None and not is_foreign:
            raise TypeError(
                f"{here}, but it takes an {wanted.__name__}, which belongs to one request: leave that parameter out, or max_batch_size="
            )
        takes = None if binding.request_reader is None else binding.request_reader.codec
        for what, codec in (("takes", takes), ("returns", binding.returned.request_codec)):
            if codec is not None and codec is not PandasCodec:
                raise TypeError(
                    f"{here}, but it {what} what the codec of whole requests {codec.content_type!r} makes: use arrays, a codec of tensors "
                    "or a pandas.DataFrame, or leave max_batch_size= out"
                )
        inputs = [spec for spec in self.inputs if spec.name not in binding.scalars]
        for name, specs in (("input", inputs), ("output", self.outputs)):
            for spec in specs:
                if not spec.shape or spec.shape[0] != -1:
                    shape = [-1, *(spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape)]
                    raise ValueError(f"{here}, but {name} {spec.name!r} is declared with the shape {list(spec.shape)}: declare {shape}")


def _merge(options: ModelOptions, loaded: Loaded) -> ModelOptions:
    """The options of a model, with what was known only when it was loaded."""
    is_foreign = isinstance(loaded, Foreign)
    return msgspec.structs.replace(
        options,
        inputs=() if is_foreign else options.inputs or loaded.inputs,
        outputs=() if is_foreign else options.outputs or loaded.outputs,
        content_type=None if is_foreign else options.content_type,
        ready=options.ready or loaded.ready,
        unload=options.unload or loaded.unload,
    )
