"""Serve models over the Open Inference Protocol (KServe V2) from inside the application you already run."""

from typing import TYPE_CHECKING, Any

from ._extensions.cache import ResponseCache
from ._extensions.repository import ModelStatus
from ._extensions.shared_memory import SharedMemory
from ._models.handler import Loaded
from ._models.loader import LoadParameters
from ._protocol.access import Access
from ._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from ._protocol.schemas import RequestOutput
from ._protocol.specs import TensorSpec
from ._protocol.tensors import InferenceContext, InferenceRequest, InferenceResponse, Tensor
from ._version import __version__
from .asgi import OIPApp, OIPMiddleware
from .server import InferenceServer

if TYPE_CHECKING:
    from .wsgi import OIPWSGIApp, OIPWSGIMiddleware
else:

    def __getattr__(name: str) -> Any:
        """Import the WSGI side at its first use: werkzeug takes half as long as all the rest."""
        if name in ("OIPWSGIApp", "OIPWSGIMiddleware"):
            from . import wsgi

            return getattr(wsgi, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Access",
    "ErrorResponse",
    "InferenceContext",
    "InferenceError",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceServer",
    "InvalidResponse",
    "LoadParameters",
    "Loaded",
    "ModelStatus",
    "OIPApp",
    "OIPMiddleware",
    "OIPWSGIApp",
    "OIPWSGIMiddleware",
    "RequestOutput",
    "ResponseCache",
    "SharedMemory",
    "Tensor",
    "TensorSpec",
    "__version__",
]
