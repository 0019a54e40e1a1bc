"""What a server can be asked, in values that belong to no transport: REST and gRPC share it. Knows no HTTP and no JSON.

Questions that reach user code are generators of steps; see `steps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from . import schemas
from .codecs.known import Codecs
from .errors import InferenceError, InvalidRequest, ModelFailed, NotReady, shown
from .loading import Loading
from .models import Model, Models
from .results import check_asked, select, to_response
from .schemas import Parameters
from .steps import Call, Step, no_coroutine
from .tensors import InferenceContext, InferenceRequest, InferenceResponse

EXTENSIONS: Final = ("binary_tensor_data",)

_UNSUPPORTED: Final = ("classification", "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
"""Parameters of Triton's that change what a tensor means: to ignore one would be a wrong answer."""

_logger: Final = logging.getLogger("oip_asgi")


class Server:
    """The protocol without any transport. Its arguments are those of `InferenceServer`."""

    def __init__(self, name: str, version: str, *, max_body_bytes: int | None, ready_when_empty: bool, debug: bool, codecs: Codecs) -> None:
        self.name = name
        self.version = version
        self.max_body_bytes = max_body_bytes
        self.ready_when_empty = ready_when_empty
        self.debug = debug
        self.codecs = codecs
        self.models = Models()
        self.loading = Loading(self.models)

    def metadata(self) -> schemas.ServerMetadata:
        """The server's metadata."""
        return schemas.ServerMetadata(self.name, self.version, list(EXTENSIONS))

    def is_ready(self) -> Generator[Step, Any, bool]:
        """Whether every model is ready, and there is one."""
        models = list(self.models)
        if not models:
            return self.ready_when_empty
        for model in models:
            if not (yield from self.is_model_ready(model)):
                return False
        return True

    def is_model_ready(self, model: Model) -> Generator[Step, Any, bool]:
        """Whether a model is loaded, and says that it is ready where it was given a `ready=`."""
        yield from self._settle(model)
        if model.state != "ready":
            return False
        if model.ready is None:
            return True
        try:
            return bool(no_coroutine((yield Call.aside(model.ready))))
        except Exception as error:
            _logger.error("%s: ready= raised, so it counts as not ready", model, exc_info=error)
            return False

    def admit(self, model: Model) -> Generator[Step, Any, None]:
        """Let a request in before its body is read.

        Raises:
            NotReady: The model is loading, or its load failed.
        """
        yield from self._settle(model)
        if model.state != "ready":
            reason = "its load failed, see the server's log" if model.state == "failed" else "it is still loading"
            raise NotReady(f"{model} is not ready: {reason}")

    def infer(
        self, model: Model, request: InferenceRequest, headers: Callable[[], Mapping[str, str]], transport: Any
    ) -> Generator[Step, Any, InferenceResponse]:
        """Run a model, with one call of user code at most.

        Args:
            model: A model that has admitted the request.
            request: The decoded request. Its arrays become read-only here, unless the model asked for writable ones.
            headers: Makes the request's headers, for models that want their context.
            transport: The way in's own object, for the same.

        Raises:
            InferenceError: The request does not fit the model, the model raised one, or failed.
        """
        _check_parameters(request, self.codecs)
        binding = model.binding_for(request.parameters.get("content_type"))
        binding.accept(request)
        if request.outputs and model.outputs:
            check_asked(request.outputs, [spec.name for spec in model.outputs])
        for tensor in request.inputs:
            if model.writable:
                tensor.array = tensor.array.copy()
            else:
                tensor.array.flags.writeable = False

        def context() -> InferenceContext:
            return InferenceContext(request.id, headers(), request.parameters, model.name, model.version, transport)

        def call() -> Any:
            args, kwargs = binding.arguments(request, context)
            return model.function(*args, **kwargs)

        try:
            if model.run == "async":
                result = yield Call(model.function, *binding.arguments(request, context), model.run)
            else:
                result = yield Call(call, [], {}, model.run)  # large frames are made in the thread of the model
            response = to_response(no_coroutine(result), model.outputs, binding.returned, model.codecs, _asked_types(request))
        except InferenceError:
            raise
        except Exception as error:
            raise self._failure(model, request, error) from error
        response.outputs = select(response.outputs, request.outputs)
        response.id, response.model_name, response.model_version = request.id, model.name, model.version
        return response

    def _settle(self, model: Model) -> Generator[Step, Any, None]:
        if model.state in ("waiting", "loading"):
            yield from self.loading.lazily()

    def _failure(self, model: Model, request: InferenceRequest, error: Exception) -> ModelFailed:
        _logger.error("%s failed on the request with id %s", model, shown(request.id), exc_info=error)
        return ModelFailed(f"{model} failed: {error!r}" if self.debug else f"{model} failed: see the server's log")


def own_fault(error: Exception) -> InferenceError:
    """What the client is told where this package itself failed, after the log was told more."""
    _logger.error("an error of oip_asgi itself, please report it", exc_info=error)
    return InferenceError("internal error: see the server's log", status=500)


def _asked_types(request: InferenceRequest) -> dict[str, str]:
    """The content types that a request asks outputs to have."""
    return {
        output.name: str(output.parameters["content_type"])
        for output in request.outputs
        if output.parameters and "content_type" in output.parameters
    }


def _check_parameters(request: InferenceRequest, codecs: Codecs) -> None:
    _check(request.parameters, "the request", codecs, whole=True)
    for tensor in request.inputs:
        if tensor.parameters:
            _check(tensor.parameters, f"input {shown(tensor.name)}", codecs)
    for output in request.outputs:
        if output.parameters:
            _check(output.parameters, f"requested output {shown(output.name)}", codecs)


def _check(parameters: Parameters, where: str, codecs: Codecs, *, whole: bool = False) -> None:
    for name in _UNSUPPORTED:
        if name in parameters:
            raise InvalidRequest(f"{where} has the parameter {name}, which this server does not support: leave it out")
    if "content_type" in parameters:
        codecs.check(parameters["content_type"], where, whole=whole)
