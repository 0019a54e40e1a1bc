"""The paths that a host may leave open to everyone, while its own checks cover the others. Knows no host and
no handlers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .._docs.documents import FILES
from .._protocol.errors import list_names

_PATHS: Final = {
    "health": r"health/(?:live|ready)|models/[\s\S]+/ready",
    "docs": rf"docs(?:/(?:{'|'.join(map(re.escape, FILES))}))?|openapi\.json",
}

HEALTH_METHODS: Final = (
    *(f"/inference.GRPCInferenceService/{method}" for method in ("ServerLive", "ServerReady", "ModelReady")),
    *(f"/grpc.health.v1.Health/{method}" for method in ("Check", "Watch")),
)
"""What "health" is over gRPC."""


def match_public(public: Sequence[str]) -> str:
    """Make the regular expression, without groups, for the paths that these words name, below the mount and
    its slash.

    Raises:
        ValueError: There is no such word.
    """
    words = list(public)
    unknown = [public] if isinstance(public, str) else [word for word in words if word not in _PATHS]
    if unknown:
        raise ValueError(f"public= takes a list of the words {list_names(_PATHS)}, but this is {public!r}")
    return rf"(?:{'|'.join(_PATHS[word] for word in words)})/?" if words else "(?!)"
