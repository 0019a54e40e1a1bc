"""`settings.json` and `model-settings.json`, and what becomes of their keys. Knows no models."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec

from .types import MetadataTensor

T = TypeVar("T")

logger: Final = logging.getLogger("oip_asgi")

MODEL_FILE: Final = "model-settings.json"


class ModelParameters(SimpleNamespace):
    """`parameters` of `model-settings.json`, each an attribute: `uri`, `version`, `content_type`, `format`, `extra`, and any others."""

    def __init__(self, uri: str | None = None, version: str | None = None, content_type: str | None = None, **others: Any) -> None:
        super().__init__(uri=uri, version=version, content_type=content_type, **{"format": None, "extra": {}, **others})


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
    parameters: ModelParameters | None = None
    _source: str | None = None

    @property
    def version(self) -> str | None:
        return None if self.parameters is None else self.parameters.version


@dataclass(kw_only=True)
class Settings:
    """What of `settings.json` means something here."""

    server_name: str = "mlserver"
    server_version: str | None = None
    host: str = "0.0.0.0"
    http_port: int = 8080
    load_models_at_startup: bool = True
    model_repository_root: str = "."


_REFUSED: Final = "cannot be honoured: "

_WORDS: Final = {
    f"{_REFUSED}all models share this Python, so run this model as a server of its own, in that environment": (
        "parameters.environment_path parameters.environment_tarball"
    ),
    f"{_REFUSED}models are read from folders, so write files, or call server.register": "model_repository_implementation",
    f"{_REFUSED}call the model from a consumer of your own, by `await server.infer(...)`": "kafka_enabled",
    "not needed: blocking models run in worker threads, and more processes are more servers": (
        "parallel_workers parallel_workers_timeout warm_workers environments_dir metrics_dir parameters.inference_pool_gid "
        "parameters.autogenerate_inference_pool_gid"
    ),
    "the server's or the application's: see uvicorn's options, or add a middleware": (
        "debug gzip_enabled cors_settings root_path use_structured_logging logging_settings grpc_port extensions"
    ),
    "answers are not cached: put a ResponseCache on a function of your own": "cache_enabled cache_size",
    "see oip_asgi.prometheus": "metrics_port metrics_endpoint metrics_rest_server_prefix",
    "see oip_asgi.opentelemetry": "tracing_server",
    "the limit is InferenceServer(max_body_bytes=)": "grpc_max_message_length",
}
"""What becomes of the keys that are not used. Those that cannot be honoured are refused, unless they are off."""

UNUSED: Final = MappingProxyType({key: word for word, keys in _WORDS.items() for key in keys.split()})


def read_settings(folder: Path, level: int = logging.WARNING) -> Settings:
    """`settings.json` of a folder, or the defaults."""
    file = folder / "settings.json"
    return _read(file, Settings, level) if file.is_file() else Settings()


def read_model(file: Path, level: int = logging.WARNING) -> ModelSettings:
    """A `model-settings.json`. The name is that of its folder unless it says one, and the URI is its folder."""
    settings = _read(file, ModelSettings, level)
    settings.name, settings._source = settings.name or file.parent.name, str(file)
    settings.parameters = settings.parameters or ModelParameters()
    settings.parameters.uri = settings.parameters.uri or str(file.parent)
    return settings


def _read(file: Path, kind: type[T], level: int) -> T:
    """Read a file, and log which of its keys are not used. Raises ValueError with the file, the key and what to do."""
    try:
        document = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        # "true" and "8" count, as in MLServer; parameters are no types of msgspec's
        read = msgspec.convert(document, kind, strict=False, dec_hook=lambda cls, value: cls(**value))
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file}: {error}") from None
    keys = {**document, **{f"parameters.{key}": value for key, value in (document.get("parameters") or {}).items()}}
    known = {*(each.name for each in fields(kind)), *(key for key in keys if "." in key and key not in UNUSED)}  # type: ignore[arg-type]
    words = {key: UNUSED.get(key, "unknown") for key in keys if key not in known}
    for key, word in words.items():
        if word.startswith(_REFUSED) and keys[key] not in (None, False, "false"):
            raise ValueError(f"{file}: {key} {word}")
    if words:
        logger.log(level, "%s: not used: %s", file, "; ".join(f"{key} ({word})" for key, word in words.items()))
    return read
