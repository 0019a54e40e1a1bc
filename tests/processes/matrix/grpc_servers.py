"""The servers that send HTTP/2 trailers: how each is started, in the clear and with TLS. Knows no client."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

import trustme

from tests.support.processes import Served, running


class Kind(NamedTuple):
    """A server: the command that starts it, and the options that it takes for TLS. CERTIFICATE, KEY, PORT and SETTINGS are replaced."""

    command: str
    tls: str
    waits_for_readers: bool = False
    """Whether it takes no more of a response than it can send to a client that reads slowly."""
    finishes: bool = True
    """Whether it finishes calls that run when it is told to stop."""
    requests: int = 1_000_000
    """After how many it closes a connection."""


KINDS: Final = {
    "hypercorn": Kind("hypercorn --config SETTINGS --bind 127.0.0.1:PORT", "--certfile CERTIFICATE --keyfile KEY"),
    "uvicorn zttp": Kind(
        "uvicorn --port PORT --http zttp --http2 --loop uvloop --timeout-keep-alive 75",
        "--ssl-certfile CERTIFICATE --ssl-keyfile KEY",
        requests=4096,
    ),
    "gunicorn asgi": Kind(
        "gunicorn --worker-class asgi --http-protocols h2,h1 --http2-cleartext both --keep-alive 75 --bind 127.0.0.1:PORT",
        "--certfile CERTIFICATE --keyfile KEY",
        waits_for_readers=True,
    ),
    "pyvoy": Kind("pyvoy --port PORT", "--tls-cert CERTIFICATE --tls-key KEY", waits_for_readers=True, finishes=False),
}

_SETTINGS: Final = "keep_alive_max_requests = 1000000000\n"
"""Those of hypercorn, which closes a connection after 1,000 requests else."""


class Certificate(NamedTuple):
    """What a server shows to prove that it is localhost, and the authority's own, which says so to clients."""

    certificate: Path
    key: Path
    authority: Path


def make_certificate(place: Path) -> Certificate:
    """One of an authority that is made for it, written to a folder."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    made = Certificate(place / "certificate.pem", place / "key.pem", place / "authority.pem")
    made.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    made.key.write_bytes(issued.private_key_pem.bytes())
    made.authority.write_bytes(authority.cert_pem.bytes())
    return made


def started(name: str, app: str, place: Path, certificate: Certificate | None = None) -> AbstractContextManager[Served]:
    """Run an application under one of `KINDS` until the block ends, which may begin before the server answers."""
    kind = KINDS[name]
    words = f"{kind.command} {kind.tls if certificate else ''} {app}".split()
    settings = place / "settings.toml"
    settings.write_text(_SETTINGS)
    values = {"SETTINGS": str(settings)}
    if certificate is not None:
        values |= {"CERTIFICATE": str(certificate.certificate), "KEY": str(certificate.key)}
    command = [values.get(word, word) for word in words]
    return running(command, place / "log")
