"""The JSON text of a request or a response -> its document. Knows no tensors, and nothing of the bytes behind the JSON.

Each text is read by two decoders at most: a strict one that is quick, and one that looks closely and says what is wrong. Long `data` is
cut out before, and is read in chunks later. So no decoder gets a long text at once (measured: to skip 20 MB of `[[1]],` would hold the
interpreter for 40 milliseconds).

Specification: Inference Request JSON Object, Inference Response JSON Object.
"""

from __future__ import annotations

import math
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn, TypeAlias, TypeVar

import msgspec

from .. import schemas
from ..datatypes import FLOATING, Buffer
from ..errors import InvalidRequest
from ..limits import MAX_TENSORS
from . import structure
from .numbers import NO_JSON, ONLY_FLOATS, are_many_slow, count_spelled, has_literals, spell_literals

MAX_DEPTH: Final = 100
"""How deep JSON may nest, wherever it does."""

MAX_BESIDE: Final = 2**24
"""The most bytes of JSON in a request beside long `data`. 100,000 inputs, which are the most there may be, have 160 each."""

_MAX_PART: Final = 2**21
"""The most bytes of JSON beside long `data` that are decoded in one call: so many of small parameters take 40 milliseconds."""

MAX_PARAMETERS: Final = 100_000
"""How many parameters all inputs may have together. Each takes ten times its text."""

_MAX_ITEMS: Final = 2 * MAX_TENSORS + MAX_PARAMETERS
"""The most items that lists and objects in a request's own members may have."""

_ITEMS: Final = 2
"""How many brackets are open around these."""

_NOTHING: Final = msgspec.Raw()

LONG: Final = 2**12
"""Bytes of JSON from which it is worth a look where its `data` begins and ends."""

_MAX_LOOKS: Final = 200_000
"""At how many places `data` is looked for, which are more than there may be inputs."""

_LONGER: Final = 2**20
"""Where more bytes of JSON than this are left when the `data` that is quickly found is cut out, `data` is searched for exactly."""

_UNCHECKED: Final = 2**10
"""Bytes of JSON up to which it does not matter how slow its numbers are to read."""

_CHUNK: Final = 2**16

_NAME: Final = b'"data"'
_OPENING: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[(?=.)")
_QUOTE: Final = ord('"')
_SPACE: Final = b" \t\r\n"
_TAIL: Final = 2**8
"""How far before the next brace or quote the end of an array is looked for."""

_PLACEHOLDER: Final = b"[7.77e-77]"
"""What stands in a text for `data` that was cut out of it."""

_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)$")

ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise."""

_VALUES: Final = {list: "array", dict: "object", type(None): "null"}
"""What is no value of a parameter."""

_request: Final = msgspec.json.Decoder(schemas.InferenceRequest[msgspec.Raw]).decode
_short_request: Final = msgspec.json.Decoder(schemas.InferenceRequest[schemas.RequestInput]).decode
_input: Final = msgspec.json.Decoder(schemas.RequestInput).decode
_lenient_request: Final = msgspec.json.Decoder(schemas.LenientInferenceRequest).decode
_id: Final = msgspec.json.Decoder(str | None).decode
_parameters: Final = msgspec.json.Decoder(schemas.UncheckedParameters | None, float_hook=float).decode
_outputs: Final = msgspec.json.Decoder(list[schemas.LenientRequestOutput] | None, float_hook=float).decode
_lenient_input: Final = msgspec.json.Decoder(schemas.LenientRequestInput, float_hook=float).decode
_response: Final = msgspec.json.Decoder(schemas.ReceivedResponse).decode

T = TypeVar("T")
Extent: TypeAlias = tuple[int, int]
"""Where something begins and ends in a text."""


class NotPlain(Exception):
    """The text is not plain: it must be read closely."""


class Request(msgspec.Struct, frozen=True, eq=False):
    """The document of a request.

    Args:
        id: Its `id`.
        parameters: Its parameters.
        outputs: The outputs that it asks for.
        number: How many inputs it has.
        inputs: These, to be gone through once: of many, each is decoded when its turn comes, so that it can become a tensor before the next
            is there. That raises `NotPlain` and `ERRORS` where the request is plain, and `InvalidRequest`, which names the place.
    """

    id: str | None
    parameters: schemas.Parameters | None
    outputs: list[schemas.RequestOutput]
    number: int
    inputs: Iterable[schemas.RequestInput]


class _Inputs(msgspec.Struct, frozen=True, eq=False):
    """The inputs of a request one after the other. What was decoded is let go.

    Args:
        texts: Each input as text.
        text: The whole text.
        data: The long `data` that was cut out of these, in order.
        is_plain: Whether the quick decoder took it, which then reads its inputs too.
        is_spelled: Whether literals that are no JSON were written as strings in it.
    """

    texts: list[msgspec.Raw]
    text: Buffer
    data: Sequence[Buffer]
    is_plain: bool
    is_spelled: bool = False

    def __iter__(self) -> Iterator[schemas.RequestInput]:
        left = iter(self.data)
        texts, parameters = self.texts, 0
        for place in range(len(texts)):
            text, texts[place] = texts[place], _NOTHING
            if len(text) > _MAX_PART:
                _refuse_size(text, f"inputs[{place}]")
            item = _input(text) if self.is_plain else _input_closely(text, f"inputs[{place}]", is_spelled=self.is_spelled)
            if item.parameters:
                parameters += len(item.parameters)
                if parameters > MAX_PARAMETERS:
                    raise InvalidRequest(f"the inputs have more than {MAX_PARAMETERS} parameters")
            if self.data and bytes(item.data) == _PLACEHOLDER:
                item.data = msgspec.Raw(next(left))
            yield item
        if next(left, None) is not None:
            raise NotPlain
        if not self.is_plain:
            check_unseen(self.text)


def plain_request(text: Buffer) -> Request:
    """The JSON of a request, where it is plain, as nearly always.

    The quick decoder skips no field unseen but `data`, and the decoders of `data` look at all of that. So nothing it takes can hide deep
    nesting or bad UTF-8. Unknown fields, the literals of Python's json, and mistakes are rare, so they pay for the closer look.

    Raises:
        NotPlain: It is not plain, or long beside its `data`.
        msgspec.DecodeError: The same; UnicodeDecodeError and RecursionError likewise.
    """
    if len(text) < LONG:
        if len(text) > _UNCHECKED and are_many_slow(bytes(text)):
            raise NotPlain
        short = _short_request(text)
        outputs: list[schemas.RequestOutput] = [*short.outputs] if short.outputs else []
        return Request(short.id, short.parameters, outputs, len(short.inputs), short.inputs)
    cuts = _long_arrays(text)
    head = _without(text, cuts)
    if len(head) > _LONGER:
        cuts = structure.data_values(text, LONG)
        head = _without(text, cuts)
    if len(head) > _MAX_PART or (len(head) > _UNCHECKED and are_many_slow(bytes(head))):
        raise NotPlain
    if (cuts and bytes(head).count(_PLACEHOLDER) != len(cuts)) or (len(head) > _MAX_ITEMS and _has_many_items(head)):
        raise NotPlain
    document = _request(head)
    inputs = _Inputs(document.inputs, text, _cut_out(text, cuts), is_plain=True)
    return Request(document.id, document.parameters, [*(document.outputs or ())], len(document.inputs), inputs)


def request_closely(text: Buffer) -> Request:
    """The JSON of a request, whatever it is.

    Raises:
        InvalidRequest: It is no such JSON; the text names the place.
    """
    cuts = structure.data_values(text, LONG) if len(text) >= LONG else []
    request, inputs = _request_without(text, cuts)
    if cuts and not _are_in_place(inputs, len(cuts)):
        request, _ = _request_without(text, [])
    return request


def _request_without(text: Buffer, cuts: list[Extent]) -> tuple[Request, list[msgspec.Raw]]:
    """The document of a text without what is cut out of it, and its inputs as text."""
    head = _without(text, cuts)
    if len(head) > MAX_BESIDE:
        raise InvalidRequest(f"the JSON has {len(head)} bytes beside long data: expected {MAX_BESIDE} at most")
    if len(head) > _MAX_ITEMS and _has_many_items(head):
        raise InvalidRequest(f"the JSON has more than {_MAX_ITEMS} inputs, outputs and parameters")
    head, is_spelled = spelled(bytes(head))
    try:
        document = _lenient_request(head)
    except ERRORS as error:
        refuse(error, "", text, cuts, is_spelled=is_spelled)
    if is_spelled and count_spelled(head) != sum(count_spelled(bytes(item)) for item in document.inputs):
        refuse_literals()
    parameters = _checked(_part(_parameters, document.parameters, "parameters"), "")
    outputs = [
        schemas.RequestOutput(output.name, _checked(output.parameters, f"outputs[{place}]."))
        for place, output in enumerate(_part(_outputs, document.outputs, "outputs") or ())
    ]
    identifier = _part(_id, document.id, "id")
    inputs = _Inputs(document.inputs, text, _cut_out(text, cuts), is_plain=False, is_spelled=is_spelled)
    return Request(identifier, parameters, outputs, len(document.inputs), inputs), document.inputs


def _has_many_items(head: Buffer) -> bool:
    """Whether long text has more items than a request may have: what decoders make of each takes 70 bytes, also of one byte."""
    return bytes(head).count(b",") > _MAX_ITEMS and len(structure.commas(head, _ITEMS, _MAX_ITEMS)) > _MAX_ITEMS


def _part(decode: Callable[[msgspec.Raw], T], text: msgspec.Raw, place: str) -> T | None:
    """A part of a request, None where it is absent."""
    if not len(text):
        return None
    if len(text) > _MAX_PART:
        _refuse_size(text, place)
    try:
        return decode(text)
    except ERRORS as error:
        refuse(error, place, text, [], is_spelled=False)


def _refuse_size(text: msgspec.Raw, place: str) -> NoReturn:
    raise InvalidRequest(f"{place} has {len(text)} bytes beside long data: expected {_MAX_PART} at most")


def _input_closely(text: msgspec.Raw, place: str, *, is_spelled: bool) -> schemas.RequestInput:
    try:
        item = _lenient_input(text)
    except ERRORS as error:
        refuse(error, place, text, [], is_spelled=is_spelled)
    if is_spelled and count_spelled(bytes(text)) != (count_spelled(bytes(item.data)) if item.datatype in FLOATING else 0):
        refuse_literals()
    return schemas.RequestInput(item.name, item.shape, item.datatype, _checked(item.parameters, f"{place}."), item.data)


def _checked(parameters: schemas.UncheckedParameters | None, place: str) -> schemas.Parameters | None:
    for value in (parameters or {}).values():
        if type(value) in _VALUES:
            raise InvalidRequest(f"{place}parameters[...]: expected bool | float | int | str, got {_VALUES[type(value)]}")
        if type(value) is float and math.isinf(value):
            raise InvalidRequest(f"{place}parameters[...]: number out of range")
    return parameters


def _long_arrays(text: Buffer) -> list[Extent]:
    """Where long arrays of numbers, and flat ones of strings, begin and end that look as if they were `data`.

    They are not known to be JSON, nor to be `data`. But each begins and ends as an array, and stands where a value may stand. So once it
    is decoded as one, all of the text is JSON.
    """
    find = text.find if isinstance(text, bytes) else partial(_find, memoryview(text))
    found: list[Extent] = []
    position = 0
    for _ in range(_MAX_LOOKS):
        name = find(_NAME, position)
        if name < 0:
            break
        position = name + len(_NAME)
        opening = _OPENING.match(text, position)
        if opening is None:
            continue
        position = opening.end()
        if text[position] == _QUOTE:
            end = find(b"]", position) + 1
            # in strings brackets are rare, and one behind a quote more so
            if end - position >= LONG and bytes(text[end - _TAIL : end - 1]).rstrip(_SPACE).endswith(b'"'):
                found.append((position - 1, end))
                position = end
            continue
        # in an array of numbers there is no quote and no brace, so that the first of them is behind the array
        quote = find(b'"', position)
        brace = find(b"}", position, quote if quote >= 0 else len(text))
        stop = brace if brace >= 0 else quote if quote >= 0 else len(text)
        tail = max(position, stop - _TAIL)
        end = tail + bytes(text[tail:stop]).rfind(b"]") + 1
        if end > tail and end - position >= LONG:
            found.append((position - 1, end))
            position = end
    return found


def _find(text: memoryview, wanted: bytes, start: int, stop: int | None = None) -> int:
    """`bytes.find` for any buffer."""
    view = text[:stop]
    for position in range(start, len(view), _CHUNK):
        found = bytes(view[position : position + _CHUNK + len(wanted) - 1]).find(wanted)
        if found >= 0:
            return position + found
    return -1


def _without(text: Buffer, cuts: list[Extent]) -> Buffer:
    """A text with a placeholder instead of each part that is cut out."""
    if not cuts:
        return text
    ends = [0, *(end for _, end in cuts)]
    starts = [*(start for start, _ in cuts), len(text)]
    return _PLACEHOLDER.join([text[start:end] for start, end in zip(ends, starts, strict=True)])


def _cut_out(text: Buffer, cuts: list[Extent]) -> list[Buffer]:
    view = memoryview(text)
    return [view[start:end] for start, end in cuts]


def _are_in_place(texts: list[msgspec.Raw], cuts: int) -> bool:
    """Whether so many inputs have a placeholder as their `data`, and nowhere else."""
    for text in texts:
        placeholders = bytes(text).count(_PLACEHOLDER)
        if placeholders > 1:
            return False
        if placeholders:
            cuts -= 1
            with suppress(*ERRORS):  # which are told when it is its turn
                if bytes(_lenient_input(text).data) != _PLACEHOLDER:
                    return False
    return cuts == 0


def response_document(text: bytes) -> schemas.ReceivedResponse:
    """The JSON of a response, or of an error, as a document.

    Raises:
        InvalidRequest: It is no such JSON; the text names the place.
    """
    whole, is_spelled = spelled(text)
    try:
        document = _response(whole)
    except ERRORS as error:
        refuse(error, "", text, [], is_spelled=is_spelled)
    check_unseen(text)
    if is_spelled:
        taken = sum(count_spelled(bytes(item.data)) for item in document.outputs or () if item.datatype in FLOATING)
        if taken != count_spelled(whole):
            refuse_literals()
    return document


def spelled(text: bytes) -> tuple[bytes, bool]:
    """A text in which literals that are no JSON are written as strings, and whether there are any."""
    # the same strings without a backslash before a quote, so that quotes alone tell what is inside of one
    text = text.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022")
    if not has_literals(text):
        return text, False
    if count_spelled(text):
        refuse_literals()
    return spell_literals(text), True


def refuse(error: Exception, place: str, text: Buffer, cuts: list[Extent], *, is_spelled: bool) -> NoReturn:
    check_unseen(text)
    if not isinstance(error, msgspec.ValidationError):
        raise InvalidRequest(f"the body is not valid JSON: {_BYTE.sub(lambda found: _moved(found, cuts), str(error))}") from None
    problem, _, path = str(error).replace("`", "").partition(" - at $")
    hint = f" ({NO_JSON})" if is_spelled else ""
    where = f"{place}{path}".lstrip(".") or "the body"
    raise InvalidRequest(f"{where}: {problem[0].lower()}{problem[1:]}{hint}") from None


def _moved(found: re.Match[str], cuts: list[Extent]) -> str:
    """A byte of a text without what was cut out, as it is counted in the whole text."""
    byte = int(found[1])
    for start, end in cuts:
        if byte > start:
            byte += end - start - len(_PLACEHOLDER)
    return f"(byte {byte})"


def refuse_literals() -> NoReturn:
    raise InvalidRequest(ONLY_FLOATS)


def check_unseen(text: Buffer) -> None:
    """Look at what lenient decoders skip: it must be UTF-8, and not be nested too deep."""
    view = memoryview(text)
    decoder, brackets = getincrementaldecoder("utf-8")(), 0
    try:
        for start in range(0, len(view), _CHUNK):
            chunk = bytes(view[start : start + _CHUNK])
            decoder.decode(chunk)
            brackets += chunk.count(b"[") + chunk.count(b"{")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the JSON is not valid UTF-8: {error.reason}") from None
    if brackets > MAX_DEPTH and structure.depth(text) > MAX_DEPTH:  # it nests no deeper than it has brackets
        raise InvalidRequest(f"the JSON is nested more than {MAX_DEPTH} deep")
