"""What a server can be asked, in values that belong to no transport: REST and gRPC share it. Knows no HTTP and no JSON.

Questions that reach user code are generators of steps; see `steps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from . import schemas
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

    def __init__(self, name: str, version: str, *, max_body_bytes: int | None, ready_when_empty: bool, debug: bool) -> None:
        self.name = name
        self.version = version
        self.max_body_bytes = max_body_bytes
        self.ready_when_empty = ready_when_empty
        self.debug = debug
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
        _check_parameters(request)
        model.binding.names.check(request)
        if request.outputs and model.outputs:
            check_asked(request.outputs, [spec.name for spec in model.outputs])
        for tensor in request.inputs:
            if model.writable:
                tensor.array = tensor.array.copy()
            else:
                tensor.array.flags.writeable = False

        def context() -> InferenceContext:
            return InferenceContext(request.id, headers(), request.parameters, model.name, model.version, transport)

        args, kwargs = model.binding.arguments(request, context)
        try:
            result = yield Call(model.function, args, kwargs, model.run)
            response = to_response(no_coroutine(result), model.outputs)
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


def _check_parameters(request: InferenceRequest) -> None:
    _refuse_unsupported(request.parameters, "the request")
    for tensor in request.inputs:
        if tensor.parameters:
            _refuse_unsupported(tensor.parameters, f"input {shown(tensor.name)}")
    for output in request.outputs:
        if output.parameters:
            _refuse_unsupported(output.parameters, f"requested output {shown(output.name)}")


def _refuse_unsupported(parameters: Parameters, where: str) -> None:
    for name in _UNSUPPORTED:
        if name in parameters:
            raise InvalidRequest(f"{where} has the parameter {name}, which this server does not support: leave it out")
    content_type = parameters.get("content_type", "np")
    if content_type != "np":
        raise InvalidRequest(f"{where} has the content_type {shown(content_type)}: expected np, the one that this server knows")
