"""Extensions of Triton that are refused, and why: they control Triton's process, which is the application
here, or GPUs."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from .._protocol.errors import InferenceError
from .table import GrpcMethod, GrpcMethods

_NO_TRACE_SETTINGS: Final = (
    "trace settings are not supported: trace requests with OpenTelemetry in the application"
)
_NO_LOG_SETTINGS: Final = "log settings are not supported: set up Python's logging in the application"
_NO_CUDA: Final = (
    "CUDA shared memory is not supported: send the tensors in the request, or use system shared memory"
)


def _refuse(why: str, *_: Any) -> None:
    raise InferenceError(why, status=501)


PATHS: Final = (
    (re.compile("(/models/.+)?/trace/setting"), _NO_TRACE_SETTINGS),
    (re.compile("/logging"), _NO_LOG_SETTINGS),
    (re.compile("/cudasharedmemory/.+"), _NO_CUDA),
)
"""Paths that are not found, and why. `shared_memory` answers requests to unregister CUDA's shared memory."""

WITHOUT_MESSAGES: Final[GrpcMethods] = {
    "TraceSetting": GrpcMethod(partial(_refuse, _NO_TRACE_SETTINGS)),
    "LogSettings": GrpcMethod(partial(_refuse, _NO_LOG_SETTINGS)),
}
"""The protocol's descriptor has no messages for these methods."""

GRPC: Final[GrpcMethods] = {
    "CudaSharedMemoryStatus": GrpcMethod(partial(_refuse, _NO_CUDA), "shared_memory"),
    "CudaSharedMemoryRegister": GrpcMethod(partial(_refuse, _NO_CUDA), "shared_memory"),
}
