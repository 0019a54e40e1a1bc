"""Rows for vulnerabilities that inference servers and their hosts had. `.github/SECURITY.md` has their numbers, and more tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .rows import GOOD, Hostile, document, head, head_of, post


def of_triton() -> Iterator[Hostile]:
    chunks = (b"1\r\n[\r\n" * 100_000, b"0\r\n\r\n")  # six bytes for each byte of the body
    read_only = (b"POST /pid HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", *chunks)
    yield Hostile("100,000 chunks of one byte", (head("one", "Transfer-Encoding: chunked"), *chunks), read_only=read_only)
    for name in ("..%2F..%2F..%2Fetc%2Fhostname", "..%5C..%5Cetc", "%2Fetc%2Fhostname", "one%2F..%2Fraises"):
        yield Hostile(f"a model's name that is a path, {name}", post(name, GOOD), (404,))
    for path in ("docs/..%2F..%2Fserver.py", "docs/..%5Cpage.py", "docs/%2Fetc%2Fhostname"):
        request = f"GET /v2/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        yield Hostile(f"a file that is not the page's, {path}", (request,), (404,))
    region = json.dumps({"key": "/triton_python_backend_shm_region_1", "offset": 0, "byte_size": 8}).encode()
    registering = head_of("systemsharedmemory/region/r/register", f"Content-Length: {len(region)}")
    yield Hostile("memory of another process", (registering, region), (403,))
    asked = ',"parameters":{"shared_memory_region":"r","shared_memory_byte_size":1099511627776}'
    yield Hostile("an output in memory that nobody registered", post("one", document(more=f',"outputs":[{{"name":"x"{asked}}}]')))


def of_hosts() -> Iterator[Hostile]:
    def asked(target: str, *headers: str, method: str = "POST") -> tuple[bytes, ...]:
        lines = [f"{method} {target} HTTP/1.1", *headers, f"Content-Length: {len(GOOD)}", "", ""]
        return "\r\n".join(lines).encode(), GOOD

    def is_of_one(body: bytes) -> bool:
        return b"outputs" not in body or json.loads(body)["model_name"] == "one"

    for host in ("localhost/v2/models/raises/infer?", "localhost#", "@raises"):
        hostile = asked("/v2/models/one/infer", f"Host: {host}")
        yield Hostile(f"a Host header that is no host, {host}", hostile, (200, 400), goes_on=False, is_right=is_of_one)
    yield Hostile("a target without a slash", asked("@evil.example/v2/models/one/infer", "Host: localhost"), (400, 404), goes_on=False)
    page = ("Host: localhost", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
    load = "/v2/repository/models/one/load"
    yield Hostile("a load by a page of another site", asked(load, *page), (403,))
    yield Hostile("DELETE by a page of another site", asked(load, *page, method="DELETE"), (405,))
    fields = [f"X-{number}: 1" for number in range(10_000)]
    yield Hostile("10,000 header fields", asked("/v2/models/one/infer", "Host: localhost", *fields), (), goes_on=False)
    same = ["Inference-Header-Content-Length: 1"] * 10_000
    yield Hostile("10,000 header fields of one name", asked("/v2/models/one/infer", "Host: localhost", *same), (), goes_on=False)


def known() -> list[Hostile]:
    """All rows of this file."""
    return [*of_triton(), *of_hosts()]
