"""The kinds of requests of the soak: what is sent, and what each may be answered. Good ones are compared with the model run here."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tests.support.stressed import MAX_BODY_BYTES, SHARED

Check: TypeAlias = Callable[[dict[str, str], bytes], bool]


@dataclass(frozen=True)
class Ask:
    """One request.

    Args:
        kind: What it is called in the table.
        head: Its head.
        body: Its body.
        statuses: What it may be answered.
        is_right: Whether a 200 is the right one.
        piece: Send the body in pieces of this many bytes with pauses between them; 0 for at once.
        leaves: Seconds after which the client goes away without waiting for the answer; None for one that waits.
        sends: How much of the body is sent at all.
    """

    kind: str
    head: bytes
    body: bytes
    statuses: tuple[int, ...]
    is_right: Check = lambda headers, body: True
    piece: int = 0
    leaves: float | None = None
    sends: float = 1.0


Build: TypeAlias = Callable[[str, tuple[int, ...], random.Random], Ask]
"""Makes a request of a kind, with what it may be answered."""


def _ask(kind: str, model: str, body: bytes, statuses: tuple[int, ...], *headers: str, length: int | None = None, **more: object) -> Ask:
    announced = f"Content-Length: {len(body) if length is None else length}"
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: soak", announced, *headers, "", ""]
    return Ask(kind, "\r\n".join(lines).encode(), body, statuses, **more)  # type: ignore[arg-type]


def _json(rows: int, dice: random.Random, more: str = "") -> tuple[bytes, Check]:
    x = np.random.default_rng(dice.getrandbits(32)).normal(size=(rows, 8))
    name = f"{dice.getrandbits(64):x}"
    text = f'{{"id":"{name}","inputs":[{{"name":"x","shape":[{rows},8],"datatype":"FP64","data":{json.dumps(x.tolist())}}}]{more}}}'

    def is_right(headers: dict[str, str], body: bytes) -> bool:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        answer = json.loads(body)
        [output] = answer["outputs"]
        return answer["id"] == name and output["shape"] == [rows, 3] and np.allclose(output["data"], (x @ SHARED).ravel(), 1e-12, 1e-12)

    return text.encode(), is_right


def _binary(rows: int, dice: random.Random) -> tuple[bytes, int, Check]:
    x = np.random.default_rng(dice.getrandbits(32)).normal(size=(rows, 8))
    size = x.nbytes
    text = (
        f'{{"inputs":[{{"name":"x","shape":[{rows},8],"datatype":"FP64","parameters":{{"binary_data_size":{size}}}}}],'
        '"parameters":{"binary_data_output":true}}'
    ).encode()

    def is_right(headers: dict[str, str], body: bytes) -> bool:
        y = np.frombuffer(body[int(headers["inference-header-content-length"]) :], "<f8")
        return np.allclose(y, (x @ SHARED).ravel(), 1e-12, 1e-12)

    return text + x.tobytes(), len(text), is_right


def make(dice: random.Random) -> Ask:
    """A request of any kind; the good and quick ones are the most."""
    [kind] = dice.choices(list(_MADE), [weight for weight, _, _ in _MADE.values()])
    _, statuses, build = _MADE[kind]
    return build(kind, statuses, dice)


def _good(model: str, most: int = 8) -> Build:
    def build(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
        body, is_right = _json(dice.randint(1, most), dice)
        return _ask(kind, model, body, statuses, is_right=is_right)

    return build


def _good_binary(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    body, length, is_right = _binary(dice.choice([1, 8, 5000]), dice)
    return _ask(kind, "linear", body, statuses, f"Inference-Header-Content-Length: {length}", is_right=is_right)


def _compressed(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    body, is_right = _json(dice.randint(1, 8), dice)
    return _ask(kind, "linear", gzip.compress(body), statuses, "Content-Encoding: gzip", "Accept-Encoding: gzip", is_right=is_right)


def _slow_body(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    body, is_right = _json(2, dice)
    return _ask(kind, "linear", body, statuses, is_right=is_right, piece=60)


def _bad(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    body, _ = _json(2, dice)
    broken = dice.choice([b"", b"{", body[:-1], body.replace(b"[2,8]", b"[2,9]"), body.replace(b"FP64", b"FP65"), b"[" * 5000, bytes(100)])
    return _ask(kind, "linear", broken, statuses)


def _empty(model: str) -> Build:
    return lambda kind, statuses, dice: _ask(kind, model, b'{"inputs":[]}', statuses)


def _cut_off(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    return _ask(kind, "linear", _json(8, dice)[0], statuses, leaves=0.01, sends=0.5)


def _gone(kind: str, statuses: tuple[int, ...], dice: random.Random) -> Ask:
    model = dice.choice(["awaits", "blocks", "late", "linear"])
    body = b'{"inputs":[]}' if model == "late" else _json(2, dice)[0]
    return _ask(kind, model, body, statuses, leaves=dice.choice([0.0, 0.01, 0.04]))


_BOMB = gzip.compress(bytes(MAX_BODY_BYTES + 1), 9)

_MADE: dict[str, tuple[int, tuple[int, ...], Build]] = {
    "good, JSON": (300, (200,), _good("linear")),
    "good, JSON of 2,000 rows": (3, (200,), _good("linear", most=2000)),
    "good, binary": (150, (200,), _good_binary),
    "good, gzip both ways": (60, (200,), _compressed),
    "good, async model": (150, (200,), _good("awaits")),
    "good, body in pieces": (20, (200,), _slow_body),
    "more than a model takes": (60, (200, 503), _good("blocks")),
    "bad": (150, (400,), _bad),
    "unknown model": (20, (404,), _empty("nobody")),
    "model raises": (40, (500,), _empty("raises")),
    "async model too late": (20, (504,), _empty("late")),
    "thread too late": (20, (503, 504), _empty("late%20in%20a%20thread")),
    "client goes": (60, (), _gone),
    "client goes in its body": (
        20,
        (),
        lambda kind, statuses, dice: _ask(kind, "linear", _json(8, dice)[0], statuses, leaves=0.01, sends=0.5),
    ),
    "body above the limit": (10, (413,), lambda kind, statuses, _: _ask(kind, "linear", b"", statuses, length=MAX_BODY_BYTES + 1)),
    "gzip bomb": (1, (413,), lambda kind, statuses, _: _ask(kind, "linear", _BOMB, statuses, "Content-Encoding: gzip")),
}
"""Each kind, how often among all it comes, what it may be answered, and how it is made."""

KINDS = {kind: statuses for kind, (_, statuses, _) in _MADE.items()}
"""Each kind, and what it may be answered: all of that must come."""
