"""How a call fails: the error for the client, its `Retry-After`, and what the log says of it.

503 means that the model is busy or unloaded, or that the server stops; 504 that the answer is late. What user
code raised is 500, or the status that it names. The statuses and their codes of gRPC are in
`_protocol.errors`.

Knows no transport.

`Lifecycle.make_refusal` of `_models.lifecycle` makes the 503 of a model that is loading, or whose load has
failed, and `_serving.stream` makes the 504 of a stream that is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .._codecs.plain import NumpyCodec
from .._io import DeadlinePassed, QuitWithin, Stopped
from .._models.callables import find_place
from .._models.estimators import refuses_request
from .._models.model import Model
from .._protocol.errors import (
    SOON,
    Busy,
    InferenceError,
    InvalidRequest,
    ModelFailed,
    ModelFault,
    NotReady,
    TimedOut,
    error_text,
    escape,
    log_raised,
    logger,
    name_request,
    show,
)
from .._protocol.specs import write_spec
from .call import Call, ModelRaised
from .observing import within
from .user_code import MOST_SECONDS, convert_host_error, find_callers, is_sync_only

_OF_ANOTHER_TYPE: Final = (AttributeError, LookupError, ModelFault, TypeError, ValueError)
"""What a model raises if it gets an argument of a type that it was not written for. `ModelFault` says that
its result was refused."""


_RAISE_HINT: Final = (
    ': to answer the client with a status, raise oip_asgi.InferenceError("what was wrong", status=404)'
)
_SUGGESTED: Final = 5
"""The most inputs for which the log writes a declaration."""

_LONG: Final = 600
"""The log has no declaration of so many characters: clients choose the names of undeclared inputs."""

_WRITABLE_HINT: Final = ": inputs are read-only; in the function, change a copy: x = x.copy()"

FAILURES: Final = (DeadlinePassed, Stopped, ModelRaised, QuitWithin)
"""What a call raises, and what `as_error` then makes an error for the client."""


def as_error(call: Call[Any], failure: Exception) -> InferenceError:
    """Give the slot up, and make the error for the client of one of `FAILURES`, with the same cause. What
    user code raised is logged, inside the call's span."""
    call.slot.give_up()  # before the tracer and the log, whose own code may raise
    error: InferenceError
    with within(call.span):
        if type(failure) is DeadlinePassed:
            error = _make_late_error(call, failure.__cause__)
        elif type(failure) is Stopped and call.slot.state == "unloaded":
            error = call.model.lifecycle.make_refusal("it was unloaded")
        elif type(failure) is Stopped:
            error = make_stopping_error(call.model)
        else:
            is_logged = isinstance(failure, ModelRaised) and failure.is_logged
            error = _make_model_error(call, failure.__cause__ or failure, is_logged=is_logged)
    error.__cause__ = failure.__cause__
    return error


def _make_late_error(call: Call[Any], raised: BaseException | None) -> TimedOut:
    fields, request = call.log_fields(), name_request(call.timings.id)
    # a thread has taken it just now
    has_begun = call.timings.started or call.slot.state in ("held", "given up")
    waited = "" if has_begun else ": the request still waited for its turn, and had not begun to run"
    logger.warning(
        "%s took more than %g seconds for %s%s", call.model, call.seconds, request, waited, extra=fields
    )
    if raised is not None:
        call.log_late(raised)
    return TimedOut(
        f"{call.model} did not answer within {call.seconds:g} seconds, the shorter of its own timeout and "
        f"the request's{waited}"
    )


def _make_model_error(call: Call[Any], error: BaseException, *, is_logged: bool) -> InferenceError:
    model = call.model
    told = convert_host_error(error)
    if told is not None:  # as if it were raised as an InferenceError
        return told
    hint = find_hint(error, call)
    if not is_logged and not hint and refuses_request(call.handler.function, error):
        return InvalidRequest(
            f"{model} refused the request: {error_text(error).strip().partition(chr(10))[0][:_LONG]}"
        )
    if not is_logged:
        fields, request = call.log_fields(), name_request(call.timings.id)
        hint = hint or _suggest_declaration(error, call)
        log_raised(error, "%s failed on %s%s", model, request, hint, extra=fields)
    overriding = _find_overriding(call)
    if overriding is not None and isinstance(error, _OF_ANOTHER_TYPE):
        return InvalidRequest(
            f"{model} failed with the content_type {show(overriding)}, which is not what it declares: leave "
            "it out"
        )
    return ModelFailed(
        f"{model} failed: {error_text(error, repr)}"
        if call.engine.options.debug
        else f"{model} failed: see the server's log"
    )


def _find_overriding(call: Call[Any]) -> str | None:
    """Find the content type by which a request made something of its inputs that the model does not declare;
    None if there is none."""
    decoded, declared = call.expand(), call.handler.binding
    if decoded.binding is declared:
        for entry in declared.inputs.entries.values():
            tensor = decoded.tensors.get(entry.name) if entry.is_unannotated else None
            if tensor is not None:
                requested = tensor.parameters.get("content_type", decoded.content_type)
                if requested is not None and requested != (entry.content_type or NumpyCodec.content_type):
                    return str(requested)
        return None
    return (
        str(decoded.request.parameters["content_type"])
        if declared.inputs.specs or call.handler.answers.declared
        else None
    )


def make_busy_error(model: Model) -> InferenceError:
    limiter, callers = model.limiter, find_callers()
    if callers.count(model) >= limiter.max_concurrency:
        return InferenceError(
            f"{_list_calls(model, callers)}: the last call would wait for itself, as calls that it is made "
            "within hold all "
            f"{limiter.max_concurrency} slots of {model}: give it a larger max_concurrency, or do not call "
            "it from within",
            status=500,
        )
    running = "1 call runs" if limiter.max_concurrency == 1 else f"{limiter.max_concurrency} calls run"
    if model in callers:
        return Busy(
            f"{model} is busy: {running}, and a call within one of its own does not wait", headers=SOON
        )
    waiting = f"{limiter.max_queue} {'waits' if limiter.max_queue == 1 else 'wait'}"
    return Busy(f"{model} is busy: {running} and {waiting}, which is all it takes", headers=SOON)


def make_chain_error(model: Model) -> Busy:
    return Busy(
        f"{_list_calls(model, find_callers())}: the last call got no slot of {model} until its caller's "
        f"deadline, or for {MOST_SECONDS:g} "
        "seconds without one: give these models a larger max_concurrency, or do not let them call each other",
        headers=SOON,
    )


def _list_calls(model: Model, within: Sequence[Model]) -> str:
    return " calls ".join(repr(holder.name) for holder in [*within, model])


def make_stopping_error(model: Model) -> NotReady:
    return NotReady(f"{model} is not ready: the server is stopping")


def find_hint(error: BaseException, call: Call[Any]) -> str:
    """Find the text that the log adds to a model's failure: how to fix a common mistake, or where the
    function is whose result is wrong."""
    text = error_text(error)
    if isinstance(error, ModelFault):
        where = find_place(call.handler.function)
        return where and f" ({where})"
    if isinstance(error, ValueError) and "read-only" in text:
        return _WRITABLE_HINT
    if is_sync_only(error):
        return (
            ": in an async def, write await context.transport.auser(), and the async methods of Django's "
            "models, such as aget"
        )
    if any("HTTP" in kind.__name__ or kind.__name__ == "PermissionDenied" for kind in type(error).__mro__):
        return _RAISE_HINT
    return ""


def _suggest_declaration(error: BaseException, call: Call[Any]) -> str:
    """Say how to declare the request's inputs that have no declaration. Without it, a wrong request fails in
    the model."""
    binding = call.handler.binding
    if (
        isinstance(error, ModelFault)
        or not isinstance(error, _OF_ANOTHER_TYPE)
        or not call.handler.is_checked
        or binding.arguments.rows
    ):
        return ""
    wrong = ": if the request was wrong, declare what the model takes, and it is answered 400"
    declared = {spec.name for spec in binding.inputs.specs if getattr(spec, "other_datatypes", None) != "all"}
    tensors = [tensor for name, tensor in call.expand().tensors.items() if name not in declared]
    whole = binding.arguments.whole
    if whole is not None and whole.codec.content_type == "pd":
        # the columns of a frame should not be what a wrong request has
        return f"{wrong}: inputs=specs_of(X), with a frame X as the model takes it" if tensors else ""
    specs = [write_spec(t.name, t.datatype, [-1, *t.shape[1:]][: len(t.shape)]) for t in tensors[:_SUGGESTED]]
    written = escape(", ".join(specs + ["..."] * (len(tensors) > _SUGGESTED)))
    return (
        f"{wrong}. This request had inputs=[{written}]: write what it should have had"
        if 0 < len(written) < _LONG
        else ""
    )


def as_client_error(error: Exception) -> InferenceError:
    """Make the error for the client. An InferenceError is one already. Any other error is a fault of this
    package, and is logged."""
    if isinstance(error, InferenceError):
        return error
    log_raised(error, "an error of oip_asgi itself, please report it")
    return InferenceError("internal error: see the server's log", status=500)
