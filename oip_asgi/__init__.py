"""Serve models over the Open Inference Protocol (KServe V2) from inside the application you already run."""

from ._extensions.cache import ResponseCache
from ._extensions.repository import ModelStatus
from ._extensions.shared_memory import SharedMemory
from ._models.handler import Loaded
from ._models.loader import LoadParameters
from ._models.specs import TensorSpec
from ._protocol.access import Access
from ._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from ._protocol.schemas import RequestOutput
from ._protocol.tensors import InferenceContext, InferenceRequest, InferenceResponse, Tensor
from ._version import __version__
from .asgi import OIPApp, OIPMiddleware
from .server import InferenceServer
from .wsgi import OIPWSGIApp, OIPWSGIMiddleware

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
