"""One table of wire vectors: what a tensor is as an array, as raw bytes, and as JSON. The bytes are computed by hand.

FP32 1.5 is 1.1 binary: sign 0, exponent 127, fraction 1 followed by 22 zeros: 0x3FC00000, little-endian 00 00 c0 3f; and so on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vector:
    """A tensor in each of its forms.

    `written` is the JSON that we write, `sent` is JSON that clients may send, `literal` is what Python's json sends for it, which is none.
    """

    datatype: str
    shape: tuple[int, ...]
    elements: list[Any]
    raw: str
    written: str
    sent: tuple[str, ...] = ()
    literal: str = ""

    @property
    def raw_bytes(self) -> bytes:
        return bytes.fromhex(self.raw)

    def __str__(self) -> str:
        return f"{self.datatype}{list(self.shape)} {self.written[:24]}"


INF, NAN = math.inf, math.nan

VECTORS = [
    Vector("BOOL", (4,), [True, False, False, True], "01 00 00 01", "[true,false,false,true]", ("[1,0,0,1]", "[true,0,false,1]")),
    Vector("BOOL", (2, 2), [True, False, False, True], "01 00 00 01", "[true,false,false,true]", ("[[true,false],[false,true]]",)),
    Vector("UINT8", (3,), [0, 1, 255], "00 01 ff", "[0,1,255]", ("[0.0,1.0,255.0]", "[0e0,1e0,2.55e2]", " [ 0 , 1 , 255 ] ")),
    Vector("UINT16", (3,), [1, 256, 65535], "01 00 00 01 ff ff", "[1,256,65535]"),
    Vector("UINT32", (2,), [1, 4294967295], "01 00 00 00 ff ff ff ff", "[1,4294967295]"),
    Vector(
        "UINT64",
        (2,),
        [1, 18446744073709551615],
        "01 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff",
        "[1,18446744073709551615]",
        ("[1.0,18446744073709551615]", "[1e0,18446744073709551615]"),
    ),
    Vector("INT8", (3,), [-128, -1, 127], "80 ff 7f", "[-128,-1,127]", ("[-128.0,-1e0,1.27e2]",)),
    Vector("INT8", (), [2], "02", "[2]", ("2", "2.0")),
    Vector("INT16", (3,), [-32768, -2, 32767], "00 80 fe ff ff 7f", "[-32768,-2,32767]"),
    Vector("INT32", (2, 1), [-2147483648, 1], "00 00 00 80 01 00 00 00", "[-2147483648,1]", ("[[-2147483648],[1]]",)),
    Vector(
        "INT64",
        (2,),
        [-9223372036854775808, 9007199254740991],
        "00 00 00 00 00 00 00 80 ff ff ff ff ff ff 1f 00",
        "[-9223372036854775808,9007199254740991]",
        ("[-9223372036854775808,9007199254740991.0]", "[-9223372036854775808,9.007199254740991e15]"),
    ),
    Vector("FP16", (4,), [1.0, -2.0, 65504.0, 0.5], "00 3c 00 c0 ff 7b 00 38", "[1.0,-2.0,65504.0,0.5]", ("[1,-2,65504,5e-1]",)),
    Vector(
        "FP16",
        (3,),
        [NAN, INF, -INF],
        "00 7e 00 7c 00 fc",
        '[null,"Infinity","-Infinity"]',
        ('["NaN","Infinity","-Infinity"]',),
        "[NaN,Infinity,-Infinity]",
    ),
    Vector("BF16", (3,), [1.0, -2.0, 3.140625], "80 3f 00 c0 49 40", "[1.0,-2.0,3.140625]"),
    Vector("BF16", (2,), [NAN, INF], "c0 7f 80 7f", '[null,"Infinity"]', ('["NaN","Infinity"]',), '["NaN",Infinity]'),
    Vector(
        "FP32", (2, 2), [1.5, -2.0, 0.0, 1e-45], "00 00 c0 3f 00 00 00 c0 00 00 00 00 01 00 00 00", "[1.5,-2.0,0.0,1.401298464324817e-45]"
    ),
    Vector(
        "FP32",
        (1, 3),
        [NAN, INF, -INF],
        "00 00 c0 7f 00 00 80 7f 00 00 80 ff",
        '[null,"Infinity","-Infinity"]',
        ('[["NaN","Infinity","-Infinity"]]',),
        "[ [ NaN , Infinity , -Infinity ] ]",
    ),
    Vector("FP32", (), [1.5], "00 00 c0 3f", "[1.5]", ("1.5",)),
    Vector("FP32", (1, 1, 1), [-0.0], "00 00 00 80", "[-0.0]", ("[[[-0.0]]]",)),
    Vector("FP32", (1,), [NAN], "00 00 c0 7f", "[null]", ('["\\u004eaN"]',), "[NaN]"),
    Vector("FP64", (2,), [1.5, -0.1], "00 00 00 00 00 00 f8 3f 9a 99 99 99 99 99 b9 bf", "[1.5,-0.1]"),
    Vector("FP64", (3,), [NAN, INF, -INF], "000000000000f87f 000000000000f07f 000000000000f0ff", '[null,"Infinity","-Infinity"]'),
    Vector(
        "BYTES",
        (3,),
        [b"a", b"", "é".encode()],
        "01 00 00 00 61 00 00 00 00 02 00 00 00 c3 a9",
        '["a","","é"]',
        ('["\\u0061","","\\u00e9"]',),
    ),
    Vector("BYTES", (2, 1), [b"a\0", b"\0"], "02 00 00 00 61 00 01 00 00 00 00", '["a\\u0000","\\u0000"]', ('[["a\\u0000"],["\\u0000"]]',)),
    Vector("BYTES", (), [b"NaN"], "03 00 00 00 4e 61 4e", '["NaN"]', ('"NaN"',)),
    Vector("FP32", (0,), [], "", "[]", (" [ ] ",)),
    Vector("INT64", (2, 0), [], "", "[]", ("[[],[]]",)),
    Vector("BYTES", (0, 3), [], "", "[]"),
    Vector("BYTES", (2, 0, 3), [], "", "[]", ("[[],[]]",)),
]
