"""`remote`: a model of another server as a model of this one. It passes on requests that were checked here,
and checks what comes back."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from .._codecs.column_dtypes import holds_missing
from .._models.handler import Loaded
from .._models.results import CheckedResponse
from .._protocol.context import InferenceContext
from .._protocol.errors import (
    InferenceError,
    InvalidRequest,
    InvalidResponse,
    ModelFault,
    NotYet,
    escape,
    list_names,
    logger,
    show,
)
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensors import (
    ELSEWHERE,
    InferenceRequest,
    InferenceResponse,
    make_tensor,
    to_plain_parameters,
)
from . import _questions as questions
from ._addresses import ERRORS, Address, describe, is_unsent, refuse
from ._questions import Inference, get_list, read_specs
from ._senders import ConnectionFailed

if TYPE_CHECKING:
    import httpx2

_QUESTION_SECONDS: Final = 10.0
"""How long the other server may take to answer a question that is not inference."""

_AGAIN_SECONDS: Final = 0.2

_READY_SECONDS: Final = 1.0
"""How long an answer about readiness is good."""

_NOT_PASSED_ON: Final = frozenset(
    {
        "binary_data",
        "binary_data_output",
        "binary_data_size",
        "timeout",
        "triton_enable_empty_final_response",
        *ELSEWHERE,
    }
)
"""Parameters that are about this server's own answer: it has done what they ask, or the request is written
anew."""

_NO_BYTES: Final = 'the other server has no binary data: send base64 text, with the content type "base64"'

_UNSIGNED: Final = frozenset({"priority", "sequence_id"})
"""Parameters of 64 bits without a sign, by Triton's extensions."""

_MAX_HEADERS: Final = 7000
"""Bytes of headers that are passed on. Above 8,192 in all, Triton closes the connection, and gRPC refuses
some calls: what a client sent would look like a failure of the server."""

_OF_CONNECTION: Final = re.compile(
    "connection|content-.*|expect|host|inference-header-content-length|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|accept-encoding"
)
"""Headers of one connection or body, which mean nothing for another one."""


def remote(
    url: str | Sequence[str],
    model: str,
    *,
    version: str | int | None = None,
    http: httpx2.AsyncClient | None = None,
    forward: Sequence[str] = ("authorization", "traceparent"),
    stream: bool | None = None,
    wait: float = 60.0,
    retry: float = 0.0,
) -> Callable[[], Awaitable[Loaded]]:
    """Make the `load=` of a model that another server of the protocol has: Triton, KServe, MLServer, or one
    of this package.

    When it is loaded, it reads what the other server says of the model. From then on requests are checked
    here, and passed on if they are right: binary tensors as the bytes that they are. One request is one call,
    which is never repeated. The call ends if the client goes, or if the request has no time left. How much
    time it has is sent to the other server, as the request's parameter `timeout`, which counts there if the
    model has `allow_timeout_override=True`.

    Args:
        url: Where the other server's paths begin, such as "http://triton:8000/v2", or
            "http+unix:///run/model.sock/v2" for a server on a Unix socket. Of several, each call takes the
            one with the fewest calls under way; one that cannot be reached, breaks off or answers 502, 503 or
            504 is passed over for a second. A call goes to another one only if no connection could be opened.
        model: The model's name there.
        version: Its version there; without it, the other server chooses.
        http: A client of httpx2 for certificates, proxies or tests. It belongs to one event loop, and stays
            open. Without it, connections are opened on each event loop that calls the model.
        forward: The headers of a request that are passed on. No other is.
        stream: Whether the model answers with a stream. Without it, its configuration says that, if the other
            server has one.
        wait: For how many seconds a load tries again if the other server cannot be reached or is not ready.
            After that the model is not ready, and says why; each request or probe, but at most one in five
            seconds, begins such a load again.
        retry: For how many seconds a call tries again if no connection can be opened, as while the other
            server restarts. It keeps its slot meanwhile. Without it, the call is answered 503 at once.

    Returns:
        What `load=` takes. The model is ready while the other server says that its own model is; that is
        checked at most once per second.

    Raises:
        ValueError: A URL cannot be the address of a server, `forward` has a header that belongs to a
            connection, or `retry` is below 0.

    Example:
        >>> server = InferenceServer()
        >>> load = remote("http://triton:8000/v2", "bert")
        >>> server.register("bert", load=load, max_concurrency=64, timeout=5)

    Errors 400 to 499 keep their status, but for 404 and others that are not the client's fault: these are
    502, as are a broken answer and other errors from 500 on. 429, 503 and no connection become 503; 408, 504
    and no answer in time become 504. The log has each cause, and of an address that cannot be reached one
    line when it goes away, and one when it is back.

    Specification: Inference, Binary Tensor Data Extension, Server Metadata, Model Metadata.
    """
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("remote() has no url: expected one such as http://host:8000/v2")
    for name in forward:
        if _OF_CONNECTION.fullmatch(name.lower()):
            raise ValueError(f"forward= has {name!r}, a header of one connection: leave it out")
    if not retry >= 0:
        raise ValueError(f"retry={retry!r}: expected seconds, from 0 on")
    headers = [name.lower() for name in forward]
    for each in urls:
        Address(each, model, http)  # what is wrong with a URL is an error here

    async def load() -> Loaded:
        # with new connections: those of the model that it replaces are closed
        addresses = [Address(each, model, http) for each in urls]
        there = _Remote(addresses, model, version, headers, stream, retry)
        try:
            return await there.load(wait)
        except BaseException:
            await there.close()
            raise

    return load


class _Remote:
    """The model, as one load found it."""

    def __init__(
        self,
        addresses: Sequence[Address],
        model: str,
        version: str | int | None,
        forward: Sequence[str],
        stream: bool | None,
        retry: float,
    ) -> None:
        self._addresses, self._model, self._version = addresses, model, version
        self._forward, self._streams, self._retry = forward, stream, retry
        self._urls = " or ".join(address.url for address in addresses)
        self._reason: str | None = None
        self._asks_after = 0.0  # when the next one asks whether the model is ready
        self._binary = True
        self._specs: Sequence[TensorSpec] = ()
        self._outputs: Mapping[str, TensorSpec] = {}

    # Loading

    async def load(self, wait: float) -> Loaded:
        until, is_told = time.monotonic() + wait, False
        while True:
            try:
                return await self._read_declaration()
            except ERRORS as error:
                what = f"{self._urls}, which has the model {self._model!r}"
                fault = ModelFault(f"cannot ask {what}: {describe(error)}")
                if not refuse(error).is_passing:
                    raise fault from None
                if time.monotonic() >= until:
                    raise NotYet(f"its server {_tell(error)}") from fault
                if not is_told:
                    logger.warning("waiting for %s: %s", what, escape(describe(error)))
                is_told = True
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _read_declaration(self) -> Loaded:
        server = await self._ask_question(questions.METADATA)
        extensions = get_list(server, "extensions")
        metadata = await self._ask_question(
            questions.ask_of(self._model, self._version, questions.MODEL_METADATA)
        )
        asked = questions.ask_of(self._model, self._version, questions.MODEL_CONFIG)
        config = await self._ask_question(asked) if "model_configuration" in extensions else {}
        self._binary = any(str(name).startswith("binary_tensor_data") for name in extensions)
        inputs, outputs = (read_specs(metadata, what) for what in ("inputs", "outputs"))
        if (metadata.get("parameters") or {}).get("undeclared_inputs"):
            inputs = []  # it takes others too
        self._specs, self._outputs = tuple(outputs), {spec.name: spec for spec in outputs}
        if self._streams is None:
            self._streams = bool((config.get("model_transaction_policy") or {}).get("decoupled"))
        if (
            self._streams
            and server.get("name") == "triton"
            and not all(address.is_grpc for address in self._addresses)
        ):
            raise ModelFault(
                f"the model {self._model!r} answers with a stream, which Triton sends over gRPC only: write "
                "grpc://host:8001"
            )
        return Loaded(
            function=self.stream if self._streams else self.infer,
            inputs=inputs,
            outputs=outputs,
            optional=[str(each.get("name")) for each in get_list(config, "input") if each.get("optional")],
            ready=self.is_ready,
            unload=self.close,
        )

    async def _ask_question(self, question: questions.Question[Any], *, is_loaded: bool = False) -> Any:
        """Ask the first address that can be reached. While it loads, the log has what fails by itself."""
        failure: Exception
        for address in sorted(self._addresses, key=Address.rank):
            try:
                async with asyncio.timeout(_QUESTION_SECONDS):
                    answer = await address.link.ask(question, None)
            except (ConnectionFailed, TimeoutError) as error:  # no answer: the next address may have one
                failure = error
                if is_loaded and is_unsent(error):
                    address.note_away(describe(error), calls=0)
            else:
                address.note_back()
                return answer
        raise failure

    async def is_ready(self) -> bool:
        """Raise InferenceError, whose text is the reason, if it is not.

        One in a second asks, as everybody who reaches a port may ask for health as often as he likes; the
        others, also while it asks, get what was known before."""
        if (now := time.monotonic()) >= self._asks_after:
            self._asks_after = now + _READY_SECONDS
            self._reason = await self._find_reason()
        if self._reason is not None:
            raise InferenceError(self._reason, status=503)
        return True

    async def close(self) -> None:
        """Close the connections of all event loops that still run."""
        for address in self._addresses:
            await address.link.close()

    async def _find_reason(self) -> str | None:
        """Why the model is not ready, for the log; None if it is."""
        question = questions.ask_of(self._model, self._version, questions.MODEL_READY)
        try:
            what = None if await self._ask_question(question, is_loaded=True) else "says so"
        except ERRORS as error:
            what = _tell(error)
        return None if what is None else f"its server {self._urls} {what}"

    # Inference

    async def infer(self, request: InferenceRequest, context: InferenceContext) -> InferenceResponse:
        async with aclosing(self.stream(request, context)) as responses:
            return await anext(responses)

    async def stream(
        self, request: InferenceRequest, context: InferenceContext
    ) -> AsyncGenerator[InferenceResponse]:
        until = time.monotonic() + self._retry
        while True:
            inference = self._write(request, context)
            for address in sorted(self._addresses, key=Address.rank):
                address.count_call(1)
                link = address.link
                try:
                    asked = (
                        link.stream(inference, None) if self._streams else _once(link.infer(inference, None))
                    )
                    async with aclosing(asked) as responses:
                        async for response in responses:
                            yield self._check(address, response, request)
                    return
                except ERRORS as error:
                    refusal = self._refuse(address, error, context)
                finally:
                    address.count_call(-1)
            if time.monotonic() >= until:
                raise refusal
            await asyncio.sleep(_AGAIN_SECONDS)

    def _write(self, request: InferenceRequest, context: InferenceContext) -> Inference:
        """What is asked there: the request without what was done here, and how much time is left for it."""
        parameters = _pass_on(request.parameters)
        if context.deadline != math.inf:
            parameters = {**parameters, "timeout": max(1, int((context.deadline - time.monotonic()) * 1e6))}
        inputs = [
            make_tensor(x.name, x.array, _pass_on(x.parameters)) if x.parameters else x
            for x in request.inputs
        ]
        outputs = [RequestOutput(output.name) for output in request.outputs]
        headers: list[tuple[str, str]] = []
        for name, value in context.headers.items():
            if name in self._forward:
                value = value.strip(" \t")  # some servers leave it on, and it is no part of the value
                if not questions.is_sendable(value):
                    raise InvalidRequest(f"the header {name} cannot be passed on: expected printable ASCII")
                headers.append((name, value))
        if headers and sum(len(name) + len(value) for name, value in headers) > _MAX_HEADERS:
            names = list_names(self._forward)
            raise InvalidRequest(
                f"the forwarded headers ({names}) have more than {_MAX_HEADERS} bytes together: send "
                "shorter ones"
            )
        sent = InferenceRequest(inputs, request.id, parameters, outputs)
        return Inference(
            self._model,
            self._version,
            sent,
            self._binary,
            headers,
            context.max_body_bytes,
            _NO_BYTES,
            writable=False,
        )

    def _check(
        self, address: Address, response: InferenceResponse, request: InferenceRequest
    ) -> InferenceResponse:
        """Check a response against what the other server said of its model."""
        address.note_back()
        declared = self._outputs
        by_name = {tensor.name: tensor for tensor in response.outputs}
        if len(by_name) != len(response.outputs):
            raise InvalidResponse(
                "the response has an output twice: "
                f"{list_names([tensor.name for tensor in response.outputs])}"
            )
        for name, tensor in by_name.items():
            array, spec = tensor.array, declared.get(name)
            fits = spec is not None and (
                spec.fits(array.shape) and (array.dtype == spec.dtype or holds_missing(tensor, spec.dtype))
            )
            if declared and not fits:
                raise InvalidResponse(
                    f"the output {show(name)} is {tensor.datatype} of shape {list(array.shape)}: expected "
                    + (f"{spec.datatype} of shape {list(spec.shape)}" if spec else list_names(list(declared)))
                )
            tensor.parameters = to_plain_parameters(
                f"output {show(name)}", tensor.parameters, InvalidResponse
            )
        response.parameters = to_plain_parameters("the response", response.parameters, InvalidResponse)
        asked = {output.name for output in request.outputs} & declared.keys()
        if missing := (asked or declared.keys()) - by_name.keys():
            raise InvalidResponse(f"the response has no output {list_names(sorted(missing))}")
        outputs = [by_name[name] for name in declared or by_name if name in by_name]
        return CheckedResponse(
            outputs, response.parameters, None, response.model_name, response.model_version, self._specs
        )

    def _refuse(self, address: Address, error: Exception, context: InferenceContext) -> InferenceError:
        """Raise what the client gets; return it if no connection could be opened, so that another address may
        answer. One that did not answer, or with 502 to 504, is passed over for a second."""
        refusal = refuse(error)
        if refusal.is_away:
            address.pass_over()
        raised = refusal.make(context.model_name, address.url, error)
        if not is_unsent(error):
            address.note_back()
            raise raised from raised.__cause__
        address.note_away(describe(error), calls=1)
        return raised


def _tell(error: Exception) -> str:
    """What the other server did to a question that is not inference."""
    return refuse(error).what or f"refused the question: {describe(error)}"


async def _once(response: Awaitable[InferenceResponse]) -> AsyncGenerator[InferenceResponse]:
    yield await response


def _pass_on(parameters: Parameters) -> Parameters:
    """The parameters for the other server. Raises if the value of one would change on the way."""
    passed = (
        {name: value for name, value in parameters.items() if name not in _NOT_PASSED_ON}
        if parameters
        else parameters
    )
    for name, value in passed.items():
        if not _arrives_unchanged(name, value):
            expected = "expected text without NUL, a finite number, or an integer of 64 bits with its sign"
            raise InvalidRequest(
                f"the parameter {show(name)} = {show(value)} cannot be passed on: {expected}"
            )
    return passed


def _arrives_unchanged(name: str, value: str | float | bool) -> bool:
    """Whether a parameter arrives unchanged at Triton, which ends text at a NUL and makes integers beyond 64
    bits floats, and over gRPC."""
    if isinstance(value, str):
        return "\0" not in name + value
    least = 0 if name in _UNSIGNED else -(2**63)
    is_number = least <= value < 2**64 + least if isinstance(value, int) else math.isfinite(value)
    return is_number and "\0" not in name
