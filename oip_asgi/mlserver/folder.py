"""A folder of `model-settings.json` files -> registered models. Each load reads the file again, and imports
its class again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Collection
from logging import getLogger
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import oip_asgi as ours

from . import runtimes
from .codecs import registry
from .model import MLModel
from .modules import drop_shared, import_from, list_modules
from .settings import MODEL_FILE, ModelSettings, Settings, read_model, read_settings
from .types import InferenceRequest, MetadataTensor

SED: Final = (
    r"sed -i -E 's/^(\s*)from mlserver\.codecs\.\w+ import/\1from oip_asgi.mlserver.codecs import/; "
    r"s/^(\s*)from mlserver([. ])/\1from oip_asgi.mlserver\2/; "
    r"s/^(\s*)import mlserver(\s*|\s+#.*)$/\1import oip_asgi.mlserver as mlserver\2/; "
    r"s/^(\s*)import mlserver([.a-z]* as )/\1import oip_asgi.mlserver\2/; "
    r"s/^(\s*)from mlserver_[a-z.]+ import/\1from oip_asgi.mlserver.runtimes import/'"
)
"""Changes the lines of a file that import MLServer."""

_SHARED: Final = (
    "another folder or the application has a module of this name too, so a pickle does not find yours: "
    "rename it"
)

_logger: Final = getLogger("oip_asgi")

_folders: Final = WeakKeyDictionary[ours.InferenceServer, set[Path]]()
"""The folders of all models of each server."""


def register_folder(server: ours.InferenceServer, path: str | Path) -> None:
    """Register the model of each `model-settings.json` in a folder of MLServer and below it.

    Models are loaded when the server starts, or by `server.load(name)` if `settings.json` has
    `"load_models_at_startup": false`. A load reads the model's file again, and imports its class again. With
    `model_control=True`, clients also see and load models that were added to the folder since. The server's
    name in `settings.json`, its host and its ports are for `python -m oip_asgi`.

    Args:
        server: The server.
        path: The folder.

    Raises:
        ValueError: A file cannot be read, or has a key that cannot be honoured. The text has the file, the
            key and what to do. Or no `model-settings.json` is there.

    Example:
        >>> server = InferenceServer("models")
        >>> register_folder(server, "models")
        Traceback (most recent call last):
        ValueError: models: there is no model-settings.json in this folder or below it
    """
    register_models(server, Path(path), read_settings(Path(path)))


def register_models(
    server: ours.InferenceServer, path: Path, settings: Settings, *, opens: Collection[str] = ()
) -> None:
    """Register the models of a folder with these settings, for a caller that opens the ports of these
    keys."""
    _warn_of_unused(path / "settings.json", settings, opens)
    root = (path / settings.model_repository_root).resolve()
    files = _find_files(root)
    if not files:
        raise ValueError(f"{path}: there is no {MODEL_FILE} in this folder or below it")
    for model in sorted(map(read_model, files.values()), key=lambda model: (model.name, model.version or "")):
        _register_model(server, model, loads=settings.load_models_at_startup)
    drop_shared(_folders[server])
    registered, looking = set(files), threading.Lock()

    def find_new() -> None:
        with looking:
            for target, file in _find_files(root).items():
                if target not in registered:
                    try:
                        _register_model(server, read_model(file), loads=False)
                        drop_shared(_folders[server])
                        registered.add(target)
                    except (OSError, TypeError, ValueError) as error:
                        _logger.error("a new model cannot be registered: %s", error)

    server.discover(find_new)


def _find_files(root: Path) -> dict[Path, Path]:
    """The file of each model by its real path. Links are followed, and names that begin with a dot are
    hidden, as in MLServer."""
    folders, starts = dict[str, str](), [str(root)]
    # a model is registered by the first path that leads to its folder: real folders come first, then links,
    # then links to links
    for start in starts:
        for folder, names, _ in os.walk(start):
            names[:] = [name for name in names if not name.startswith(".")]
            if folders.setdefault(os.path.realpath(folder), folder) != folder:
                names.clear()  # a link has led back
            links = [path for name in names if os.path.islink(path := os.path.join(folder, name))]
            starts += sorted(
                links, key=lambda link: (os.path.islink(Path(link).parent / os.readlink(link)), link)
            )
    files = [Path(folder, MODEL_FILE) for folder in folders.values()]
    found = [(Path(os.path.realpath(file)), file) for file in files if os.path.lexists(file)]
    # a path without links comes last, and counts
    return dict(sorted(found, key=lambda each: each[0] == each[1]))


def _register_model(server: ours.InferenceServer, settings: ModelSettings, *, loads: bool) -> None:
    file = Path(settings._source)
    _warn_of_unused(file, settings)
    batch = {"max_batch_size": settings.max_batch_size, "max_batch_delay": settings.max_batch_time}
    folders = _folders.setdefault(server, set())
    folders.add(file.parent)  # a server that runs begins to load before `register` has returned

    async def load() -> ours.Loaded:
        model = await asyncio.to_thread(_make_model, file, folders)
        try:
            model.ready = await model.load()
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in list_modules(file.parent):
                raise
            raise ImportError(f"{error}: {_SHARED}") from error
        if not model.ready:
            raise RuntimeError(
                f"{file}: load() of {model.settings.implementation} has not returned True, so it is not ready"
            )
        return _describe(model)

    try:
        server.register(
            settings.name,
            load=load,
            version=settings.version,
            inputs=[*map(_to_spec, settings.inputs)],
            outputs=[*map(_to_spec, settings.outputs)],
            content_type=cast(Any, settings.parameters.content_type),
            **cast(Any, batch if settings._has_batches else {}),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None
    if not loads:
        unload = threading.Thread(target=server.unload_sync, args=(settings.name, settings.version))
        unload.start()  # as an event loop may run in this thread
        unload.join(1.0)  # a probe may have begun to load it, which takes its time


def _warn_of_unused(file: Path, settings: Settings | ModelSettings, used: Collection[str] = ()) -> None:
    unused = [f"{key} ({why})" for key, why in settings._unused.items() if key not in used]
    if unused:
        _logger.warning("%s: not used: %s", file, "; ".join(unused))


def _make_model(file: Path, folders: set[Path]) -> MLModel:
    """Import the class that a file names, and make the model."""
    settings = read_model(file)
    module, _, name = str(settings.implementation).rpartition(".")
    runtime = f"{module.partition('.')[0]}.{name}"
    if runtime in runtimes.CLASSES:
        return runtimes.CLASSES[runtime](settings)
    if runtime.startswith("mlserver_"):
        raise ValueError(
            f"{file}: implementation: there is no {runtime} here: expected {', '.join(runtimes.CLASSES)}, "
            "or your own"
        )
    if not module:
        raise ValueError(f'{file}: implementation: expected a module and a class, such as "models.MyModel"')
    codecs = registry.set(registry.get().copy())  # those that its modules register are for it alone
    try:
        return cast(MLModel, getattr(import_from(file.parent, module, folders), name)(settings))
    except SystemExit as error:  # it would end the server
        raise ImportError(f"{file}: {module} ended with SystemExit: {error}") from error
    except ModuleNotFoundError as error:
        if str(error.name).startswith("mlserver"):
            raise ImportError(
                f"{error}: change the file's import lines with {SED} {file.parent}/*.py"
            ) from error
        raise
    finally:
        registry.reset(codecs)
        drop_shared(folders)


def _describe(model: MLModel) -> ours.Loaded:
    """What the server calls, for a model that is loaded."""

    async def predict(
        request: ours.InferenceRequest, context: ours.InferenceContext
    ) -> ours.InferenceResponse:
        return (await model.predict(_to_request(request, context, model.settings))).to_ours()

    def run(request: ours.InferenceRequest, context: ours.InferenceContext) -> ours.InferenceResponse:
        return cast(runtimes.Runtime, model).run(_to_request(request, context, model.settings)).to_ours()

    async def predict_stream(
        request: ours.InferenceRequest, context: ours.InferenceContext
    ) -> AsyncIterator[ours.InferenceResponse]:
        async def payloads() -> AsyncIterator[InferenceRequest]:
            yield _to_request(request, context, model.settings)

        async for response in model.predict_stream(payloads()):
            yield response.to_ours()

    kind, codecs = type(model), model._codecs
    call = run if kind.predict is runtimes.Runtime.predict else predict
    streams = kind.predict_stream is not MLModel.predict_stream
    return ours.Loaded(
        function=predict_stream if streams else call,
        inputs=[*map(_to_spec, model.inputs)]
        or (model.find_inputs() if isinstance(model, runtimes.TableRuntime) else []),
        outputs=[*map(_to_spec, model.outputs)],
        ready=lambda: model.ready,
        unload=model.unload,
        content_types=(*codecs.inputs, *codecs.requests),
        once=call if streams and kind.predict is not MLModel.predict else None,
    )


def _to_request(
    request: ours.InferenceRequest, context: ours.InferenceContext, settings: ModelSettings
) -> InferenceRequest:
    """A request in MLServer's form. Over HTTP, BYTES are `str`, and over gRPC `bytes`, as there."""
    transport = context.transport  # an ASGI scope is a dict, and only a context of grpcio has metadata
    fields = dict(transport.get("headers", ())) if isinstance(transport, dict) else {}
    is_grpc = hasattr(transport, "invocation_metadata") or fields.get(b"content-type", b"").startswith(
        b"application/grpc"
    )
    payload = InferenceRequest.of(request, is_text=not is_grpc)
    # the headers of one request are not those of the others in its batch
    cast(Any, payload.parameters).headers = None if settings._has_batches else context.headers
    return payload


def _to_spec(tensor: MetadataTensor) -> ours.TensorSpec:
    return ours.TensorSpec(
        tensor.name,
        cast(Any, tensor.datatype),
        [*tensor.shape],
        getattr(tensor.parameters, "content_type", None),
    )
