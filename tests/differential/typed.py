"""Typed contents of gRPC: protobuf alone against what takes long contents off a message, on messages of any form.

Messages are made field by field: packed and not, in several pieces, with fields of other numbers and groups between, and now and then
with a byte that is wrong. Both ways must give the same tensors, or both must refuse.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import numpy as np

from oip_asgi._core.datatypes import Array
from oip_asgi._core.errors import InvalidRequest
from oip_asgi._core.grpc.contents import TYPED, without_contents
from oip_asgi._core.grpc.messages import decode_request
from oip_asgi._core.grpc.wire import bytes_head
from oip_asgi._core.tensors import InferenceRequest
from oip_asgi._services import Services

PARSE: Final = next(m for m in Services(lambda _: [], health=False, reflection=False).methods("inference.GRPCInferenceService")
                    if m.name == "ModelInfer").parse  # fmt: skip
FIELDS: Final = ("bool", "int", "int64", "uint", "uint64", "fp32", "fp64", "bytes")


def number(value: int) -> bytes:
    """A number as protobuf writes it, or, of more than 64 bits, as it never does."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def sized(field: int, content: bytes) -> bytes:
    return bytes_head(field, len(content)) + content


def element(random: Random, field: int) -> bytes:
    """One value of a field of contents."""
    if field == 6:
        return random.randbytes(4)
    if field == 7:
        return random.randbytes(8)
    if field == 8:
        return random.randbytes(random.choice([0, 1, 2, 2, 3, 20, 200]))
    return number(random.choice([0, 1, 1, 2, 127, 128, 255, 300, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 2, random.getrandbits(64)]))


def contents(random: Random, field: int, most: int) -> tuple[bytes, int]:
    """Contents of one field, and how many elements they have."""
    parts: list[bytes] = []
    elements = 0
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        size = random.randrange(most)
        elements += size
        values = [element(random, field) for _ in range(size)]
        if field == 8:
            parts += [sized(8, value) for value in values]
        elif random.random() < 0.5:
            parts.append(sized(field, b"".join(values)))
        else:
            kind = {6: 5, 7: 1}.get(field, 0)
            parts += [number(field << 3 | kind) + value for value in values]
        if random.random() < 0.1:
            parts.append(random.choice([sized(9, b"ab"), number(10 << 3) + number(1), sized(random.randint(1, 8), b"\1" * 8)]))
    return b"".join(parts), elements


def tensor(random: Random) -> bytes:
    """One input."""
    datatype = random.choice(list(TYPED))
    field = FIELDS.index(TYPED[datatype].removesuffix("_contents")) + 1
    data, elements = contents(random, random.choice([field, field, field, field, random.randint(1, 8)]), random.choice([2, 20, 400]))
    shape = [elements + random.choice([0, 0, 0, 0, 0, 1])]
    if random.random() < 0.3:
        shape.append(1)
    parts = [sized(1, b"x"), sized(2, datatype.encode()), *(number(3 << 3) + number(size) for size in shape), sized(5, data)]
    if random.random() < 0.2:
        parts.append(sized(4, sized(1, b"a") + sized(2, sized(1, b"\1"))))
    if random.random() < 0.1:
        parts.append(sized(5, data))
    if random.random() < 0.1:
        random.shuffle(parts)
    return b"".join(parts)


def message(random: Random) -> bytes:
    """A request."""
    parts = [sized(1, b"m"), *(sized(5, tensor(random)) for _ in range(random.choice([1, 1, 2, 10])))]
    if random.random() < 0.1:
        parts.insert(random.randrange(len(parts)), random.choice([sized(99, b"a" * 30), b"\x4b\x2a\x00\x4c", sized(6, sized(1, b"y"))]))
    data = bytearray(b"".join(parts))
    if random.random() < 0.3 and data:
        data[random.randrange(len(data))] = random.randrange(256)
    if random.random() < 0.05:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def outcome(decode: Any, data: bytes) -> list[Any] | None:
    """What a message means: the name, the datatype, the shape and the bytes of each tensor; None where it is refused."""
    try:
        request: InferenceRequest = decode(data)
    except InvalidRequest:
        return None
    return [(item.name, item.datatype, item.shape, item.parameters, values(item.array)) for item in request.inputs]


def values(array: Array) -> Any:
    """The elements, whichever NaN is which: protobuf reads an FP32 through an FP64, which changes some."""
    if array.dtype.hasobject:
        return array.tolist()
    return (np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array).tobytes()


def by_protobuf(data: bytes) -> InferenceRequest:
    parsed = PARSE(data)
    return decode_request(parsed, parsed.raw_input_contents)


def by_us(data: bytes) -> InferenceRequest:
    short, taken = without_contents(data)
    parsed = PARSE(short)
    return decode_request(parsed, parsed.raw_input_contents, taken)


def compare(random: Random) -> None:
    """Compare one message.

    Raises:
        AssertionError: The two ways differ.
    """
    data = message(random)
    expected, found = outcome(by_protobuf, data), outcome(by_us, data)
    assert found == expected, f"{data!r}\nby protobuf: {expected!r:.500}\nby us: {found!r:.500}"
