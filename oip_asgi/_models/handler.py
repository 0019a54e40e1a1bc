"""A callable, ready to be called with requests: its arguments are bound and its outputs known. Knows no
limits and no lifecycle.

A model that is loaded again gets a new one. Each request keeps the one that it took in `let_in`, before it
waited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from .._codecs.column_dtypes import KNOWN_DTYPES, is_dtype
from .._codecs.content_types import Codecs
from .._codecs.dataframes import PandasCodec
from .._codecs.rows import Rows
from .._protocol.array_requests import ArrayModel
from .._protocol.errors import list_names, logger
from .._protocol.specs import TensorSpec
from .._rest.generate import RESERVED_INPUTS, RESERVED_OUTPUTS
from .arguments import Binding, take_array
from .bind import bind
from .callables import STREAMS, Kind, Outputs, find_owner, kind_of
from .estimators import declare, takes_columns
from .limiter import Uses
from .model_options import ModelOptions


class Loaded(msgspec.Struct, frozen=True, eq=False):
    """What `load=` returns in place of the function alone, if more of the model is known only when it is
    loaded.

    What `InferenceServer.register` says goes before the same field here.

    Args:
        function (Callable): The function that answers.
        inputs (Sequence[TensorSpec], default ()): The inputs that it takes. Every request is checked against
            them.
        outputs (Sequence[TensorSpec], default ()): The outputs that it returns.
        optional (Collection[str], default ()): The names of inputs that a request may leave out. For
            functions that take an `InferenceRequest`; others have defaults.
        ready (Callable[[], Any] | None, default None): As `ready=` of `register`.
        unload (Callable[[], Any] | None, default None): As `unload=` of `register`.
        once (Callable | None, default None): Answers a request that wants one response, if `function`
            streams. Without it, such a request is refused.
        content_types (Collection[str] | None, default None): Given for a function that reads an
            `InferenceRequest` itself, as one that was written for another server: requests may name these
            content types beside the server's. Then `inputs` and `outputs` are only shown: no request is
            checked against them, and texts may have a shape that does not count them. What `register`
            declares does not count.

    Example:
        >>> def load() -> Loaded:
        ...     session = onnxruntime.InferenceSession("model.onnx")
        ...     specs = [TensorSpec("x", "FP32", [-1, 4])]
        ...     return Loaded(function=lambda x: session.run(None, {"x": x})[0], inputs=specs)
    """

    function: Callable[..., Any]
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    optional: Collection[str] = ()
    ready: Callable[[], Any] | None = None
    unload: Callable[..., Any] | None = None
    once: Callable[..., Any] | None = None
    content_types: Collection[str] | None = None


class Watch(msgspec.Struct, eq=False):
    """What is known of how long a function holds its event loop."""

    is_measured: bool
    """Whether each part of the function's next call or item is measured."""
    is_warned: bool = False
    """Whether the log has a warning that it holds its event loop for long."""


class Handler(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a model's function is called, and what is known of its outputs."""

    options: ModelOptions
    function: Callable[..., Any]
    kind: Kind
    streams: bool
    binding: Binding
    others: Mapping[str, Binding]
    """How the function is called for requests with these content types. They make one value of all tensors
    where the declaration makes one of each tensor, or the other way round."""
    shown: tuple[Sequence[TensorSpec], Sequence[TensorSpec]]
    """The inputs and outputs of its metadata."""
    shown_inputs: Mapping[str, TensorSpec]
    answers: Outputs
    codecs: Codecs
    """The content types that requests may name."""
    content_type: str | None
    """The declared content type of each tensor for which nothing else is declared."""
    is_checked: bool
    """Whether requests are checked against the inputs."""
    once: Handler | None
    """Answers a request that wants one response, if this streams and there is such a function."""
    uses: Uses
    watch: Watch
    array_model: ArrayModel | None
    """How it is called with arrays, if they are all that it takes and returns."""

    def __str__(self) -> str:
        return str(self.options)


def make_handler(
    source: Callable[..., Any] | Loaded,
    options: ModelOptions,
    codecs: Codecs,
    *,
    is_loaded: bool = True,
    uses: Uses | None = None,
) -> Handler:
    """Bind the function that was registered, or that `load=` returned. Raises TypeError or ValueError if it
    cannot be a model."""
    loaded = source if isinstance(source, Loaded) else Loaded(function=source)
    function, is_checked, uses = loaded.function, loaded.content_types is None, uses or Uses()
    if isinstance(loaded.content_types, str):
        raise TypeError(
            f"{options}: Loaded(content_types={loaded.content_types!r}) is one text: write a list, "
            f"[{loaded.content_types!r}]"
        )
    if loaded.once is not None and kind_of(loaded.once, "thread") in STREAMS:
        raise TypeError(f"{options}: Loaded(once=) answers once, and has a generator: return the answer")
    options = msgspec.structs.replace(
        options,
        inputs=(options.inputs or loaded.inputs) if is_checked else (),
        outputs=(options.outputs or loaded.outputs) if is_checked else (),
        content_type=options.content_type if is_checked else None,
        ready=options.ready or loaded.ready,
        unload=options.unload or loaded.unload,
    )
    options.check_function(function)
    own = tuple(options.inputs)
    if is_checked:
        options = _complete_options(options, function, codecs, is_loaded=is_loaded)
    content_type, kind = options.content_type, kind_of(function, options.run)
    streams = kind in STREAMS
    if loaded.content_types is not None:
        codecs = codecs.with_names(loaded.content_types)
    if content_type is not None:
        codecs.check_declared(content_type, str(options), of_request=True)
    _check_content_types((*options.inputs, *options.outputs), options, codecs)
    binding, others = _bind_all(function, own, options, codecs, loaded.optional)
    inputs, outputs = binding.inputs.specs, tuple(options.outputs) or binding.returned.specs
    _check_content_types((*inputs, *outputs), options, codecs)
    _check_declared(binding, outputs, options, function if is_loaded else None)
    if streams:
        _check_member_names(binding, outputs, options)
    if options.max_batch_size is not None:
        _check_batching(binding, outputs, options, streams=streams, is_checked=is_checked)
    once = None
    if loaded.once is not None:
        answers_once = msgspec.structs.replace(loaded, function=loaded.once, once=None)
        once = make_handler(answers_once, options, codecs, uses=uses)
    shown = (inputs, outputs) if is_checked else (loaded.inputs, loaded.outputs)
    answers = Outputs(outputs, binding.returned, codecs)
    return Handler(
        options=options,
        function=function,
        kind=kind,
        streams=streams,
        binding=binding,
        others=others,
        shown=shown,
        shown_inputs={spec.name: spec for spec in shown[0]},
        answers=answers,
        codecs=codecs,
        content_type=None if content_type in codecs.request_only else content_type,
        is_checked=is_checked,
        once=once,
        uses=uses,
        watch=Watch(is_measured=kind in ("async", "async stream")),
        array_model=_find_array_model(binding, answers, options) if is_checked and not streams else None,
    )


def _find_array_model(binding: Binding, answers: Outputs, options: ModelOptions) -> ArrayModel | None:
    parameters, entries = binding.arguments.parameters, binding.inputs.entries
    names, keywords = [each.name for each in parameters], [each.keyword for each in parameters]
    outputs = answers.named or (() if answers.only is None else (answers.only,))
    if (
        not (parameters and outputs and binding.is_plain and answers.are_open)
        or any(each.from_ is not take_array for each in parameters)
        or keywords not in (names, [None] * len(names))
        or any(spec is not None and spec.dtype.hasobject for _, spec in outputs)
        # a cache keeps responses, and a batch joins arrays
        or options.cache is not None
        or options.max_batch_size is not None
    ):
        return None
    inputs = tuple((each.name, entries[each.name].spec) for each in parameters)
    return ArrayModel(options.name, options.version, inputs, outputs, keywords == names)


def _bind_all(
    function: Callable[..., Any],
    own: Sequence[TensorSpec],
    options: ModelOptions,
    codecs: Codecs,
    optional: Collection[str],
) -> tuple[Binding, Mapping[str, Binding]]:
    """How the function is called, and how for requests of some content types. For these, only the `own`
    inputs count: those that a user has declared."""
    content_type, others = options.content_type, dict[str, Binding]()
    binding = bind(function, tuple(options.inputs), codecs, content_type, optional)
    if binding.is_untyped:
        # without `pd` for an estimator that does not know its columns
        others = {
            name: other
            for name in codecs.request_only
            if name != content_type and (other := bind(function, own, codecs, name)).knows_columns
        }
        if content_type in codecs.request_only:
            with contextlib.suppress(TypeError):  # more is declared than one tensor could be
                others.update(dict.fromkeys(codecs.inputs, bind(function, own, codecs, None)))
    return binding, others


def _check_declared(
    binding: Binding, outputs: Sequence[TensorSpec], options: ModelOptions, loaded: Callable[..., Any] | None
) -> None:
    if loaded is not None and not binding.knows_columns:  # `load=` may fit it
        raise TypeError(
            f"{options}: the {type(find_owner(loaded)).__name__} does not know the names of its columns, so "
            "it would take any, in "
            "any order: write inputs=specs_of(X), with the frame that it was fitted with"
        )
    if binding.returned.is_partial and not options.outputs:
        raise TypeError(
            f"{options}: its return annotation declares some outputs only: give each a TensorSpec, or use "
            "outputs="
        )
    if options.cache is not None and binding.arguments.of_one_request is not None:
        raise TypeError(
            f"{options}: it takes an InferenceRequest or an InferenceContext, which may differ for equal "
            "inputs: leave cache= out, "
            "or take the tensors"
        )
    for spec in binding.inputs.specs:
        if spec.labels is not None:
            raise ValueError(
                f"{options}: TensorSpec {spec.name!r} has labels, and is an input: labels are for outputs"
            )
    names = [spec.name for spec in outputs]
    if len(set(names)) != len(names):
        raise ValueError(f"{options}: two outputs have the same name among {names}")


def _check_member_names(binding: Binding, outputs: Sequence[TensorSpec], options: ModelOptions) -> None:
    for what, names, reserved in (
        ("input", binding.arguments.named, RESERVED_INPUTS),
        ("output", [spec.name for spec in outputs], RESERVED_OUTPUTS),
    ):
        for name in reserved.intersection(names):
            raise ValueError(
                f"{options}: {what} {name!r} of a generator has the name of another member of generate's "
                "JSON objects "
                f"({', '.join(sorted(reserved))}): give it another name"
            )


def _check_content_types(specs: Sequence[TensorSpec], options: ModelOptions, codecs: Codecs) -> None:
    for spec in specs:
        if spec.pd_dtype is not None and not is_dtype(spec.pd_dtype):
            raise ValueError(
                f"{options}: TensorSpec {spec.name!r} has pd_dtype={spec.pd_dtype!r}: expected {KNOWN_DTYPES}"
            )
        if spec.content_type is None:
            continue
        codecs.check_declared(spec.content_type, f"{options}: TensorSpec {spec.name!r}", of_request=False)
        datatype = codecs.inputs[spec.content_type].datatype
        if datatype not in (None, spec.datatype):
            raise ValueError(
                f"{options}: TensorSpec {spec.name!r} has content_type={spec.content_type!r}, which needs "
                f"datatype {datatype}"
            )


def _check_batching(
    binding: Binding, outputs: Sequence[TensorSpec], options: ModelOptions, *, streams: bool, is_checked: bool
) -> None:
    """Check that the function can be called with the rows of several requests."""
    here = f"{options}: max_batch_size= calls the function with the rows of several requests"
    one_request, whole = binding.arguments.of_one_request, binding.arguments.whole
    if streams:
        raise TypeError(
            f"{here}, but a generator answers one request: leave max_batch_size= out, or return arrays"
        )
    if one_request is not None and is_checked:
        raise TypeError(
            f"{here}, but it takes an {one_request.__name__}, which belongs to one request: leave that "
            "parameter out, or max_batch_size="
        )
    for what, codec in (
        ("takes", None if whole is None else whole.codec),
        ("returns", binding.returned.request_codec),
    ):
        if isinstance(codec, Rows) and not codec.is_list:
            raise TypeError(
                f"{here}, but it {what} one {codec.cls.__name__}: write list[{codec.cls.__name__}], or "
                "leave max_batch_size= out"
            )
        if codec is not None and codec is not PandasCodec and not isinstance(codec, Rows):
            raise TypeError(
                f"{here}, but it {what} what the codec of whole requests {codec.content_type!r} makes: use "
                "arrays, a codec of tensors "
                "or a pandas.DataFrame, or leave max_batch_size= out"
            )
    inputs = [spec for spec in binding.inputs.specs if spec.name not in binding.inputs.scalars]
    for name, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            if not spec.shape or spec.shape[0] != -1:
                shape = [-1, *(spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape)]
                raise ValueError(
                    f"{here}, but {name} {spec.name!r} is declared with the shape {list(spec.shape)}: "
                    f"declare {shape}"
                )


def _complete_options(
    options: ModelOptions, function: Callable[..., Any], codecs: Codecs, *, is_loaded: bool
) -> ModelOptions:
    """The options with what a fitted estimator says of itself, where they declare no inputs."""
    if options.inputs:
        is_frame = options.content_type is None and takes_columns(function, options.inputs)
        return msgspec.structs.replace(options, content_type="pd") if is_frame else options
    try:
        declaration = declare(function, has_frames=PandasCodec in codecs.requests.values())
    except ValueError as error:
        raise ValueError(f"{options}: {error}") from None
    if declaration is None or options.content_type not in (None, declaration.content_type):
        return options
    try:
        bind(function, declaration.inputs, codecs, declaration.content_type)
    except (TypeError, ValueError):  # a method of other parameters
        return options
    unchecked = [
        spec.name for spec in declaration.inputs if spec.other_datatypes == "all" and not spec.is_number
    ]
    if unchecked and is_loaded:
        logger.warning(
            "%s: the datatypes of the columns %s are not checked: to check them, write inputs=specs_of(X), "
            "with the frame of the training",
            options, list_names(unchecked),
        )  # fmt: skip
    return msgspec.structs.replace(
        options,
        inputs=tuple(declaration.inputs),
        outputs=options.outputs or tuple(declaration.outputs),
        content_type=declaration.content_type,
    )
