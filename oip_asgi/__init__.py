"""Serve models over the Open Inference Protocol (KServe V2) from inside the application you already run."""

from typing import TYPE_CHECKING, Any, Final

from ._extensions.cache import ResponseCache
from ._extensions.model_statistics import Histogram, ModelNumbers
from ._extensions.repository import ModelStatus
from ._extensions.shared_memory import SharedMemory
from ._models import callables as _callables
from ._models.handler import Loaded
from ._models.loader import LoadParameters
from ._protocol.context import Access, InferenceContext, Observation
from ._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from ._protocol.schemas import RequestOutput
from ._protocol.specs import TensorSpec
from ._protocol.tensors import InferenceRequest, InferenceResponse, Tensor
from ._rest import body as _body
from ._rest import client as _client
from ._serving.observing import Span, Tracer
from .asgi import OIPApp, OIPMiddleware
from .server import InferenceServer, __version__

# `_protocol`, which has the classes, knows no wire formats and no codecs: it declares only the types of these
InferenceRequest.to_http = _body.to_http  # type: ignore[assignment,method-assign]
InferenceResponse.as_ = _callables.as_  # type: ignore[assignment,method-assign]
InferenceResponse.rows = _callables.rows  # type: ignore[method-assign]
InferenceResponse.from_http = staticmethod(_client.from_http)  # type: ignore[method-assign]

_ELSEWHERE: Final = {
    "client": ("AsyncClient", "Client", "remote"),
    "codecs": ("InputCodec", "NumpyCodec", "PandasCodec", "RequestCodec", "StringCodec"),
    "django": ("urls",),
    "flask": ("blueprint",),
    "grpc": ("OIPGRPCApp", "add_to_server"),
    "mlserver": ("register_folder",),
    "specs": ("specs_of",),
}
"""Names that a reader may look for here, by the module that has them."""

if TYPE_CHECKING:
    from .wsgi import OIPWSGIApp, OIPWSGIMiddleware
else:

    def __getattr__(name: str) -> Any:
        """Import the WSGI side at its first use: werkzeug takes half as long as all the rest. Say where the
        names of other modules are."""
        if name in ("OIPWSGIApp", "OIPWSGIMiddleware"):
            from . import wsgi

            return getattr(wsgi, name)
        for module, names in _ELSEWHERE.items():
            if name in names:  # as an AttributeError, an import would not show its text
                raise ImportError(
                    f"{name} is not in oip_asgi itself: write from oip_asgi.{module} import {name}"
                )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Access",
    "ErrorResponse",
    "Histogram",
    "InferenceContext",
    "InferenceError",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceServer",
    "InvalidResponse",
    "LoadParameters",
    "Loaded",
    "ModelNumbers",
    "ModelStatus",
    "OIPApp",
    "OIPMiddleware",
    "OIPWSGIApp",
    "OIPWSGIMiddleware",
    "Observation",
    "RequestOutput",
    "ResponseCache",
    "SharedMemory",
    "Span",
    "Tensor",
    "TensorSpec",
    "Tracer",
    "__version__",
]
