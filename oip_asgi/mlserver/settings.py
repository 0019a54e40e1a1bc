"""`settings.json` and `model-settings.json`, and what becomes of their keys. Knows no models."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import msgspec

from .types import MetadataTensor

MODEL_FILE: Final = "model-settings.json"


class ModelParameters(SimpleNamespace):
    """`parameters` of `model-settings.json`, each an attribute: `uri`, `version`, `content_type`, `format`,
    `extra`, and any others."""

    def __init__(
        self,
        /,
        uri: str | None = None,
        version: str | None = None,
        content_type: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(
            uri=uri, version=version, content_type=content_type, **{"format": None, "extra": {}, **others}
        )


@dataclass(kw_only=True)
class ModelSettings:
    """`model-settings.json`, as a model finds it in `self.settings`."""

    implementation: Any
    name: str = ""
    platform: str = ""
    versions: list[str] = field(default_factory=list)
    inputs: list[MetadataTensor] = field(default_factory=list)
    outputs: list[MetadataTensor] = field(default_factory=list)
    max_batch_size: int = 0
    max_batch_time: float = 0.0
    parameters: ModelParameters = field(default_factory=ModelParameters)
    _source: str = ""
    _unused: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        return cast("str | None", self.parameters.version)

    @property
    def _has_batches(self) -> bool:
        return self.max_batch_size > 1 and self.max_batch_time > 0


@dataclass(kw_only=True)
class Settings:
    """What of `settings.json` means something here."""

    server_name: str = "mlserver"
    server_version: str | None = None
    host: str = "127.0.0.1"  # MLServer's is 0.0.0.0: all who reach the machine, without a key
    http_port: int = 8080
    grpc_port: int | None = None
    metrics_port: int | None = None
    load_models_at_startup: bool = True
    model_repository_root: str = "."
    _unused: dict[str, str] = field(default_factory=dict)


T = TypeVar("T", Settings, ModelSettings)

_REFUSED: Final = {
    "parameters.environment_path": (
        "all models share this Python, so run this model as a server of its own, in that environment"
    ),
    "parameters.environment_tarball": (
        "all models share this Python, so run this model as a server of its own, in that environment"
    ),
    "model_repository_implementation": (
        "models are read from folders, so write files, or call server.register"
    ),
    "kafka_enabled": "call the model from a consumer of your own, by `await server.infer(...)`",
}
"""What to do instead of keys that cannot be honoured, unless they are off."""

_UNUSED: Final = {
    "not needed: blocking models run in worker threads, and more processes are more servers": (
        "parallel_workers parallel_workers_timeout warm_workers environments_dir metrics_dir "
        "parameters.inference_pool_gid "
        "parameters.autogenerate_inference_pool_gid"
    ),
    "the server's or the application's: see uvicorn's options, or add a middleware": (
        "debug gzip_enabled cors_settings root_path use_structured_logging logging_settings extensions"
    ),
    "gRPC needs an application of your own: oip_asgi.grpc.add_to_server for a port of its own, or "
    "install(..., grpc=True)": "grpc_port",
    "answers are not cached: put a ResponseCache on a function of your own": "cache_enabled cache_size",
    "see oip_asgi.prometheus": "metrics_port metrics_endpoint metrics_rest_server_prefix",
    "see oip_asgi.opentelemetry": "tracing_server",
    "metadata says python": "platform",
    "the limit is InferenceServer(max_body_bytes=)": "grpc_max_message_length",
}
"""Why keys have no effect."""


def read_settings(folder: Path) -> Settings:
    """`settings.json` of a folder, or the defaults."""
    file = folder / "settings.json"
    return _read_file(file, Settings) if os.path.lexists(file) else Settings()


def read_model(file: Path) -> ModelSettings:
    """A `model-settings.json`. The name is that of its folder unless it says one, and the URI is its
    folder."""
    settings = _read_file(file, ModelSettings)
    settings.name, settings._source = settings.name or file.parent.name, str(file)
    settings.parameters.uri = settings.parameters.uri or str(file.parent)
    return settings


def _read_file(file: Path, kind: type[T]) -> T:
    """Read a file, and note which of its keys are not used. Raises ValueError with the file, the key and what
    to do."""
    if not file.is_file():  # to read a pipe could take for ever
        raise ValueError(f"{file}: it is no file, or a link that leads to none")
    try:
        decoded = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        document = {key: value for key, value in decoded.items() if value is not None}
        # "true" and "8" count, as in MLServer; parameters are no types of msgspec's
        read = msgspec.convert(document, kind, strict=False, dec_hook=lambda cls, value: cls(**value))
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: it is nested too deep") from None
    keys = {
        **document,
        **{f"parameters.{key}": value for key, value in document.get("parameters", {}).items()},
    }
    for key in _REFUSED.keys() & keys.keys():
        if keys[key] not in (None, False, "false"):
            raise ValueError(f"{file}: {key} cannot be honoured: {_REFUSED[key]}")
    words = dict.fromkeys(document.keys() - vars(read).keys(), "unknown")
    words |= {key: word for word, names in _UNUSED.items() for key in names.split()}
    read._unused = {key: words[key] for key in keys if key in words and key not in _REFUSED}
    return read
