"""`InferenceServer`, the one object that users register models with and hand to a way in. Joins the core with what runs it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version as package_version
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from ._core.codecs.known import AnyCodec, Codecs
from ._core.models import Model
from ._core.server import Server
from ._core.specs import TensorSpec
from ._drive import drive, drive_async
from ._running import Running

F = TypeVar("F", bound=Callable[..., Any])


class InferenceServer:
    """The Open Inference Protocol without any transport: models, metadata, readiness and limits.

    Hand it to `OIPApp`, `OIPMiddleware`, `OIPWSGIApp`, `OIPWSGIMiddleware`, `oip_asgi.flask.blueprint`, `oip_asgi.django.urls` or
    `oip_asgi.grpc.add_to_server`; several of them may share it.

    Args:
        name: The server's name, for its metadata.
        version: The server's version, for its metadata; that of oip_asgi where it is left out.
        max_body_bytes: The largest body of a request over HTTP, in bytes; None for no limit.
        ready_when_empty: Whether the server counts as ready while no model is registered.
        debug: Whether clients are told what a model raised. Not for production: texts of exceptions hold what they hold.
        worker_threads: Under ASGI and grpc.aio, how many `def` models may run at once, for each event loop.
        codecs: Codecs of your own, beside those in `oip_asgi.codecs`: subclasses of `InputCodec` or `RequestCodec`. One with the
            content type of ours takes its place.

    Raises:
        TypeError: One of `codecs` lacks its content type or a method, or has the content type of another of them.

    Specification: Server Metadata.
    """

    def __init__(
        self,
        name: str = "oip_asgi",
        version: str | None = None,
        *,
        max_body_bytes: int | None = 128 * 2**20,
        ready_when_empty: bool = False,
        debug: bool = False,
        worker_threads: int = 40,
        codecs: Sequence[AnyCodec] = (),
    ) -> None:
        self.core = Server(
            name,
            package_version("oip_asgi") if version is None else version,
            max_body_bytes=max_body_bytes,
            ready_when_empty=ready_when_empty,
            debug=debug,
            codecs=Codecs(codecs, has_pandas=find_spec("pandas") is not None),
        )
        self.running = Running(worker_threads)
        self._lock = threading.Lock()
        self._starts = 0

    def register(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        version: str | None = None,
        platform: str = "python",
        inputs: Sequence[TensorSpec] = (),
        outputs: Sequence[TensorSpec] = (),
        content_type: str | None = None,
        run: Literal["thread", "inline"] = "thread",
        writable: bool = False,
        load: Callable[[], Any] | None = None,
        ready: Callable[[], Any] | None = None,
    ) -> None:
        """Register a callable as a model.

        A parameter's name is the name of the tensor that it receives; a default makes the input optional, and `**inputs` takes the
        rest. The annotation says as what: `np.ndarray`, also where there is none, `list[str]`, `list[bytes]`, `list[datetime]`,
        `pd.Series`, what a codec of the server decodes, or `Annotated` with a codec. A `pd.DataFrame` takes every tensor that no other
        parameter is named after, one per column; `InferenceRequest` is the whole request, `InferenceContext` what surrounds it. The one
        parameter of `classifier.predict(X)` receives the one declared input.

        Args:
            name: The model's name in URLs. It may hold slashes, which clients percent-encode.
            function: Any callable: a function or method, `async def`, partial, object with `__call__`, or numpy ufunc. It returns
                an array, a mapping of names to arrays, a tuple of arrays in the order of `outputs`, a data frame, an `InferenceResponse`,
                or what a codec encodes: the return annotation, else the value, says which.
            version: The version, for models that have several.
            platform: The framework behind it, for the metadata.
            inputs: The inputs it takes. What is declared is checked on every request and shown in the metadata.
            outputs: The outputs it returns. What comes back is cast to them by numpy's `same_kind` rule, where the values fit.
            content_type: How requests are read that do not say it themselves: "pd" for a data frame, or that of each tensor for which
                `inputs` declares none. Shown in the metadata's `parameters`.
            run: Where a `def` runs under ASGI and grpc.aio: in a worker thread, or on the event loop, for functions of microseconds.
            writable: Whether inputs arrive as writable copies. They are read-only views of the request else.
            load: Called once before the model is used, and may be an `async def`; the model is not ready before it returns.
            ready: Called at each readiness check, and may be an `async def`; a false result means not ready.

        Raises:
            TypeError: The callable cannot be a model, or takes what no request can give; the text says what to write.
            ValueError: An argument's value is wrong, or the model is registered already.

        Specification: Model Metadata; Content Types.
        """
        self.core.models.add(
            Model(
                name,
                function,
                version=version,
                platform=platform,
                inputs=inputs,
                outputs=outputs,
                run=run,
                writable=writable,
                load=load,
                ready=ready,
                content_type=content_type,
                codecs=self.core.codecs,
            )
        )

    def model(
        self,
        name: str,
        *,
        version: str | None = None,
        platform: str = "python",
        inputs: Sequence[TensorSpec] = (),
        outputs: Sequence[TensorSpec] = (),
        content_type: str | None = None,
        run: Literal["thread", "inline"] = "thread",
        writable: bool = False,
        load: Callable[[], Any] | None = None,
        ready: Callable[[], Any] | None = None,
    ) -> Callable[[F], F]:
        """`register` as a decorator, which gives the function back as it was. The arguments are the same.

        Raises:
            TypeError: It is used without parentheses and a name, or as `register` says.
            ValueError: As `register` says.
        """
        if not isinstance(name, str):
            raise TypeError(
                f'server.model needs the model\'s name, not {name!r}: write @server.model("{getattr(name, "__name__", "name")}")'
            )

        def decorate(function: F) -> F:
            self.register(
                name,
                function,
                version=version,
                platform=platform,
                inputs=inputs,
                outputs=outputs,
                run=run,
                writable=writable,
                load=load,
                ready=ready,
                content_type=content_type,
            )
            return function

        return decorate

    def start(self) -> None:
        """Load the models, for hosts that block. Without it they load at the first request that needs one."""
        with self._lock:
            self._starts += 1
        drive(self.core.loading.start(), self.running)

    def stop(self) -> None:
        """The counterpart of `start`: ends the background event loop. Models are loaded again at the next start."""
        with self._lock:
            self._starts = max(0, self._starts - 1)
            if self._starts:
                return
        self.core.loading.forget()
        self.running.background.stop()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Load the models, off the event loop, for hosts that await; at the end, what `stop` does.

        A host's lifespan is the place for it. `OIPApp.install` and `OIPMiddleware` put it there by themselves.
        """
        with self._lock:
            self._starts += 1
        try:
            await drive_async(self.core.loading.start(), self.running)
            yield
        finally:
            self.stop()
