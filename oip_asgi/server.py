"""`InferenceServer`: users register models with it and pass it to an adapter. It joins the core with the
runtime."""

from __future__ import annotations

import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar, Unpack

import msgspec

from ._codecs.content_types import Codecs
from ._docs.documents import openapi
from ._docs.json_schemas import make_example_tensors
from ._extensions import repository
from ._extensions.model_statistics import ModelNumbers, list_numbers
from ._extensions.repository import ModelStatus
from ._extensions.shared_memory import Regions
from ._hosts.frameworks import is_framework
from ._hosts.routes import check_mounts
from ._http.messages import prefix_of
from ._io import IO, Signal
from ._models.loader import IdleUnload, LoadParameters
from ._models.model import Model
from ._models.model_options import ModelKeywords, ModelOptions
from ._protocol.context import Observation
from ._protocol.errors import logger, show
from ._protocol.options import check_names, document
from ._protocol.schemas import RequestOutput
from ._protocol.tensors import InferenceResponse
from ._runtime.async_io import AsyncIO
from ._runtime.blocking_io import BlockingIO, iterate_stream_blocking
from ._runtime.observers import ObserverThread
from ._runtime.runtime import Runtime, iterate_stream_async
from ._runtime.waiting import call_here, check_may_block, is_on_loop, wait_for, wait_until_set
from ._serving.engine import Engine, ServerKeywords, ServerOptions
from ._serving.observing import ObserverOptions, Tracer
from ._serving.python_calls import PythonFormat, infer_values, warm_up
from ._serving.stream import stream

__version__ = "0.2.0"
"""The version of the package: a copied folder and a zip archive have no metadata of their own."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")


class Inside(NamedTuple):
    """What adapters need of a server, and users do not."""

    engine: Engine  # the protocol without any transport
    runtime: Runtime  # its threads and event loops


@document(ServerOptions)
class InferenceServer:
    """The Open Inference Protocol without any transport: models, metadata, readiness and limits.

    Hand it to `OIPApp`, `OIPMiddleware`, `OIPWSGIApp`, `OIPWSGIMiddleware`, `oip_asgi.flask.blueprint`,
    `oip_asgi.django.urls` or `oip_asgi.grpc.add_to_server`; several of them may share it.

    Args:
        name (str, default 'oip_asgi'): The server's name, for its metadata.
        version (str | None, default None): The server's version, for its metadata. None means the version of
            oip_asgi.
        max_body_bytes (int | None, default 134217728): The largest body of a request, in bytes, decompressed;
            None for no limit.
        max_json_bytes (int | None, default 33554432): The most JSON of a request, in bytes, decompressed;
            None for no limit. Binary tensor data after it does not count.
        debug (bool, default False): Whether clients see what a model raised. Not for production: the texts of
            exceptions may hold secrets.
        codecs (Sequence[type[InputCodec] | InputCodec | type[RequestCodec] | RequestCodec], default ()): Your
            own codecs, beside those of `oip_asgi.codecs`: subclasses of `InputCodec` or `RequestCodec`. A
            codec with the content type of one of ours replaces it.
        model_control (bool, default False): Whether clients may load and unload models, by Triton's model
            repository extension. Switch it on only if everybody who reaches the server may do that. Clients
            may always list the models, and `server.load` and `server.unload` always work.
        docs (bool, default True): Whether the server shows its models to people: the page at `/v2/docs`, and
            OpenAPI documents at `/v2/openapi.json` and below each model. `OIPApp.install` adds these
            documents to FastAPI's own.
        authorize (Callable[[Access], bool | Awaitable[bool]] | None, default None): Called for each action of
            a client on a model, over every transport: it returns True, or False for 403. The function gets an
            `Access`, before the model is looked up. An `InferenceError`, or the HTTPException of the host's
            framework, keeps its status and text. A `def` runs where the request is handled, under ASGI on the
            event loop, so it must be quick; an `async def` is awaited, until its client goes, and for the
            model's `timeout=` or 10 seconds at most: then the answer is 503. Models whose metadata it refuses
            are left out of lists, of OpenAPI and of the page. It is not called for calls from Python.
        trusted_origins (Sequence[str], default ()): Origins of pages that may load and unload models, and
            change shared memory, in a browser. Without it, only the server's own pages may.
        shutdown_timeout (float, default 10.0): How many seconds running calls have to finish when the server
            stops. Keep it below the time that the host itself is given.
        stream_keep_alive (float | None, default 15.0): After how many seconds without an item a stream over
            ASGI sends a comment, each time, so that no proxy ends it; None for never. The head leaves with
            the first of them, so a later error is an event. Nothing is sent over gRPC, under WSGI, in Flask
            and in Django's views.
        server_timing (bool, default False): Whether each answer says where its time went, in milliseconds, in
            the header `Server-Timing`, which browsers show. It has queue, decode, run and encode; over gRPC
            it is initial metadata. Everybody who gets an answer sees how long the model takes.
        shared_memory (SharedMemory | None, default None): Lets clients on this machine put tensors into
            system shared memory. Everybody who reaches the server may then read and overwrite what it allows.

    Raises:
        TypeError: One of `codecs` lacks its content type or a method, or two have the same content type, or
            `shared_memory` is not a `SharedMemory`.
        ValueError: A limit is not a number that it can have, or a codec needs pandas, which is not installed.

    Example:
        >>> server = InferenceServer("flowers", max_body_bytes=16 << 20)

    Specification: Server Metadata.
    """

    def __init__(
        self, name: str = "oip_asgi", version: str | None = None, **options: Unpack[ServerKeywords]
    ) -> None:
        check_names(options, ServerOptions, "InferenceServer: ")
        checked = ServerOptions(name, version, **options)
        engine = Engine(
            checked,
            version=__version__ if version is None else version,
            codecs=Codecs(checked.codecs),
            regions=Regions(checked.shared_memory, checked.max_body_bytes),
            call_here=call_here,
            is_on_loop=is_on_loop,
        )
        self._inside = Inside(engine, Runtime())
        self._lock = threading.Lock()
        self._starts = 0
        self._ending: Signal | None = None

    @document(ModelOptions)
    def register(
        self, name: str, function: Callable[..., Any] | None = None, **options: Unpack[ModelKeywords]
    ) -> None:
        """Register a callable as a model, also while requests run.

        A parameter's name is the name of the tensor that it receives; a default makes the input optional, and
        `**inputs` takes the rest. The annotation says what it gets: `np.ndarray`, the default, `list[str]`,
        `list[bytes]`, `list[datetime]`, `pd.Series`, what a codec of the server decodes, or `Annotated` with
        a codec. A `pd.DataFrame` takes every tensor that no other parameter is named after, one per column;
        `InferenceRequest` is the whole request, `InferenceContext` what surrounds it. The one parameter of
        `classifier.predict(X)` receives the one declared input.

        Args:
            name: The model's name in URLs. It may hold slashes, which clients percent-encode.
            function: Any callable: a function or method, `async def`, partial, object with `__call__`, or
                numpy ufunc. It returns an array, a mapping of names to arrays, a tuple of arrays in the order
                of `outputs`, a NamedTuple with their names, a data frame, an `InferenceResponse`, or what a
                codec encodes: the return annotation, else the value, says which. A generator function, `def`
                or `async def`, answers with a stream: each item that it yields is a response, and any of
                these. Left out: what `load` returns is the callable, so that loading again replaces it and
                unloading frees it.
            version (str | None, default None): The version, for models that have several.
            inputs (Sequence[TensorSpec], default ()): The inputs that the model takes. Every request is
                checked against them, and the metadata shows them, and the function's scalars.
            outputs (Sequence[TensorSpec], default ()): The outputs that it returns. A result is cast to them
                by numpy's `same_kind` rule, if the values fit.
            content_type (str | None, default None): The content type of requests that name none. "pd" makes
                one data frame of all inputs; any other is that of each tensor whose spec in `inputs` has
                none.
            run (Literal['thread', 'inline'], default 'thread'): Where a `def` runs under ASGI and grpc.aio:
                in a worker thread, or, "inline", on the event loop. That suits functions that take
                microseconds.
            out_of_range (Literal['refuse', 'flag'], default 'refuse'): Whether a request with a value outside
                of an input's range is refused, or, with "flag", answered and marked. The mark is the response
                parameter `oip_out_of_range`, which names the inputs.
            load (Callable[..., Any] | None, default None): A `def` or `async def` that is called before the
                model is used, and each time it is loaded again. With a parameter without a default
                it gets the `LoadParameters` of the client that loads it. If no function is registered, it
                returns the function, or a `Loaded` with its inputs and outputs beside it.
            unload (Callable[..., Any] | None, default None): A `def` or `async def` that is called after the
                last call, when the model is unloaded or the server stops. With a parameter it gets what
                `load` returned, also for a function that a new one has replaced.
            ready (Callable[[], Any] | None, default None): A `def` or `async def` that each readiness check
                calls: a false result means that the model is not ready. If it raises `InferenceError`, it is
                not either, and the log has the text as the reason.
            warm_up (bool | Sequence[Mapping[str, Any]], default False): Whether the model is called before it
                is ready, after each load, outside the statistics. True calls it with an example of each input
                that a request must have, a list with the inputs of each call. If a call raises, or takes
                longer than `timeout`, the load has failed, and what was loaded before still serves.
            idle_unload (float | None, default None): How many seconds without a call a model with `load`
                stays in memory; None for always. After that its function is dropped and `unload` called. It
                counts as ready, and the next request loads it again, with the parameters of its last load,
                and waits for that. Asking for its health or metadata does not load it. If that load raises,
                the requests that wait for it are answered 503, and the next one tries again.
            max_concurrency (int | None, default None): How many calls may run at once; None for what suits
                the function. None means 256 for an `async def`, 40 for a `def`, as many as Starlette runs in
                threads, and 1 with `max_batch_size`. For a model that computes, write about the number of
                CPUs. All `def` models together have 40 threads, or as many as the largest
                `max_concurrency`.
            max_queue (int, default 100): How many requests may wait for a call. More are answered 503 with
                `Retry-After`. Each that waits holds its decoded body, so this bounds memory.
            timeout (float | None, default None): How many seconds a request may take, from the end of its
                body to its answer. After that it is answered 504. An `async def` is cancelled; a `def` goes
                on in its thread, and keeps its slot until it ends. For a generator: the time to its first
                response.
            allow_timeout_override (bool, default False): Whether a request's parameter `timeout`, in
                microseconds, may make `timeout=` shorter. If not, it is ignored, as by Triton. A gRPC
                client's deadline always counts.
            stream_timeout (float | None, default None): How many seconds all responses of a generator may
                take together. Time in which the client does not read counts too. After that the generator is
                closed, and the client gets an error.
            cache (ResponseCache | None, default None): Answers equal requests from memory. For functions
                whose result depends on their inputs alone; not for generators, and not for functions that
                take an `InferenceRequest` or `InferenceContext`.
            max_batch_size (int | None, default None): How many rows requests may have together to share a
                call; None: they share none. Waiting requests that differ in nothing but their rows then share
                one: the function gets the rows of all of them, and returns a row for each. A request with
                more rows runs alone. If the function raises, each is tried alone, so that one bad input costs
                no other request its answer.
            max_batch_delay (float, default 0.0): How many seconds a request may be held back so that others
                share its call. With 0, requests share a call only if they came while all calls that may run
                at once were busy.
            replace (bool, default False): Whether it takes the place of a model with its name and version, if
                there is one: for notebooks, and code that is reloaded. Calls that wait or run end with the
                old model, then its `unload=` is called.

        Raises:
            TypeError: The callable cannot be a model, or takes what no request can give; the text says what
                to write.
            ValueError: An argument's value is wrong, or the model is registered already.

        Example:
            >>> server = InferenceServer()
            >>> server.register("double", lambda x: x * 2, inputs=[TensorSpec("x", "FP32", [-1])])
            >>> server.infer_sync("double", {"x": np.float32([1, 2])}).outputs[0].array.tolist()
            [2.0, 4.0]

        Specification: Model Metadata; Content Types.
        """
        if is_framework(name, "flask", "Flask"):  # as Flask calls what register_blueprint is given
            raise TypeError(
                "an InferenceServer is no blueprint: write "
                "app.register_blueprint(oip_asgi.flask.blueprint(server))"
            )
        engine, runtime = self._inside
        check_names(options, ModelOptions, f"model {name!r}: ")
        model = Model(ModelOptions(name=name, function=function, **options), engine.codecs)
        runtime.make_room(model.options.max_concurrency or 1)
        if model.options.warm_up:
            model.loader.warm_up = partial(warm_up, engine, model, make_example_tensors)
        seconds, lock = model.options.idle_unload, model.limiter.lock
        if seconds is not None:
            model.lifecycle.idle_unload = IdleUnload(
                model.options.label, seconds, lock, engine.clock, runtime.alarms.set, BlockingIO(runtime)
            )
        with self._lock:
            model.observers = tuple(observer for observer in engine.observers if observer.hears(name))
            replaced = engine.models.add(model)
        if replaced is not None:
            repository.end_models(BlockingIO(runtime), [replaced], "unregister", refuses_waiting=False)

    @document(ModelOptions)
    def model(self, name: str, **options: Unpack[ModelKeywords]) -> Callable[[F], F]:
        """`register` as a decorator, which returns the function unchanged.

        Args:
            name: The model's name in URLs.
            options: The keywords of `register`, which says what each does.

        Raises:
            TypeError: It is used without parentheses and a name, or as `register` says.
            ValueError: As `register` says.

        Example:
            >>> server = InferenceServer()
            >>> @server.model("double", max_concurrency=2)
            ... def double(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            ...     return x * 2
            >>> server.models()[0].name
            'double'
        """
        if not isinstance(name, str):
            raise TypeError(
                f"server.model needs the model's name, not {name!r}: write "
                f'@server.model("{getattr(name, "__name__", "name")}")'
            )

        def decorate(function: F) -> F:
            self.register(name, function, **options)
            return function

        return decorate

    def observe(
        self,
        function: Callable[[Observation], Any],
        models: Collection[str] | None = None,
        sample: float = 1.0,
        max_queue: int = 1000,
        payload: bool = True,
    ) -> None:
        """Tell a function of each inference after it has ended: for audit, for drift, for numbers of your
        own.

        It hears of requests over all ways in, and calls from Python: once of each request, also of a batch,
        of one that is answered by the cache, and of a stream at its end. It hears of those that failed or
        were refused too; not of requests for models that nobody knows, of those that `authorize=` refuses,
        and of `warm_up=`.

        It runs in a thread of its own, one call after the other, and no request waits for it. An `async def`
        runs on the server's background event loop. What it raises is logged once. When the server stops, what
        is queued is handed over within `shutdown_timeout`. An observer's own calls of models from Python are
        not observed.

        Args:
            function: Called with an `Observation`.
            models: The names of the models of which it hears; None for all, also those that are registered
                later.
            sample: The share of inferences of which it hears, above 0 and 1 at most: 0.01 is one of a
                hundred, at random.
            max_queue: How many observations may wait for it, each of which holds its arrays, also with
                `payload=False`. More are dropped: the log tells how many once a minute, and
                `oip_asgi.prometheus` counts them.
            payload: Whether observations have the tensors. If not, they have a digest of the inputs.

        Raises:
            TypeError: `function` cannot be called, or `payload` is neither True nor False.
            ValueError: Another argument's value is wrong.

        Example:
            >>> server = InferenceServer()
            >>> server.observe(lambda observation: print(observation.model, observation.error), sample=0.1)
        """
        options = ObserverOptions(function, models, sample, max_queue, payload)
        engine, runtime = self._inside
        observer = ObserverThread(options, runtime.background)
        with self._lock:
            engine.observers.append(observer)
            for model in engine.models:
                if observer.hears(model.name):
                    model.observers = (*model.observers, observer)

    @property
    def options(self) -> ServerOptions:
        """The options with which it was made, frozen: each is an attribute, such as
        `server.options.max_body_bytes`."""
        return self._inside.engine.options

    def instrument(self, tracer: Tracer) -> None:
        """Have a span begun for each inference request. `oip_asgi.opentelemetry.instrument(server)` does that
        with OpenTelemetry's.

        Each request has at most one span, so another tracer takes the place of the one before.

        Args:
            tracer: What begins spans: an object with the methods of `Tracer`.

        Raises:
            TypeError: It has none of these methods, such as a tracer of OpenTelemetry's own.

        Example:
            >>> class Names:
            ...     def begin(self, model, version):
            ...         print("begins", model)
            ...
            ...     def together(self, model, version, rows, spans): ...
            >>> server = InferenceServer()
            >>> server.instrument(Names())
            >>> server.register("double", lambda x: x * 2)
            >>> server.infer_sync("double", {"x": [1.0]})["output_0"].tolist()
            begins double
            [2.0]
        """
        if not (hasattr(tracer, "begin") and hasattr(tracer, "together")):
            raise TypeError(
                f"{show(tracer)} is no Tracer: expected the methods begin and together; for OpenTelemetry, "
                "write "
                "oip_asgi.opentelemetry.instrument(server, tracer_provider)"
            )
        self._inside.engine.tracer = tracer

    def models(self) -> list[ModelStatus]:
        """Each version of each model, its state, and what it takes and returns. Loads nothing."""
        return [repository.read_status(model) for model in self._inside.engine.models]

    def statistics(self) -> list[ModelNumbers]:
        """The numbers of each version of each model at this moment, after those of the models that nobody
        knows. Loads nothing.

        They concern this process. `oip_asgi.prometheus` shows them to Prometheus.
        """
        return list_numbers(self._inside.engine)

    def discover(self, find: Callable[[], object]) -> None:
        """Call a function before a client lists the models, or loads one: it may register what is new, such
        as in a folder. That is for clients that may load models, with `model_control=True`.

        Args:
            find: It runs in a worker thread, maybe in several at once, or on the event loop if it is
                `async def`. What it raises is logged, and the client sees what is known without it.

        Example:
            >>> server = InferenceServer(model_control=True)
            >>> def find() -> None:
            ...     known = {model.name for model in server.models()}
            ...     for path in Path("models").glob("*.joblib"):
            ...         if path.stem not in known:
            ...             server.register(path.stem, load=partial(load, path))
            >>> server.discover(find)
        """
        self._inside.engine.finders.append(find)

    async def load(
        self, name: str, version: str | None = None, parameters: LoadParameters | None = None
    ) -> None:
        """Load a model, or load it again. What was loaded before serves until the new one is ready, and
        serves on if that fails.

        Once begun, it continues if this is cancelled. A second load waits for the first, then loads again.
        Only this process loads.

        Args:
            name: The model's name.
            version: Its version; None for all of them.
            parameters: What a `load=` with a parameter gets.

        Raises:
            InferenceError: There is no such model (404), its `load=` takes no parameters (400), or raised
                (500, with that as the cause), it was unloaded meanwhile, or the server stops (503).

        Specification: Triton's Model Repository Extension, Load.
        """
        await self._change(repository.load, name, version, parameters or LoadParameters())

    def load_sync(
        self, name: str, version: str | None = None, parameters: LoadParameters | None = None
    ) -> None:
        """`load`, for threads without an event loop.

        Raises:
            InferenceError: As `load` says.
            RuntimeError: An event loop runs in this thread.
        """
        self._wait("load", repository.load, name, version, parameters or LoadParameters())

    async def unload(self, name: str, version: str | None = None) -> None:
        """Unload a model: no call begins any more, calls that wait for a slot are answered 503, and running
        calls end first.

        Its metadata stays, and it does not count against the server's readiness. This waits until `unload=`
        has run; if it is cancelled, the unloading continues. Only this process unloads. The model's
        statistics begin anew.

        Args:
            name: The model's name.
            version: Its version; None for all of them.

        Raises:
            InferenceError: There is no such model (404).

        Specification: Triton's Model Repository Extension, Unload.
        """
        await self._change(repository.wait_until_unloaded, name, version, "unload")

    def unload_sync(self, name: str, version: str | None = None) -> None:
        """`unload`, for threads without an event loop.

        Raises:
            InferenceError: As `unload` says.
            RuntimeError: An event loop runs in this thread.
        """
        self._wait("unload", repository.wait_until_unloaded, name, version, "unload")

    async def unregister(self, name: str, version: str | None = None) -> None:
        """`unload` a model and forget it: requests for it are answered 404 from here on.

        Args:
            name: The model's name.
            version: Its version; None for all of them.

        Raises:
            InferenceError: There is no such model (404).
        """
        await self._change(repository.wait_until_unloaded, name, version, "unregister")

    def unregister_sync(self, name: str, version: str | None = None) -> None:
        """`unregister`, for threads without an event loop.

        Raises:
            InferenceError: As `unregister` says.
            RuntimeError: An event loop runs in this thread.
        """
        self._wait("unregister", repository.wait_until_unloaded, name, version, "unregister")

    async def _change(
        self,
        change: Callable[Concatenate[Engine, IO, P], Coroutine[Any, Any, None]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Load or end models, on an event loop."""
        engine, runtime = self._inside
        io = AsyncIO(runtime)
        await io.complete(change(engine, io, *args, **kwargs))

    def _wait(
        self,
        name: str,
        work: Callable[Concatenate[Engine, IO, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do what waits, in this thread, for the method with this name and `_sync`."""
        check_may_block(f"server.{name}_sync", f"await server.{name}(...)")
        engine, runtime = self._inside
        io = BlockingIO(runtime)
        return io.complete(work(engine, io, *args, **kwargs))

    async def infer(
        self,
        name: str,
        inputs: Any,
        version: str | None = None,
        parameters: Mapping[str, str | int | float | bool] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002  (its name in the protocol)
    ) -> InferenceResponse:
        """Call a model as a client would, without HTTP: the same checks, slots, timeout and errors, and no
        bytes are made.

        Args:
            name: The model's name.
            inputs: Values by name: arrays, numbers, strings, lists, series, `Tensor` objects, or what a codec
                of the server encodes. Arrays keep their dtype; numbers in a list become the declared
                datatype. Or a data frame, whose columns are inputs. They are neither changed nor made
                read-only: do not change them before this returns.
            version: The model's version; None as in a URL without one.
            parameters: The request's parameters, such as `content_type`.
            outputs: The outputs to return, in this order; None for all.
            id: The request's identifier.

        Returns:
            The response, whose arrays are the caller's own.

        Raises:
            InferenceError: The error that a client would get, with its status.

        Specification: Inference.
        """
        engine, runtime = self._inside
        wire = PythonFormat(inputs, parameters or {}, outputs or (), id, engine.codecs)
        io = AsyncIO(runtime)
        return await io.complete(infer_values(engine, io, name, version, wire))

    def infer_sync(
        self,
        name: str,
        inputs: Any,
        version: str | None = None,
        parameters: Mapping[str, str | int | float | bool] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002  (its name in the protocol)
    ) -> InferenceResponse:
        """`infer`, for threads without an event loop, such as a `def` model's.

        Raises:
            InferenceError: As `infer` says.
            RuntimeError: An event loop runs in this thread.
        """
        wire = PythonFormat(inputs, parameters or {}, outputs or (), id, self._inside.engine.codecs)
        return self._wait("infer", infer_values, name, version, wire)

    def infer_stream(
        self,
        name: str,
        inputs: Any,
        version: str | None = None,
        parameters: Mapping[str, str | int | float | bool] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002  (its name in the protocol)
    ) -> AsyncGenerator[InferenceResponse, None]:
        """Call a model and take its responses one by one: `async for response in server.infer_stream("chat",
        {"prompt": "hello"})`.

        The arguments are those of `infer`. A model that does not stream gives one response. Each response is
        made when it is asked for. Leave the loop early only within `contextlib.aclosing`, which ends the
        generator at once, and with it the model's.

        Raises:
            InferenceError: As `infer`, before the first response or after any.
        """
        engine, runtime = self._inside
        wire = PythonFormat(inputs, parameters or {}, outputs or (), id, engine.codecs)
        io = AsyncIO(runtime)
        return iterate_stream_async(
            lambda: stream(engine, engine.find_for_inference(name, version), wire, io), io
        )

    def infer_stream_sync(
        self,
        name: str,
        inputs: Any,
        version: str | None = None,
        parameters: Mapping[str, str | int | float | bool] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002  (its name in the protocol)
    ) -> Generator[InferenceResponse, None, None]:
        """`infer_stream`, for threads without an event loop.

        Raises:
            InferenceError: As `infer_stream` says.
            RuntimeError: An event loop runs in this thread.
        """
        check_may_block("server.infer_stream_sync", "async for ... in server.infer_stream(...)")
        engine, runtime = self._inside
        wire = PythonFormat(inputs, parameters or {}, outputs or (), id, engine.codecs)
        io = BlockingIO(runtime)
        return iterate_stream_blocking(
            lambda: stream(engine, engine.find_for_inference(name, version), wire, io), io
        )

    def openapi(self, prefix: str = "/v2") -> dict[str, Any]:
        """What the server answers now, as an OpenAPI 3.1 document: each model's paths, schemas of what it
        declares, and examples.

        It has no `servers`, so that it can become a part of the host's own. `OIPApp.install` does that for
        FastAPI.

        Args:
            prefix: Where the server is mounted, which each path begins with. If it is not "/v2", it also is
                part of the names of operations and components, so that one document can hold several servers.

        Raises:
            ValueError: The prefix does not begin with a slash.
        """
        document = openapi(self._inside.engine, prefix_of(prefix))
        # the host gets dicts of its own
        return msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])

    def start(self) -> None:
        """Load the models, for hosts that block. Without it each loads at the first request that needs it.

        While another thread stops the server, it waits for the end of that.
        """
        ending = self._count_start()
        engine, runtime = self._inside
        if ending is not None:
            wait_for(ending)
        io = BlockingIO(runtime)
        io.complete(engine.start(io))

    def stop(self) -> None:
        """The counterpart of `start`: lets what runs finish, then ends the worker threads and the background
        event loop.

        While it waits, at most `shutdown_timeout`, new requests are answered 503; so are those that still
        wait for a slot then. `unload=` is called then. Threads that do not end have a second more, coroutines
        that are cancelled five. Models are loaded again at the next start; one whose `unload=` has not
        returned when this does, by the first request after that.
        """
        ended = self._count_leave()
        if ended is not None:
            engine, runtime = self._inside
            io = BlockingIO(runtime)
            io.complete(engine.stop(io, self.options.shutdown_timeout))
            self._end_stop(ended)

    def drain(self) -> None:
        """Answer readiness 503 from now on, the server's and each model's, until `undrain` or the stop. Calls
        go on, new ones too.

        Proxies and Kubernetes send new requests elsewhere then: for a `preStop` hook, or a rolling update of
        something beside the server. It may be called from any thread, and again. It reaches this process
        only: of several workers, each looks at the path of a file in the `ready=` of a model, as the guide's
        page Operations shows.

        Example:
            >>> server = InferenceServer()
            >>> server.drain()  # /v2/health/ready is 503, /v2/health/live 200
            >>> server.undrain()
        """
        self._set_draining(is_draining=True)

    def undrain(self) -> None:
        """The counterpart of `drain`: readiness is as before."""
        self._set_draining(is_draining=False)

    def _set_draining(self, *, is_draining: bool) -> None:
        engine = self._inside.engine
        if engine.draining is not is_draining:
            engine.draining = is_draining
            logger.info(
                "the server drains: it is not ready until undrain()"
                if is_draining
                else "the server drains no longer"
            )

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Load the models, off the event loop, for hosts that await; at the end, what `stop` does.

        A host's lifespan is the place for it: `FastAPI(lifespan=server.lifespan)` if it has no other.
        `OIPApp.install` and `OIPMiddleware` put it there by themselves.

        Args:
            app: The application of Starlette or FastAPI in which `OIPApp` is mounted, to have its routes
                looked at.

        Raises:
            RuntimeError: No event loop of asyncio runs.
            ValueError: An earlier route of `app` answers everything under the mount.
        """
        check_mounts(app)
        self._inside.runtime.here()  # raises on another kind of event loop
        ending = self._count_start()
        engine, runtime = self._inside
        io = AsyncIO(runtime)
        try:
            if ending is not None:
                await wait_until_set(ending)
            await io.complete(engine.start(io))
            yield
        finally:
            ended = self._count_leave()
            if ended is not None:
                try:
                    await io.complete(engine.stop(io, self.options.shutdown_timeout))
                finally:
                    # threads are waited for in another one, while the host's event loop goes on
                    threading.Thread(target=self._end_stop, args=(ended,), daemon=True).start()
                    await wait_until_set(ended)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be taken for an application, as by `app.mount("/v2", server)`.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            'an InferenceServer is no application: write app.mount("/v2", OIPApp(server)), or '
            "OIPWSGIApp(server) for WSGI"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "an InferenceServer has threads and cannot be pickled: make it in each process, in the module "
            "that makes the app"
        )

    def __repr__(self) -> str:
        engine = self._inside.engine
        return (
            f"<InferenceServer {engine.options.name!r}: {', '.join(map(repr, engine.models)) or 'no models'}>"
        )

    def _count_start(self) -> Signal | None:
        """Count one more start. Return the signal for the end of a stop that is under way; None if there is
        none."""
        with self._lock:
            self._starts += 1
            return self._ending

    def _count_leave(self) -> Signal | None:
        """Count one start less. If it was the last, return the signal to set at the end of the stop."""
        with self._lock:
            self._starts = max(0, self._starts - 1)
            if self._starts or self._ending is not None:
                return None
            self._ending = Signal()
            return self._ending

    def _end_stop(self, ended: Signal) -> None:
        self._inside.runtime.stop()
        for observer in self._inside.engine.observers:
            observer.stop()
        self._inside.engine.finish_stop()
        with self._lock:
            self._ending = None
        ended.set()
