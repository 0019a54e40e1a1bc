"""Rows of bodies: binary data, the wire vectors, raw requests, limits and compression."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.ways import Request
from tests.table.row import ECHOED, GOOD, MAX_BODY_BYTES, MAX_JSON_BYTES, Row, answer, framed, infer, inputs, tensor
from tests.table.vectors import VECTORS

UPGRADE = (("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"))
"""What Java's HttpClient sends with each request to http://, if not told otherwise."""


def vector_rows() -> Iterator[Row]:
    """Every wire vector, as each JSON and as binary, answered as JSON and as binary."""
    for vector in VECTORS:
        shape = list(vector.shape)
        written = answer("echo", tensor(vector.datatype, shape, vector.written))
        for sent in (vector.written, *vector.sent, *filter(None, [vector.literal])):
            yield Row(f"{vector} sent as {sent}", infer("echo", inputs(tensor(vector.datatype, shape, sent))), 200, written)
        sized = tensor(vector.datatype, shape, None, parameters=f'{{"binary_data_size":{len(vector.raw_bytes)}}}')
        yield Row(f"{vector} binary in", framed("echo", inputs(sized), vector.raw_bytes), 200, written)
        text = answer("echo", sized)
        header = (("inference-header-content-length", str(len(text))), ("content-type", "application/octet-stream"))
        asked = inputs(tensor(vector.datatype, shape, vector.written), more=',"parameters":{"binary_data_output":true}')
        yield Row(f"{vector} binary out", infer("echo", asked), 200, text + vector.raw_bytes, headers=header)
        both = framed("echo", inputs(sized, more=',"outputs":[{"name":"x","parameters":{"binary_data":true}}]'), vector.raw_bytes)
        yield Row(f"{vector} binary in and out", both, 200, text + vector.raw_bytes, headers=header)


def raw_request_rows() -> Iterator[Row]:
    def raw(model: str, body: bytes) -> Request:
        return infer(model, body, ("inference-header-content-length", "0"))

    def binary(model: str, datatype: str, shape: list[int], data: bytes) -> bytes:
        return answer(model, tensor(datatype, shape, None, "y", f'{{"binary_data_size":{len(data)}}}')) + data

    floats = bytes.fromhex("0000803f 00000040 00004040")
    yield Row("raw request", raw("one", floats), 200, binary("one", "FP32", [3], floats))
    yield Row("raw request, empty", raw("one", b""), 200, binary("one", "FP32", [0], b""))
    shorts = bytes(range(8))
    yield Row("raw request, fixed shape", raw("raw-fixed", shorts), 200, binary("raw-fixed", "INT16", [2, 2], shorts))
    # the body is the only element, without the length that frames it in the answer
    for name, text in (("BYTES", b"ab"), ("BYTES that look framed", bytes.fromhex("02000000 6162")), ("empty BYTES", b"")):
        framed = len(text).to_bytes(4, "little") + text
        yield Row(f"raw request, {name}", raw("raw-bytes", text), 200, binary("raw-bytes", "BYTES", [1], framed))
    bad = {
        ("one", b"12345"): "5 bytes do not fill its declared shape [-1]",
        ("raw-fixed", b"1234567"): "7 bytes do not fill its declared shape [2, 2]",
        ("raw-free", b"1234"): "4 bytes do not fill its declared shape [-1, -1], which may have one -1",
        ("two", b"1234"): "does not declare exactly one input",
        ("echo", b"1234"): "does not declare exactly one input",
        ("no%20inputs", b"1234"): "does not declare exactly one input",
    }
    for (model, body), message in bad.items():
        yield Row(f"raw request {model}, {len(body)} bytes", raw(model, body), 400, text=(message,))


def binary_rows() -> Iterator[Row]:
    """What may be wrong about binary data and its framing."""

    def sized(size: int, datatype: str = "FP32", shape: Any = (2,)) -> str:
        return tensor(datatype, list(shape), None, parameters=f'{{"binary_data_size":{size}}}')

    for name, item, data, message in (
        ("binary too short", sized(8), b"1234567", "binary_data_size is 8, but 7 bytes of binary data are left"),
        ("binary too long", sized(8), b"123456789", "1 bytes are left over"),
        ("binary absent", sized(8), b"", "binary_data_size is 8, but 0 bytes"),
        ("binary size below shape", sized(7), b"1234567", "7 bytes of binary data, but shape [2] needs 8"),
        ("binary size above shape", sized(9), b"123456789", "9 bytes of binary data, but shape [2] needs 8"),
        ("binary size huge", sized(2**63), b"12345678", "binary_data_size is 9223372036854775808, but 8"),
        ("binary for none", sized(4, shape=[0]), b"1234", "4 bytes of binary data, but shape [0] needs 0"),
        ("binary shape [1000001, 0]", sized(0, shape=[1_000_001, 0]), b"", "shape is too large"),
        ("binary shape 2^62", sized(8, shape=[2**62]), b"12345678", "shape is too large"),
        ("binary left over without binary input", GOOD, b"1234", "4 bytes are left over"),
        ("BOOL 2", sized(2, "BOOL"), b"\x01\x02", "BOOL element 1 is the byte 2"),
        ("BOOL 255", sized(2, "BOOL"), b"\xff\x00", "BOOL element 0 is the byte 255"),
        ("BYTES length cut off", sized(3, "BYTES", [1]), b"\1\0\0", "its 4-byte length is cut off"),
        ("BYTES cut off", sized(6, "BYTES", [1]), b"\3\0\0\0ab", "BYTES element 0 claims 3 bytes, but 2 are left"),
        ("BYTES overlong", sized(6, "BYTES", [1]), b"\1\0\0\0ab", "1 bytes are left over after the last of 1 BYTES elements"),
        ("BYTES too few", sized(5, "BYTES", [2]), b"\1\0\0\0a", "1 BYTES elements in the binary data, but the shape needs 2"),
        ("BYTES too many", sized(8, "BYTES", [1]), b"\0\0\0\0\0\0\0\0", "4 bytes are left over after"),
        ("BYTES length 2^32-1", sized(5, "BYTES", [1]), b"\xff\xff\xff\xffa", "claims 4294967295 bytes"),
        ("BYTES none, some there", sized(4, "BYTES", [0]), b"\0\0\0\0", "4 bytes are left over after"),
        ("BYTES shape 2^40", sized(4, "BYTES", [2**40]), b"\0\0\0\0", "1 BYTES elements in the binary data"),
    ):
        yield Row(name, framed("echo", inputs(item), data), 400, text=(message,))
    text = inputs(sized(8))
    good, length = text + b"12345678", len(text)
    for value in (
        "-1",
        "+5",
        "abc",
        "",
        " ",
        "0x10",
        "97.0",
        "9_7",
        f"{length}abc",
        "1e2",
        "٣".encode().decode("latin-1"),
        f"{length}, {length + 1}",
    ):
        header = ("inference-header-content-length", value)
        yield Row(f"header {value!r}", infer("echo", good, header), 400, text=("Inference-Header-Content-Length",))
    for number, message in (
        (length - 1, "not valid JSON"),
        (length + 1, "not valid"),
        (len(good) + 1, f"but the body has {len(good)} bytes only"),
        (10**17, "bytes only"),
        (2**32 + length, "bytes only"),
        (10**40, "no body is that long"),
    ):
        yield Row(
            f"header {number - length} off", infer("echo", good, ("inference-header-content-length", str(number))), 400, text=(message,)
        )
    twice = [("inference-header-content-length", str(length)), ("inference-header-content-length", str(length + 1))]
    yield Row("header twice", infer("echo", good, *twice), 400, text=("Inference-Header-Content-Length is repeated with different values",))


def limit_rows() -> Iterator[Row]:
    body = inputs(GOOD)
    limit = f"larger than {MAX_BODY_BYTES} bytes"
    yield Row("above the limit", framed("echo", body, bytes(MAX_BODY_BYTES + 1 - len(body))), 413, text=(limit,))
    header = ("inference-header-content-length", str(len(body)))
    yield Row("announced above the limit", infer("echo", body, ("content-length", str(10**15)), header), 413, text=(limit,))
    yield Row("JSON above both limits", infer("echo", body.ljust(MAX_BODY_BYTES + 1)), 413, text=("raise max_json_bytes",))
    yield Row("JSON announced above both limits", infer("echo", body, ("content-length", str(10**15))), 413, text=("raise max_json_bytes",))
    raw = MAX_BODY_BYTES - 300
    text = inputs(tensor("UINT8", [raw], None, parameters=f'{{"binary_data_size":{raw}}}'))
    seen = answer("whole", tensor("BYTES", [1], '["x"]', "names"), more=',"parameters":{"seen":true}')
    yield Row("largest body", framed("whole", text.ljust(300), bytes(raw)), 200, seen)
    json_limit = f"the JSON is larger than {MAX_JSON_BYTES} bytes, the most that this server takes: "
    json_limit += "send binary tensor data, or raise max_json_bytes"
    above = body.ljust(MAX_JSON_BYTES + 1)
    yield Row("JSON above its limit", infer("echo", above), 413, text=(json_limit,))
    yield Row("JSON above its limit, announced", infer("echo", body, ("content-length", str(len(above)))), 413, text=(json_limit,))
    yield Row(
        "JSON above its limit, compressed", infer("echo", gzip.compress(above), ("content-encoding", "gzip")), 413, text=(json_limit,)
    )
    yield Row("JSON above its limit before binary data", framed("echo", above, bytes(8)), 413, text=(json_limit,))
    yield Row("JSON above its limit, for generate", Request("POST", "/models/echo/generate", (), above), 413, text=(json_limit,))
    yield Row("announced far above the limit", infer("echo", body, ("content-length", "9" * 30)), 400, text=("Content-Length",))
    yield Row(
        "ends early", infer("echo", body, ("content-length", str(len(body) + 1))), 400, text=(f"the body ended after {len(body)} bytes",)
    )
    yield Row("ends at once", infer("echo", b"", ("content-length", "10")), 400, text=("the body ended after 0 bytes: expected 10",))
    dropped = ("no body came, and the request has the header Upgrade with 'h2c': uvicorn with httptools drops", "--http h11", "HTTP_1_1")
    for path in ("/models/echo/infer", "/models/echo/generate", "/models/echo/infer_stream", "/repository/index"):
        yield Row(f"Upgrade, body dropped, {path}", Request("POST", path, (*UPGRADE, ("content-length", "10"))), 400, text=dropped)
    yield Row("Upgrade, body there", infer("echo", body, *UPGRADE), 200, answer("echo", ECHOED))
    yield Row("Upgrade, nothing sent", infer("echo", b"", *UPGRADE), 400, text=("the body is empty",))
    yield Row("Upgrade, nothing to send", Request("GET", "/health/live", UPGRADE), 200, b'{"live":true}')
    for value in ("-1", "abc", "1 2"):
        yield Row(f"Content-Length {value}", infer("echo", body, ("content-length", value)), 400, text=("Content-Length",))
    encoded = (("accept-encoding", "gzip, deflate"),)
    for value in ("br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "identity, br"):
        yield Row(f"Content-Encoding {value}", infer("echo", body, ("content-encoding", value)), 415, text=(value,), headers=encoded)


def bare_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame, as some clients send it."""
    compress = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compress.compress(data) + compress.flush()


def compressed_rows() -> Iterator[Row]:
    """Compressed bodies, whole and broken."""
    body, data = inputs(GOOD), np.array([1, 2], "<f4").tobytes()
    text = inputs(tensor("FP32", [2], None, parameters='{"binary_data_size":8}'))
    packed = gzip.compress(body)
    ok = 200, answer("echo", ECHOED)

    def sent(coding: str, data: bytes, *headers: tuple[str, str]) -> Request:
        return infer("echo", data, ("content-encoding", coding), *headers)

    for coding in ("gzip", "x-gzip", "GZIP", " gzip ", "identity, gzip"):
        yield Row(f"compressed by {coding}", sent(coding, packed), *ok)
    yield Row("compressed by deflate", sent("deflate", zlib.compress(body)), *ok)
    yield Row("compressed by bare deflate", sent("deflate", bare_deflate(body)), *ok)
    yield Row(
        "several gzip members", sent("gzip", b"".join(gzip.compress(body[start : start + 9]) for start in range(0, len(body), 9))), *ok
    )
    yield Row("an empty gzip member behind", sent("gzip", packed + gzip.compress(b"")), *ok)
    length = ("inference-header-content-length", str(len(text)))
    yield Row("the header counts decoded bytes", sent("gzip", gzip.compress(text + data), length), *ok)
    yield Row("as large as the limit", sent("gzip", gzip.compress(body.ljust(MAX_JSON_BYTES))), *ok)

    corrupt = "body is corrupt"
    wrong_sum, wrong_size = bytes([packed[-8] ^ 1]), bytes([packed[-1] ^ 1])
    for name, coding, broken, problem in (
        ("plain JSON", "gzip", body, corrupt),
        ("zlib said to be gzip", "gzip", zlib.compress(body), corrupt),
        ("gzip said to be deflate", "deflate", packed, corrupt),
        ("plain JSON said to be deflate", "deflate", body, corrupt),
        ("a corrupt middle", "gzip", packed[:20] + bytes([packed[20] ^ 255]) + packed[21:], corrupt),
        ("a wrong checksum", "gzip", packed[:-8] + wrong_sum + packed[-7:], corrupt),
        ("a wrong size", "gzip", packed[:-1] + wrong_size, corrupt),
        ("a wrong checksum of zlib's", "deflate", zlib.compress(body)[:-1] + b"\0", corrupt),
        ("garbage behind gzip", "gzip", packed + b"garbage", corrupt),
        ("one byte behind gzip", "gzip", packed + b"\0", "ends too early"),
        ("garbage behind deflate", "deflate", zlib.compress(body) + b"garbage", "goes on behind its end"),
        ("garbage behind bare deflate", "deflate", bare_deflate(body) + b"garbage", "goes on behind its end"),
        ("cut in its data", "gzip", packed[:30], "ends too early"),
        ("cut in its checksum", "gzip", packed[:-1], "ends too early"),
        ("cut in its header", "gzip", packed[:3], "ends too early"),
        ("one byte of deflate", "deflate", zlib.compress(body)[:1], "ends too early"),
        ("deflate cut", "deflate", zlib.compress(body)[:-1], "ends too early"),
        ("many members", "gzip", gzip.compress(b"") * 900, "the body is empty"),
        ("nothing", "gzip", b"", "the body is empty"),
    ):
        yield Row(f"compressed: {name}", sent(coding, broken), 400, text=(problem,))
    for name, coding, bomb in (
        ("gzip", "gzip", gzip.compress(bytes(MAX_BODY_BYTES + 1))),
        ("deflate", "deflate", zlib.compress(bytes(15_000_000), 9)),
        ("members", "gzip", gzip.compress(bytes(1000)) * 21),
    ):
        yield Row(f"a bomb of {name}", sent(coding, bomb, length), 413, text=("the body is larger than 20000 bytes",))
        yield Row(f"a bomb of JSON, {name}", sent(coding, bomb), 413, text=("the JSON is larger than 19000 bytes",))
    yield Row("a header beyond the decoded bytes", sent("gzip", packed, (length[0], str(len(body) + 1))), 400, text=("but the body has",))
