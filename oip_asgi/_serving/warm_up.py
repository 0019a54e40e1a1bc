"""Calls a model that has just been loaded, before it answers anybody: the first request is then as quick as the second. Knows no transport.

The calls run as those of requests do, with slots and numbers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .._io import IO
from .._json.tensor_data import from_value
from .._models.handler import Handler
from .._models.model import Model
from .._protocol.datatypes import dtype_of
from .._protocol.errors import InferenceError, ModelFault, error_text
from .._protocol.specs import TensorSpec
from .._protocol.tensors import make_tensor
from .engine import Engine
from .pipeline import infer
from .python_calls import PythonFormat
from .stream import stream

MakeExamples: TypeAlias = Callable[[Sequence[TensorSpec]], list[dict[str, Any]]]
"""Makes an example of each tensor, as JSON has it."""


async def warm_up(engine: Engine, model: Model, make_examples: MakeExamples, io: IO, handler: Handler) -> None:
    """Call what `load=` returned with the examples of `warm_up=`. Raises ModelFault if one fails, or takes longer than `timeout=`."""
    options, stand_in = model.options, model.make_stand_in(handler)
    examples = [_list_examples(handler, make_examples)] if options.warm_up is True else options.warm_up or ()
    for inputs in examples:
        wire = PythonFormat(inputs, {}, (), None, engine.codecs)
        try:
            if stand_in.streams and handler.once is None:
                async for _ in stream(engine, stand_in, wire, io):
                    pass
            else:
                await infer(engine, stand_in, wire, io)
        except InferenceError as error:
            raise ModelFault(f"{model}: a call of warm_up= failed: {error_text(error)}") from error


def _list_examples(handler: Handler, make_examples: MakeExamples) -> Mapping[str, Any]:
    """An example of each input that a request must have, by name."""
    if handler.binding.undeclared:
        raise ModelFault(f"{handler}: warm_up=True needs declared inputs: write inputs=, or the inputs of a call, warm_up=[{{...}}]")
    required = handler.binding.required
    examples = make_examples([spec for spec in handler.shown[0] if spec.name in required or handler.foreign is not None])
    return {
        each["name"]: make_tensor(each["name"], from_value(each["data"], dtype_of(each["datatype"]), tuple(each["shape"])), {})
        for each in examples
    }
