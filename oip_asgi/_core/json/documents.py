"""The JSON text of a request or a response -> its document. Knows no tensors, and nothing of the bytes behind the JSON.

Two decoders see each text at most: a strict one that is quick, and one that looks closely and says what is wrong.

Specification: Inference Request JSON Object, Inference Response JSON Object.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from ..datatypes import FLOATING, Buffer
from ..errors import InvalidRequest
from ..rest import schemas

MAX_DEPTH: Final = 100
"""How deep JSON may nest, wherever it does."""

strict_document: Final = msgspec.json.Decoder(schemas.StrictInferenceRequest).decode
"""The quick decoder alone. It raises what msgspec does for anything that needs the closer look."""

_lenient: Final = msgspec.json.Decoder(schemas.InferenceRequest).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_response: Final = msgspec.json.Decoder(schemas.ReceivedResponse).decode

T = TypeVar("T")
_WithData: TypeAlias = schemas.RequestInput | schemas.ReceivedOutput

_STEPS: Final = bytes({91: 1, 123: 1, 93: 255, 125: 255, 34: 2}.get(code, 0) for code in range(256))
"""For each byte of JSON text: [ and { go one deeper, ] and } one back, 2 stands for a quote."""

_CHUNK: Final = 2**20

LONG: Final = 2**12
"""Bytes of JSON from which it is worth a look where its `data` begin and end."""

_DATA: Final = b'"data"'
_DATA_IS: Final = _DATA + b":"
ID: Final = b'"id"'
"""Where an `id` is said in a text, if it is."""

_SPACE: Final = rb"[ \t\r\n]*"
_SAID_ID: Final = _SPACE.join([ID, b":", rb'"([^"\\\0-\x1f]*)"'])
_FIRST_ID: Final = re.compile(_SPACE.join([rb"\{", _SAID_ID, b","]))
_LAST_ID: Final = re.compile(_SPACE.join([b",", _SAID_ID, rb"\}", rb"\Z"]))
_OPENING: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[")
PLACEHOLDER: Final = b"[7.77e-77]"
"""What stands in a text for `data` that was cut out of it."""

_LITERALS: Final = {b"NaN": b'"\\u004eaN"', b"-Infinity": b'"-\\u0049nfinity"', b"Infinity": b'"\\u0049nfinity"'}
"""What Python's json writes for non-finite numbers -> a spelling of the string that means the same, and that nobody else writes."""

_NO_JSON: Final = "NaN, Infinity and -Infinity are no JSON"


def data_apart(text: bytes, most: int) -> tuple[bytes, Buffer] | None:
    """The JSON of a request with `data` in one place only, and what stands there.

    Args:
        text: The JSON.
        most: How many bytes of it may be left.

    Returns:
        The text with the placeholder instead of the `data`, and those; None where it does not look like that, or more is left. What is cut
        out is not known to be JSON, nor to be the `data`. But if the text with the placeholder is JSON, has the placeholder once, and
        there as the `data` of its only input, and if what was cut out is an array, then the whole is JSON too, and that are its `data`.
    """
    found = text.find(_DATA_IS)
    start = text.find(b"[", found)
    # in an array of numbers there is neither a brace nor a quote, so that the next one is behind it
    end = text.rfind(b"]", start, text.find(b"}", start)) + 1
    if found < 0 or end <= start or len(text) - (end - start) > most:
        return None
    quote = text.find(b'"', start)
    if quote >= 0 and (quote < end or text.find(_DATA, quote) >= 0):
        return None
    data = text[start:end] if end - start < LONG else memoryview(text)[start:end]
    return text[:start] + PLACEHOLDER + text[end:], data


def id_apart(text: bytes) -> tuple[bytes, str] | None:
    """The JSON of a request without its `id`, and that; None where it is not the first or the last that is said, or looks to be said twice.

    Raises:
        UnicodeDecodeError: It is not valid UTF-8.
    """
    first = _FIRST_ID.match(text)
    found = first or _LAST_ID.search(text)
    if found is None or text.count(ID) > 1:
        return None
    return text[:1] + text[found.end() :] if first else text[: found.start()] + b"}", found[1].decode()


def request_apart(text: bytes) -> schemas.StrictInferenceRequest | None:
    """The JSON as a document, with its long `data` cut out before it is decoded, so that only one decoder looks at them.

    Returns:
        None where there are none, or where they are not what they look like. What is cut out is not known to be JSON, but it begins
        and ends as an array, and stands where a value may stand: once it is decoded as one, all of the text is known to be JSON.

    Raises:
        msgspec.DecodeError: What is left is no such JSON; UnicodeDecodeError and RecursionError likewise.
    """
    left: list[bytes] = []
    apart: list[memoryview] = []
    whole, position, kept = memoryview(text), 0, 0
    while (found := text.find(_DATA, position)) >= 0:
        opening = _OPENING.match(text, found + len(_DATA))
        position = found + len(_DATA) if opening is None else opening.end()
        if opening is None:
            continue
        start = position - 1
        # in arrays of numbers there is no quote and no brace, so that the first of them is behind the array
        quote = text.find(b'"', position)
        brace = text.find(b"}", position, quote if quote >= 0 else len(text))
        stop = next((place for place in (brace, quote) if place >= 0), len(text))
        end = text.rfind(b"]", position, stop) + 1
        if end - start >= LONG:
            left.append(text[kept:start])
            apart.append(whole[start:end])
            kept = position = end
    left.append(text[kept:])
    if not apart or any(PLACEHOLDER in piece for piece in left):
        return None
    document: schemas.StrictInferenceRequest = strict_document(PLACEHOLDER.join(left))
    places = [item for item in document.inputs if len(item.data) == len(PLACEHOLDER) and bytes(item.data) == PLACEHOLDER]
    if len(places) != len(apart):
        return None
    for item, data in zip(places, apart, strict=True):
        item.data = msgspec.Raw(data)
    return document


def request_document(text: Buffer) -> schemas.StrictInferenceRequest | schemas.InferenceRequest:
    """The JSON as a document.

    The strict decoder takes most requests. It skips no field unseen but `data`, which its own decoder looks at, so nothing it takes can
    hide deep nesting or bad UTF-8. Unknown fields, the literals of Python's json, and mistakes are rare, so they pay for the closer look.
    """
    try:
        return strict_document(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_closely(bytes(text), _lenient, lambda document: document.inputs)


def response_document(text: bytes) -> schemas.ReceivedResponse:
    """The JSON of a response, or of an error, as a document.

    Raises:
        InvalidRequest: It is no such JSON; the text names the place.
    """
    return _decode_closely(text, _response, lambda document: document.outputs or [])


def members(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, each as its JSON.

    Raises:
        InvalidRequest: It is no JSON object, or nests too deep.
    """
    return _decode_closely(text, _members, lambda _: ())


def _decode_closely(text: bytes, decode: Callable[[bytes], T], tensors: Callable[[T], Sequence[_WithData]]) -> T:
    _check_utf8(text)
    # the same strings without a backslash before a quote, so that quotes alone tell what is inside of one
    text = text.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022")
    if _depth(text) > MAX_DEPTH:
        raise InvalidRequest(f"the JSON is nested more than {MAX_DEPTH} deep")
    spelled = _spell_literals(text) if b"NaN" in text or b"Infinity" in text else text
    try:
        document = decode(spelled)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        hint = "" if spelled is text else f" ({_NO_JSON})"
        raise InvalidRequest(f"{path.lstrip('.') or 'the body'}: {problem[0].lower()}{problem[1:]}{hint}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if spelled is not text:
        taken = sum(_count_spelled(bytes(item.data)) for item in tensors(document) if item.datatype in FLOATING)
        if _count_spelled(text) or taken != _count_spelled(spelled):
            raise InvalidRequest(f"{_NO_JSON}: expected them as elements of floating-point data only")
    return document


def _check_utf8(text: bytes) -> None:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(text), _CHUNK):
            decoder.decode(text[start : start + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the JSON is not valid UTF-8: {error.reason}") from None


def _depth(text: bytes) -> int:
    """How deep brackets outside strings nest, in text without escaped quotes, at one pass of numpy's over bounded chunks."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return 0
    deepest, depth, quotes = 0, 0, 0
    for start in range(0, len(text), _CHUNK):
        steps = np.frombuffer(text[start : start + _CHUNK].translate(_STEPS), np.int8)
        inside = quotes + np.cumsum(steps == 2)
        quotes = int(inside[-1])
        depths = depth + np.cumsum(np.where((inside % 2 == 1) | (steps == 2), 0, steps), dtype=np.int64)
        deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    return deepest


def _spell_literals(text: bytes) -> bytes:
    """Write the literals outside strings as strings, in text without escaped quotes, over bounded chunks."""
    parts: list[bytes] = []
    start, inside = 0, 0
    while start < len(text):
        end = text.find(b",", start + _CHUNK)  # no literal holds a comma
        end = len(text) if end < 0 else end
        pieces = text[start:end].split(b'"')
        for place in range(inside, len(pieces), 2):
            for literal, spelling in _LITERALS.items():
                pieces[place] = pieces[place].replace(literal, spelling)
        inside ^= (len(pieces) - 1) % 2
        parts.append(b'"'.join(pieces))
        start = end
    return b"".join(parts)


def _count_spelled(text: bytes) -> int:
    return sum(map(text.count, _LITERALS.values()))
