"""`Client` and `AsyncClient`. What they ask is written once, as coroutines: `AsyncClient` has them, and
`Client` runs them over a link that blocks, so that they never wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack, cast

from .._io import finish
from .._protocol.errors import ErrorResponse, InferenceError, InvalidResponse
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceResponse, Tensor
from . import _questions as questions
from ._http import make_link
from ._questions import MAX_BODY_BYTES, Inference, Options, read_specs
from ._senders import iterate_at_once

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

    from ._grpc import GRPCLink
    from ._http import HTTPLink

Version: TypeAlias = str | int | None
C = TypeVar("C", bound=type)


class Client:
    """A client of a server of the protocol, which blocks. It may be used by several threads at once.

    Args:
        url: Where the server's paths begin, such as "http://127.0.0.1:8000/v2".
            "http+unix:///run/model.sock/v2" is a server on a Unix socket. "grpc://host:8001" calls over gRPC,
            which needs the extra `grpc`; "grpcs" has TLS. With a client of httpx2 that has a `base_url`, it
            may be "/v2" alone.
        headers: Headers of each request, such as `{"Authorization": "Bearer ..."}`.
        timeout: Seconds to wait for a connection, and for each part of a body to be sent or to arrive; over
            gRPC, for the whole call. Without it, 60, or what `http` says; `math.inf` for ever.
        max_body_bytes: The largest answer that is read, in bytes, and the largest event of a stream: 1 GiB,
            or None for no limit.
        ssl: The certificates of "https", such as `ssl.create_default_context(cafile="ca.pem")`. Without it,
            those of the system.
        http: A client of httpx2 that sends the requests, such as one with proxies or retries of its own, or
            Starlette's `TestClient`. It stays open when this client is closed. Without it, proxies that
            environment variables name are not used.

    Raises:
        ValueError: The URL cannot be the address of a server, the timeout is not above 0, a header cannot be
            sent, or `http` or `ssl` are for another transport.
        TypeError: The headers are no mapping, a header is no string, or `http` is no client of httpx2.
        ImportError: A library that the URL needs is not installed: none for a `Client` over HTTP.

    Example:
        >>> with Client("http://127.0.0.1:8000/v2") as client:  # doctest: +SKIP
        ...     client.is_model_ready("double")
        True
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_body_bytes: int | None = MAX_BODY_BYTES,
        ssl: SSLContext | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        link = make_link(
            url, headers, timeout, http=http, ssl=ssl, max_body_bytes=max_body_bytes, blocks=True
        )
        self._calls = _Calls(link, max_body_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Any call after that raises RuntimeError."""
        finish(self._calls.close())

    def infer(
        self,
        model: str,
        inputs: Any,
        *,
        version: Version = None,
        parameters: Mapping[str, Any] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002
        timeout: float | None = None,
        binary: bool = True,
    ) -> InferenceResponse:
        """Call a model.

        Args:
            model: Its name.
            inputs: Values by name: arrays, lists of numbers, `str`, `bytes` or `datetime`, torch tensors,
                series of pandas, or a `Tensor`, such as a codec makes one. Or a data frame, whose columns are
                the inputs; a list of objects of a class, each a row (see `response.rows`); a list of
                `Tensor`; an `InferenceRequest`. A list becomes what the model declares: before the first one
                is sent to a model, its metadata is read, once. What is not declared is INT64, FP64, BOOL,
                BYTES or dates, as its elements are, with None among numbers as NaN.
            version: The model's version; without it, the server chooses.
            parameters: The request's parameters: `str`, `int`, `float` or `bool`.
            outputs: The outputs that are asked for, by name or with parameters; without them, all.
            id: The request's identifier, which comes back in the response.
            timeout: As on `Client`, for this request.
            binary: Whether inputs and outputs are bytes after the JSON, and not in it. Servers without the
                binary tensor data extension, such as MLServer over REST, need False.

        Returns:
            The response. `response["y"]` is the array of an output, `response.as_("y", list[str])` its value
            as Python has it.

        Raises:
            ErrorResponse: The server refused, with its `response_status` and `text`.
            InvalidResponse: What came is no response of the protocol.
            InferenceError: The inputs cannot be tensors, or not in JSON.
            ConnectionFailed: The connection failed, or took too long. Over gRPC, a call that took too long is
                an `ErrorResponse` with 504.
            RuntimeError: The client is closed.

        Specification: Inference, Binary Tensor Data Extension.
        """
        options = Options(version=version, parameters=parameters, outputs=outputs, id=id, binary=binary)
        return finish(self._calls.infer(model, inputs, timeout=timeout, **options))

    def stream(
        self, model: str, inputs: Any, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> Generator[InferenceResponse]:
        """Call a model that answers with many responses, by `infer_stream`, which this package and MLServer
        have.

        The arguments and errors are those of `infer`, and an error may come after some responses. The
        connection is closed if the iterator is closed or forgotten before its end; `contextlib.closing`, or
        `aclosing`, closes it at a place of your own.

        Returns:
            An iterator over the responses, each as soon as it arrives. Nothing is sent before the first one
            is asked for.
        """
        return iterate_at_once(self._calls.stream(model, inputs, timeout=timeout, **options))

    def metadata(self) -> dict[str, Any]:
        """The server's metadata: `name`, `version`, and `extensions`, such as "binary_tensor_data"."""
        return finish(self._calls.metadata())

    def is_live(self) -> bool:
        """Whether the server is live. Raises if it cannot be reached."""
        return finish(self._calls.is_live())

    def is_ready(self) -> bool:
        """Whether all models of the server are ready."""
        return finish(self._calls.is_ready())

    def is_model_ready(self, model: str, version: Version = None) -> bool:
        """Whether a model is ready. One that the server does not know is not."""
        return finish(self._calls.is_model_ready(model, version))

    def model_metadata(self, model: str, version: Version = None) -> dict[str, Any]:
        """A model's metadata: `name`, `platform`, `inputs`, `outputs`, and `versions` if it has any."""
        return finish(self._calls.model_metadata(model, version))

    def index(self, *, ready: bool = False) -> list[dict[str, Any]]:
        """The models of the repository, each with `name`, and `version`, `state` and `reason` where it has
        them.

        Args:
            ready: Only those that are ready.
        """
        return finish(self._calls.index(ready=ready))

    def load(
        self, model: str, parameters: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> None:
        """Load a model, or load it again. Servers allow it only if they are set up so.

        Args:
            model: Its name.
            parameters: Such as `config`, a JSON text, or `file:1/model.onnx`, the bytes of a file.
            timeout: As on `Client`, for this request.
        """
        finish(self._calls.load(model, parameters, timeout=timeout))

    def unload(
        self, model: str, parameters: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> None:
        """Unload a model. The arguments are those of `load`."""
        finish(self._calls.unload(model, parameters, timeout=timeout))

    def statistics(self, model: str | None = None, version: Version = None) -> list[dict[str, Any]]:
        """The numbers of one model, or of all: one object for each version, as the extension of statistics
        has it."""
        return finish(self._calls.statistics(model, version))

    def config(self, model: str, version: Version = None) -> dict[str, Any]:
        """A model's configuration, as Triton has it."""
        return finish(self._calls.config(model, version))


def _describe_as_client(calls: C) -> C:
    """A class decorator: each call gets the docstring that `Client` has for it."""
    for name, method in vars(Client).items():
        if not name.startswith("_"):
            vars(calls)[name].__doc__ = method.__doc__
    return calls


@_describe_as_client
class _Calls:
    """The calls of both clients, over a link, with what is known of the models."""

    def __init__(self, link: HTTPLink | GRPCLink, max_body_bytes: int | None) -> None:
        self._link, self._max_body_bytes = link, max_body_bytes
        self._specs: dict[tuple[str, Version], Mapping[str, TensorSpec]] = {}

    async def close(self) -> None:
        link, self._link = self._link, cast(Any, _Closed())
        await link.close()

    async def infer(
        self,
        model: str,
        inputs: Any,
        *,
        version: Version = None,
        parameters: Mapping[str, Any] | None = None,
        outputs: Sequence[str | RequestOutput] | None = None,
        id: str | None = None,  # noqa: A002
        timeout: float | None = None,
        binary: bool = True,
    ) -> InferenceResponse:
        options = Options(version=version, parameters=parameters, outputs=outputs, id=id, binary=binary)
        with self._forget_if_refused(model, version):
            inference = await self._make_inference(model, inputs, timeout, options)
            return await self._link.infer(inference, timeout)

    async def stream(
        self, model: str, inputs: Any, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[InferenceResponse]:
        with self._forget_if_refused(model, options.get("version")):
            inference = await self._make_inference(model, inputs, timeout, options)
            async with aclosing(self._link.stream(inference, timeout)) as responses:
                async for response in responses:
                    yield response

    async def _make_inference(
        self, model: str, inputs: Any, timeout: float | None, options: Options
    ) -> Inference:
        specs = await self._find_specs(model, inputs, timeout, options.get("version"))
        return questions.make_inference(specs, self._max_body_bytes, model, inputs, **options)

    async def _find_specs(
        self, model: str, inputs: Any, timeout: float | None, version: Version
    ) -> Mapping[str, TensorSpec]:
        """The inputs of a model, by name; none if the values have no lists or scalars, or the server does not
        tell them."""
        if not isinstance(inputs, Mapping) or all(
            isinstance(value, Tensor) or hasattr(value, "dtype") for value in inputs.values()
        ):
            return {}  # arrays, columns and tensors say themselves what they are
        specs = self._specs.get((model, version))
        if specs is None:
            try:
                metadata = await self._link.ask(
                    questions.ask_of(model, version, questions.MODEL_METADATA), timeout
                )
                specs = {spec.name: spec for spec in read_specs(metadata, "inputs")}
            except InvalidResponse as error:
                specs = {}
                if isinstance(error, ErrorResponse) and error.response_status == 503:  # it is not loaded yet
                    return specs
            self._specs[model, version] = specs
        return specs

    @contextmanager
    def _forget_if_refused(self, model: str, version: Version) -> Iterator[None]:
        """Around a call: if it is refused, here or by the server, the model may be another one by now, and is
        asked again before the next list; not if this call has asked itself, as it is the values then."""
        was_known = (model, version) in self._specs
        try:
            yield
        except InferenceError:
            if was_known:
                self._specs.pop((model, version), None)
            raise

    async def metadata(self) -> dict[str, Any]:
        return await self._link.ask(questions.METADATA, None)

    async def is_live(self) -> bool:
        return await self._link.ask(questions.LIVE, None)

    async def is_ready(self) -> bool:
        return await self._link.ask(questions.READY, None)

    async def is_model_ready(self, model: str, version: Version = None) -> bool:
        return await self._link.ask(questions.ask_of(model, version, questions.MODEL_READY), None)

    async def model_metadata(self, model: str, version: Version = None) -> dict[str, Any]:
        return await self._link.ask(questions.ask_of(model, version, questions.MODEL_METADATA), None)

    async def index(self, *, ready: bool = False) -> list[dict[str, Any]]:
        return await self._link.ask(questions.INDEX_OF_READY if ready else questions.INDEX, None)

    async def load(
        self, model: str, parameters: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> None:
        await self._link.ask(questions.ask_change("load", model, parameters), timeout)

    async def unload(
        self, model: str, parameters: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> None:
        await self._link.ask(questions.ask_change("unload", model, parameters), timeout)

    async def statistics(self, model: str | None = None, version: Version = None) -> list[dict[str, Any]]:
        return await self._link.ask(questions.ask_of(model, version, questions.STATISTICS), None)

    async def config(self, model: str, version: Version = None) -> dict[str, Any]:
        return await self._link.ask(questions.ask_of(model, version, questions.MODEL_CONFIG), None)


class _Closed:
    """In the place of a link that was closed."""

    async def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("this client is closed: make another one, or call it before close()")


class AsyncClient(_Calls):
    """`Client` for asyncio: each method is awaited, and `stream` is for `async for`. It has connections of
    its own for each event loop.

    If the task that awaits is cancelled, the connection of its request is closed.

    Args:
        url: As on `Client`.
        headers: As on `Client`.
        timeout: As on `Client`.
        max_body_bytes: As on `Client`.
        ssl: As on `Client`.
        http: As on `Client`, a `httpx2.AsyncClient`. In tests, one with the transport
            `httpx2.ASGITransport(app)` calls an application without a server.

    Example:
        >>> async with AsyncClient("http://127.0.0.1:8000/v2") as client:  # doctest: +SKIP
        ...     response = await client.infer("double", {"x": np.float32([1, 2])})
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_body_bytes: int | None = MAX_BODY_BYTES,
        ssl: SSLContext | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(
            make_link(url, headers, timeout, http=http, ssl=ssl, max_body_bytes=max_body_bytes),
            max_body_bytes,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
