"""`python -m tests.lab.soak [--seconds 300] [--connections 64] [--server uvicorn]`: runs the soak, prints its table, and fails if anything
is not as it must be.

`--server gunicorn` is the same over WSGI, behind gunicorn's threads. There health waits for a thread like any other request, so how long
that takes is told and not judged. It speaks to servers of its own on the loopback interface only, and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.processes import ROOT, stressed

from .requests import KINDS, Ask, make

MOST_GROWTH = 0.1
WARM_UP = 0.3
"""The part of the time that is no measure of memory. What is never below a level may be lost: so the least of as much time behind it
is compared with the least at the end. In between, bombs and large bodies come and go."""

LEAST = "least after warm-up, least at the end, most"

THREADS = 32
"""Of gunicorn's: more than the slow and queued requests of the soak hold at a time."""


@dataclass
class Books:
    """What was sent and what came of it."""

    sent: Counter[str] = field(default_factory=Counter)
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Connection:
    """A connection that is opened again where the last request, or the server, has closed it."""

    def __init__(self, address: str, books: Books) -> None:
        self._host, self._port = address.split(":")
        self._books = books
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, ask: Ask) -> None:
        self._books.sent[ask.kind] += 1
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
            await self._send(ask)
            if ask.leaves is not None:
                await asyncio.sleep(ask.leaves)
                self._books.left[ask.kind] += 1
                await self.close(abort=True)
                return
            status, headers, body = await asyncio.wait_for(self._receive(), 60)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self._books.lost[ask.kind] += 1
            self._books.wrong.append(f"{ask.kind}: no answer: {error!r}")
            await self.close(abort=True)
            return
        self._books.answered[ask.kind, status] += 1
        if status not in ask.statuses or not (ask.is_right(headers, body) if status == 200 else is_error(body)):
            self._books.wrong.append(f"{ask.kind}: {status} {body[:200]!r}")
        if status == 413 or headers.get("connection", "").lower() == "close":
            await self.close()

    async def _send(self, ask: Ask) -> None:
        assert self._writer is not None
        body = ask.body[: int(len(ask.body) * ask.sends)]
        if not ask.piece:
            self._writer.write(ask.head + body)
            await self._writer.drain()
            return
        self._writer.write(ask.head)
        for start in range(0, len(body), ask.piece):
            self._writer.write(body[start : start + ask.piece])
            await self._writer.drain()
            await asyncio.sleep(0.01)

    async def _receive(self) -> tuple[int, dict[str, str], bytes]:
        assert self._reader is not None
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
        return int(first.split()[1]), headers, await self._reader.readexactly(int(headers["content-length"]))

    async def close(self, *, abort: bool = False) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if abort:
            writer.transport.abort()
            return
        writer.close()
        with suppress(OSError):  # the server was quicker
            await writer.wait_closed()


def is_error(body: bytes) -> bool:
    """Whether an answer is the error object, and says nothing of what the model that raises has said."""
    return list(json.loads(body)) == ["error"] and b"secret" not in body


async def client(address: str, books: Books, seed: int, until: float) -> None:
    dice = random.Random(seed)
    connection = Connection(address, books)
    while time.monotonic() < until:
        await connection.ask(make(dice))
        await asyncio.sleep(dice.expovariate(1 / 0.05))
    await connection.close()


@dataclass(frozen=True)
class Held:
    """What a process holds, by Linux's /proc."""

    megabytes: float
    files: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(fields["VmRSS"].split()[0]) / 1024, files, int(fields["Threads"]))


async def watch(pid: int, books: Books, seconds: float, held: list[Held]) -> None:
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        await asyncio.sleep(1)
        held.append(Held.by(pid))
        if len(held) % 5 == 0:
            now = held[-1]
            counts = f"{books.sent.total():,} sent, {books.lost.total()} lost, {len(books.wrong)} wrong"
            print(f"{passed:4.0f} s: {counts}, {now.megabytes:.0f} MB, {now.files} files, {now.threads} threads", flush=True)


async def soak(address: str, pid: int, books: Books, seconds: float, connections: int) -> list[Held]:
    held: list[Held] = []
    until = time.monotonic() + seconds
    clients = [client(address, books, seed, until) for seed in range(connections)]
    await asyncio.gather(watch(pid, books, seconds, held), *clients)
    return held


def cpu_times() -> list[int]:
    """What all CPUs have spent, by kind: the eighth is what the host of a virtual machine has withheld from it. In ticks."""
    first, *_ = Path("/proc/stat").read_text().splitlines()
    return [int(ticks) for ticks in first.split()[1:9]]


def settled(pid: int, before: Held) -> Held:
    """What the server holds once threads that wait for work have ended, which they do after ten seconds."""
    for _ in range(40):
        now = Held.by(pid)
        if now.files <= before.files and now.threads <= before.threads:
            break
        time.sleep(0.5)
    return now


def infer(address: str, model: str) -> None:
    with urllib.request.urlopen(f"http://{address}/v2/models/{model}/infer", b'{"inputs":[]}', timeout=60) as response:
        assert response.status == 200


def rested(address: str, pid: int, server: str) -> Held:
    """What the server holds before the soak: all that stays by design is there, and all that does not has ended."""
    if server == "uvicorn":
        with urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=30):  # the port listens before the loop runs
            return Held.by(pid)
    with ThreadPoolExecutor(2 * THREADS) as pool:  # gunicorn's threads, and the event loop of WSGI, stay once they have begun
        list(pool.map(partial(infer, address), ["slow"] * 2 * THREADS + ["sleeps"]))
    time.sleep(15)
    return Held.by(pid)


def answering(process: subprocess.Popen[str], address: str, server: str) -> int:
    """The process that answers."""
    if server == "uvicorn":
        return process.pid
    with urllib.request.urlopen(f"http://{address}/pid", timeout=30) as response:
        return int(response.read())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.soak")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--server", choices=("uvicorn", "gunicorn"), default="uvicorn")
    arguments = parser.parse_args()
    books = Books()
    with stressed(arguments.server, threads=THREADS) as (process, address):
        pid = answering(process, address, arguments.server)
        before = rested(address, pid, arguments.server)
        command = [sys.executable, "-m", "tests.lab.soak.probe", address]
        probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        cpu_before = cpu_times()
        held = asyncio.run(soak(address, pid, books, arguments.seconds, arguments.connections))
        health = sorted(map(float, probe.communicate()[0].split()))
        spent = [end - start for start, end in zip(cpu_before, cpu_times(), strict=True)]
        assert probe.returncode == 0, "a health probe was not answered as it must be"
        after = settled(pid, before)
    return report(Outcome(books, held, health, spent[-1] / sum(spent), before, after, process.returncode), arguments)


@dataclass
class Outcome:
    """What a soak has shown.

    Args:
        books: What was sent and answered.
        held: What the server held, from second to second.
        health: How long each question for its health took, in milliseconds, in order of size.
        withheld: Which part of the CPU time the host of this machine has withheld.
        before: What the server held before.
        after: What it held behind it.
        code: What the server ended with.
    """

    books: Books
    held: list[Held]
    health: list[float]
    withheld: float
    before: Held
    after: Held
    code: int


def report(found: Outcome, arguments: argparse.Namespace) -> int:
    books, health = found.books, found.health
    print("\n| kind of request | sent | answers | left by us |\n|---|---|---|---|")
    for kind in sorted(books.sent):
        answers = ", ".join(f"{status}: {count:,}" for (name, status), count in sorted(books.answered.items()) if name == kind)
        print(f"| {kind} | {books.sent[kind]:,} | {answers} | {books.left[kind]:,} |")
    sent, answered, left = books.sent.total(), books.answered.total(), books.left.total()
    memory = [each.megabytes for each in found.held]
    part = max(1, int(len(memory) * WARM_UP))
    warm, end = min(memory[part : 2 * part]), min(memory[-part:])
    never = [f"{kind} {status}" for kind, statuses in KINDS.items() for status in statuses if not books.answered[kind, status]]
    p50, p99 = health[len(health) // 2], health[int(len(health) * 0.99)]
    rows = [
        ("sent = answered + left by us", f"{sent:,} = {answered:,} + {left:,}", sent == answered + left),
        ("answers that were wrong", f"{len(books.wrong)}", not books.wrong),
        ("kinds of requests and answers that never came", ", ".join(never) or "none", not never),
        (f"memory: {LEAST}", f"{warm:.0f}, {end:.0f}, {max(memory):.0f} MB", end <= warm * (1 + MOST_GROWTH)),
        ("files before, after", f"{found.before.files}, {found.after.files}", found.after.files <= found.before.files),
        ("threads before, after", f"{found.before.threads}, {found.after.threads}", found.after.threads <= found.before.threads),
        ("ended by SIGTERM with", f"{found.code}", found.code in (0, -signal.SIGTERM)),
    ]
    print(f"\nThe host of this machine withheld {found.withheld:.0%} of its CPU time.")
    print(f"\n| of {arguments.seconds:g} seconds, {arguments.server} | | |\n|---|---|---|")
    for name, value, is_good in rows:
        print(f"| {name} | {value} | {'yes' if is_good else 'NO'} |")
    print(f"| health: p50, p99, slowest | {p50:.1f}, {p99:.1f}, {health[-1]:.1f} ms of {len(health):,} | by the clock |")
    for line in books.wrong[:20]:
        print(line)
    return 0 if all(is_good for _, _, is_good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
