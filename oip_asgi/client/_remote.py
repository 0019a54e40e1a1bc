"""`remote`: a model of another server as a model of this one. It passes on requests that were checked here, and checks what comes back."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import httpcore
import httpx

from .._models.handler import Loaded
from .._models.specs import AnyShape, TensorSpec
from .._protocol.errors import ErrorResponse, InferenceError, InvalidRequest, InvalidResponse, ModelFault, list_names, show
from .._protocol.log import escape
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensors import ELSEWHERE, InferenceContext, InferenceRequest, InferenceResponse, make_tensor
from . import _questions as questions
from ._http import AsyncHTTPLink
from ._questions import HTTPRequest, Inference

if TYPE_CHECKING:
    from ._grpc import AsyncGRPCLink

_CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be opened. What follows has the time of the request."""

_POOL: Final[Any] = {"max_connections": None, "max_keepalive_connections": None, "keepalive_expiry": 1.5}
"""`max_concurrency` bounds the calls. Servers close idle connections after 2 seconds, gunicorn's default, and later."""

_ASIDE_SECONDS: Final = 1.0
"""How long an address that failed is passed over, if there is another one."""

_QUESTION_SECONDS: Final = 10.0
"""How long the other server may take to answer a question that is not inference."""

_AGAIN_SECONDS: Final = 0.2

_NOT_PASSED_ON: Final = frozenset(
    {"binary_data", "binary_data_output", "binary_data_size", "timeout", "triton_enable_empty_final_response", *ELSEWHERE}
)
"""Parameters that are about this server's own answer: it has done what they ask, or the request is written anew."""

_OF_CONNECTION: Final = re.compile(
    "connection|content-.*|expect|host|inference-header-content-length|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|accept-encoding"
)
"""Headers of one connection or body, which mean nothing for another one."""

_OURS_TO_BLAME: Final = (404, 405, 406, 407, 408, 411, 426, 429)
"""What another server answers if its address, its model or its proxy is wrong. The client can do nothing about that."""

_NO_MODEL: Final = "Request for unknown model"
"""How Triton's text begins if it does not have the model, with the status 400 in older versions."""

_NOT_YET: Final = (429, 502, 503, 504)

_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_logger: Final = logging.getLogger("oip_asgi")


def remote(
    url: str | Sequence[str],
    model: str,
    *,
    version: str | int | None = None,
    http: httpx.AsyncClient | None = None,
    forward: Sequence[str] = ("authorization", "traceparent"),
    stream: bool | None = None,
    wait: float = 60.0,
) -> Callable[[], Awaitable[Loaded]]:
    """Make the `load=` of a model that another server of the protocol has: Triton, KServe, MLServer, or one of this package.

    When it is loaded, it reads what the other server says of the model. From then on requests are checked here, and passed on if they
    are right: binary tensors as the bytes that they are. One request is one call, which is never repeated. The call ends if the client
    goes or the time of the request is over; the other server is told how much is left, as the request's parameter `timeout`.

    Args:
        url: Where the other server's paths begin, such as "http://triton:8000/v2", or "http+unix:///run/model.sock/v2" for a server on a
            Unix socket. Of several, each call takes the one with the fewest calls under way; one that cannot be reached or breaks off is
            passed over for a second. A call goes to another one only if no connection could be opened.
        model: The model's name there.
        version: Its version there; without it, the other server chooses.
        http: A client of httpx for certificates, proxies or tests. It belongs to one event loop, and stays open. Without it, connections
            are opened on each event loop that calls the model.
        forward: The headers of a request that are passed on. No other is.
        stream: Whether the model answers with a stream. Without it, its configuration says that, if the other server has one.
        wait: For how many seconds a load tries again if the other server cannot be reached or is not ready.

    Returns:
        What `load=` takes. The model is ready if the other server says so of its own.

    Raises:
        ValueError: A URL is none of a server, or a header in `forward` is one of a connection.

    Example:
        >>> server = InferenceServer()
        >>> server.register("bert", load=remote("http://triton:8000/v2", "bert"), max_concurrency=64, timeout=5)

    The client gets errors 400 to 499 as the other server has them, but 404 and others that are no fault of its own are 502, as are a
    refused connection, a broken answer and errors from 500 on; 429 and 503 are 503, and late is 504. The log says once what failed.

    Specification: Inference, Binary Tensor Data Extension, Server Metadata, Model Metadata.
    """

    def make() -> _Remote:
        return _Remote([url] if isinstance(url, str) else list(url), model, version, http, forward, stream, wait)

    async def load() -> Loaded:
        return await make().load()  # with connections of its own: those of what it replaces are closed

    make()  # what is wrong with the arguments is an error here
    return load


class _HTTPLink(AsyncHTTPLink):
    """The other server over HTTP, without a limit of time once it is connected."""

    def connect(self, url: str) -> None:
        super().connect(url)
        self.pool = httpcore.AsyncConnectionPool(**{**self.options, **_POOL})

    def write(self, request: HTTPRequest, timeout: float | None) -> Any:
        written = super().write(request, timeout)
        written.extensions["timeout"]["connect"] = _CONNECT_SECONDS
        return written


class _Address:
    """One address of the other server, on one event loop."""

    def __init__(self, url: str, http: httpx.AsyncClient | None) -> None:
        self.url = url
        self.running = 0
        self.aside_until = 0.0
        self.link: AsyncGRPCLink | AsyncHTTPLink
        if url.startswith(("grpc://", "grpcs://")):
            from ._grpc import AsyncGRPCLink  # needs another extra

            self.link = AsyncGRPCLink(url, None, math.inf)
        else:
            self.link = _HTTPLink(url, None, math.inf, http)


class _Remote:
    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        version: str | int | None,
        http: httpx.AsyncClient | None,
        forward: Sequence[str],
        stream: bool | None,
        wait: float,
    ) -> None:
        if not urls:
            raise ValueError("remote() has no url: expected one such as http://host:8000/v2")
        for name in forward:
            if _OF_CONNECTION.fullmatch(name.lower()):
                raise ValueError(f"forward= has {name!r}, a header of one connection: leave it out")
        self._urls, self._http = urls, http
        self._make_addresses()
        self._model, self._version, self._wait = model, version, wait
        self._forward = [(name.lower(), name.lower().encode("ascii")) for name in forward]
        self._stream = stream
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Address]] = WeakKeyDictionary()
        self._binary = True
        self._outputs: Mapping[str, TensorSpec] = {}

    def _make_addresses(self) -> list[_Address]:
        return [_Address(url, self._http) for url in self._urls]

    def _addresses(self) -> list[_Address]:
        """The addresses, as the event loop that runs here uses them."""
        loop = asyncio.get_running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            found = self._by_loop[loop] = self._make_addresses()
        return found

    def _choose(self) -> Iterator[_Address]:
        """The addresses in the order in which a call tries them."""
        left = list(self._addresses())
        while len(left) > 1:
            now = time.monotonic()
            best = min(left, key=lambda address: (address.aside_until > now, address.running))
            left.remove(best)
            yield best
        yield from left

    # Loading

    async def load(self) -> Loaded:
        """Read what the other server says of the model."""
        until, is_told = time.monotonic() + self._wait, False
        while True:
            try:
                return await self._read_declaration()
            except (httpx.TransportError, InvalidResponse, TimeoutError) as error:
                is_passing = (
                    error.response_status in _NOT_YET if isinstance(error, ErrorResponse) else not isinstance(error, InvalidResponse)
                )
                if not is_passing or time.monotonic() >= until:
                    text = f"the server of the model {self._model!r}, {' or '.join(self._urls)}, cannot be asked"
                    raise ModelFault(f"{text}: {_describe(error)}") from None
                if not is_told:
                    _logger.warning("waiting for %s, which has the model %r: %s", " or ".join(self._urls), self._model, _describe(error))
                is_told = True
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _read_declaration(self) -> Loaded:
        extensions = _get_list(await self._ask(questions.METADATA), "extensions")
        document = await self._ask(questions.ask_of(self._model, self._version, questions.MODEL_METADATA))
        config: dict[str, Any] = {}
        if "model_configuration" in extensions:
            config = await self._ask(questions.ask_of(self._model, self._version, questions.MODEL_CONFIG))
        self._binary = any(str(name).startswith("binary_tensor_data") for name in extensions)
        inputs, outputs = (_read_specs(document, what) for what in ("inputs", "outputs"))
        if (document.get("parameters") or {}).get("undeclared_inputs"):
            inputs = []  # it takes others too
        self._outputs = {spec.name: spec for spec in outputs}
        policy = config.get("model_transaction_policy") or {}
        streams = bool(policy.get("decoupled")) if self._stream is None else self._stream
        optional = [str(each.get("name")) for each in _get_list(config, "input") if each.get("optional")]
        return Loaded(
            function=self.stream if streams else self.infer,
            inputs=inputs,
            outputs=outputs,
            optional=optional,
            ready=self.is_ready,
            unload=self.close,
        )

    async def _ask(self, question: questions.Question[Any]) -> Any:
        """Ask the first address that can be reached."""
        for address in self._choose():
            try:
                async with asyncio.timeout(_QUESTION_SECONDS):
                    return await address.link.ask(question, None)
            except (httpx.TransportError, TimeoutError, ErrorResponse) as error:
                failure = error
                if isinstance(error, ErrorResponse) and not _is_unsent(error):
                    break
        raise failure

    async def is_ready(self) -> bool:
        """Whether the model is ready there."""
        try:
            ready: bool = await self._ask(questions.ask_of(self._model, self._version, questions.MODEL_READY))
        except (httpx.TransportError, InvalidResponse, TimeoutError):
            return False
        return ready

    async def close(self) -> None:
        """Close the connections of all event loops that still run."""
        here = asyncio.get_running_loop()
        for loop, addresses in list(self._by_loop.items()):
            for address in addresses:
                if loop is here:
                    await address.link.close()
                elif loop.is_running():
                    asyncio.run_coroutine_threadsafe(address.link.close(), loop)
        self._by_loop.clear()

    # Inference

    async def infer(self, request: InferenceRequest, context: InferenceContext) -> InferenceResponse:
        inference = self._write(request, context)
        refusal: InferenceError
        for address in self._choose():
            address.running += 1
            try:
                return self._check(await address.link.infer(inference, None), inference)
            except Exception as error:
                refusal = self._refuse(address, error, context)
                if not _is_unsent(error):
                    raise refusal from refusal.__cause__
            finally:
                address.running -= 1
        raise refusal

    async def stream(self, request: InferenceRequest, context: InferenceContext) -> AsyncGenerator[InferenceResponse]:
        inference = self._write(request, context)
        refusal: InferenceError
        for address in self._choose():
            address.running += 1
            try:
                async with aclosing(address.link.stream(inference, None)) as responses:
                    async for response in responses:
                        yield self._check(response, inference)
                return
            except Exception as error:
                refusal = self._refuse(address, error, context)
                if not _is_unsent(error):
                    raise refusal from refusal.__cause__
            finally:
                address.running -= 1
        raise refusal

    def _write(self, request: InferenceRequest, context: InferenceContext) -> Inference:
        """What is asked there: the request without what was done here, and how much time is left for it."""
        parameters = _pass_on(request.parameters)
        if context.deadline != math.inf:
            parameters = {**parameters, "timeout": max(1, int((context.deadline - time.monotonic()) * 1e6))}
        inputs = [make_tensor(x.name, x.array, _pass_on(x.parameters)) if x.parameters else x for x in request.inputs]
        outputs = [RequestOutput(output.name) for output in request.outputs]
        headers: list[tuple[bytes, bytes]] = []
        for name, encoded in self._forward:
            value = context.headers.get(name)
            if value is not None:
                if not _VALUE.fullmatch(value):
                    raise InvalidRequest(f"the header {name} is {show(value)}, which cannot be passed on")
                headers.append((encoded, value.encode("latin-1")))
        return Inference(self._model, self._version, InferenceRequest(inputs, request.id, parameters, outputs), self._binary, headers)

    def _check(self, response: InferenceResponse, inference: Inference) -> InferenceResponse:
        """Check a response against what the other server said of its model."""
        declared, missing = self._outputs, {output.name for output in inference.request.outputs} or set(self._outputs)
        for tensor in response.outputs:
            array, spec = tensor.array, declared.get(tensor.name)
            if declared and (spec is None or array.dtype != spec.dtype or not spec.fits(array.shape)):
                raise InvalidResponse(
                    f"the output {show(tensor.name)} is {tensor.datatype} of shape {list(array.shape)}: expected "
                    + (f"{spec.datatype} of shape {list(spec.shape)}" if spec else list_names(list(declared)))
                )
            missing.discard(tensor.name)
        if missing:
            raise InvalidResponse(f"the response has no output {list_names(sorted(missing))}")
        return response

    def _refuse(self, address: _Address, error: Exception, context: InferenceContext) -> InferenceError:
        """The error for the client; its cause is for the log. The address is passed over for a moment if it did not answer."""
        status, headers, text, there = 502, {}, "", None
        if _is_unsent(error):
            what = "cannot be reached"
        elif isinstance(error, ErrorResponse):
            there, sent = error.response_status, error.response_headers
            if there is not None and _is_of_client(there, error.text):
                return InferenceError(error.text, status=there, headers=_keep(sent, "WWW-Authenticate"))
            what = f"answered with the status {there}"
            if there is None:
                what, text = "broke off its stream", error.text
            elif there in (429, 503):
                status, headers = 503, _keep(sent, "Retry-After") or {"Retry-After": "1"}
            elif there in (408, 504):
                status = 504
        elif isinstance(error, httpx.TimeoutException):
            status, what = 504, "took too long"
        elif isinstance(error, httpx.TransportError):
            what = "gave no whole answer"
        elif isinstance(error, InvalidResponse):
            what = "gave a broken answer"
        else:
            raise error
        if not isinstance(error, InvalidResponse) or _is_unsent(error) or there in (502, 503, 504):
            address.aside_until = time.monotonic() + _ASIDE_SECONDS
        refusal = InferenceError(text or f"model {context.model_name!r} failed: its server {what}", status=status, headers=headers)
        refusal.__cause__ = ConnectionError(f"{address.url} {what}: {_describe(error)}")
        if _is_unsent(error) and len(self._urls) > 1:
            _logger.warning("model %r: %s is passed over: %s", context.model_name, address.url, escape(_describe(error)))
        return refusal


def _is_unsent(error: Exception) -> bool:
    """Whether no connection could be opened, so that nothing was sent. gRPC says it in the text alone."""
    if isinstance(error, ErrorResponse):
        return error.response_status == 503 and error.text.startswith("failed to connect to all addresses")
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def _is_of_client(status: int, text: str) -> bool:
    """Whether the client can do something about an error of the other server."""
    return 400 <= status <= 499 and status not in _OURS_TO_BLAME and not text.startswith(_NO_MODEL)


def _keep(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """A header for the client, if the other server sent it, and it can be sent."""
    value = headers.get(name.lower(), "")
    return {name: value} if value and value.isascii() and value.isprintable() else {}


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _pass_on(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name not in _NOT_PASSED_ON} if parameters else parameters


def _get_list(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _read_specs(document: Mapping[str, Any], what: str) -> list[TensorSpec]:
    """The declared tensors of a model's metadata. `[-1]` may stand for any shape there, if the model does not say it."""
    specs: list[TensorSpec] = []
    for each in _get_list(document, what):
        try:
            shape = [int(size) for size in each["shape"]]
            specs.append((AnyShape if shape == [-1] else TensorSpec)(each["name"], each["datatype"], shape))
            continue
        except (KeyError, TypeError, ValueError) as error:
            why = str(error)
        raise ModelFault(f"the metadata of the model has {show(each)} among its {what}: {why}")
    return specs
