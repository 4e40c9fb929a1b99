"""Malformed requests in great number, of strangers and users, over IPROTO and HTTP; what they cost.

    python -m tests.attack.fuzz [--frames 2000000] [--requests 20000] [--seed 1]

Each runs against a fresh node that another client uses meanwhile. Exit code 1 when memory grew
beyond twice, another client's p99 beyond 50 ms, the role changed, or the node ended.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack

from tests.attack.strangers import ALL_ROWS, again, started
from tests.attack.target import Node, Toll, configuration, watched
from tests.attack.wire import AUTH, CALL, EVAL, ID, PING, SELECT, Wire, body_of, frame

FRAMES, REQUESTS = 2_000_000, 20_000
BATCH, WIRES = 100, 8
#: What is put by chance stays: no more than so many tasks of one user.
TASKS_MAX = 2000
#: A health check beside the HTTP requests may take so long, in seconds.
HEALTH_SECONDS = 2.0
JOBS = "queue.tube.jobs"
METHODS = ("put", "take", "ack", "release", "peek", "bury", "kick", "delete", "touch", "list")
METHODS += ("info", "put_many", "take_many", "ack_many", "finish", "redrive", "bulk", "pause")
METHODS += ("resume", "alter", "grant", "revoke", "stats")
TYPES = (PING, ID, EVAL, SELECT, CALL, AUTH, 0x02, 0x03, 0x05, 0x06, 0x09, 0x0B, 0x0D, 0x42, 0x4A)
TYPES += (0x00, 0x44, 0x4C, 0x80, 0xFFFF)
ODD = (None, True, -1, 0, 2**63, 2**64 - 1, -(2**63), 0.0, float("inf"), float("nan"), "", b"")
ODD += ("x" * 300, b"\xff" * 40, "queue.tube.jobs:put", "\x00", [], {}, [[]], {1: {2: {3: []}}})
GOOD = (
    frame(PING, {}),
    frame(ID, {0x54: 4}),
    frame(EVAL, {0x27: "return box.info", 0x21: []}),
    frame(EVAL, {0x27: "return queue.tube.jobs:put(...)", 0x21: ["x"]}),
    frame(SELECT, ALL_ROWS),
    frame(CALL, body_of(f"{JOBS}:put", {"a": [1, 2, "x" * 40]}, {"ttl": 5})),
    frame(CALL, body_of(f"{JOBS}:put_many", [["x", {}], ["y"]])),
    frame(CALL, body_of(f"{JOBS}:take", 0)),
    frame(CALL, body_of("queue.identify", b"\xff" * 16)),
    frame(CALL, body_of("queue.statistics")),
)


class Frames:
    """Requests nobody would send, by chance but the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def batch(self, user: bool) -> bytes:
        """BATCH requests; what loses the framing comes last, so that all others are looked at."""
        rng = self.rng
        made = [self.one(user) for _ in range(BATCH - 1)]
        made.append(self.unframed() if rng.random() < 0.1 else self.one(user))
        return b"".join(made)

    def one(self, user: bool) -> bytes:
        way = self.rng.random()
        if way < 0.4:
            return self.mutated(self.rng.choice(GOOD))
        if way < 0.5:
            return self.spliced()
        if way < 0.6:
            return self.random_body()
        if way < 0.7:
            return self.cut()
        if way < 0.9995 or user:
            return self.odd_call()
        return frame(AUTH, {0x23: self.odd(), 0x21: self.odd()})

    def mutated(self, good: bytes) -> bytes:
        one = bytearray(good)
        for _ in range(self.rng.randrange(1, 5)):
            one[self.rng.randrange(5, len(one))] = self.rng.randrange(256)
        return bytes(one)

    def spliced(self) -> bytes:
        first, second = self.rng.choice(GOOD)[5:], self.rng.choice(GOOD)[5:]
        at = self.rng.randrange(1, len(first))
        return _framed(first[:at] + second[self.rng.randrange(len(second)) :])

    def cut(self) -> bytes:
        whole = self.rng.choice(GOOD)[5:]
        return _framed(whole[: self.rng.randrange(len(whole))])

    def random_body(self) -> bytes:
        head = msgpack.packb({0: self.rng.choice(TYPES), 1: self.rng.randrange(1 << 31)})
        return _framed(head + self.rng.randbytes(self.rng.randrange(60)))

    def odd_call(self) -> bytes:
        """A right call with wrong arguments, or a right header over a wrong body."""
        rng = self.rng
        arguments = [self.odd() for _ in range(rng.randrange(4))]
        if rng.random() < 0.8:
            return frame(CALL, body_of(f"{JOBS}:{rng.choice(METHODS)}", *arguments))
        return frame(rng.choice(TYPES), {rng.randrange(0x60): self.odd() for _ in range(3)})

    def odd(self, depth: int = 0) -> Any:
        rng = self.rng
        if depth < 3 and rng.random() < 0.2:
            return [self.odd(depth + 1) for _ in range(rng.randrange(4))]
        if depth < 3 and rng.random() < 0.1:
            return {rng.choice(("ttl", "key", "delay", "x", 7)): self.odd(depth + 1)}
        return rng.choice(ODD)

    def unframed(self) -> bytes:
        """A length that is none, lies, or is followed by less."""
        way = self.rng.randrange(4)
        if way == 0:
            return self.rng.randbytes(self.rng.randrange(1, 60))
        if way == 1:
            return b"\xce" + struct.pack(">I", self.rng.randrange(1 << 32)) + b"\x82\x00\x0a"
        if way == 2:
            return b"\xdb\xff\xff\xff\xff" + bytes(20)
        return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.rng.randbytes(32)


def _framed(packet: bytes) -> bytes:
    return b"\xce" + struct.pack(">I", len(packet)) + packet


def frames(home: Path, count: int, seed: int) -> Toll:
    """`count` requests over IPROTO, every second connection a user's; bounded by a deadline."""
    made = Frames(seed)
    until = time.monotonic() + 60 + count / 1000
    people = configuration()["users"]
    for one in people:
        if one["name"] == "ann":
            one["quota"] = {"tasks": TASKS_MAX}
    with started(home, users=people) as node, watched(node, 1.0) as toll:
        wires: dict[int, Wire] = {}
        sent = 0
        while sent < count and time.monotonic() < until:
            at = made.rng.randrange(WIRES)
            user = "ann" if at % 2 else None
            wire = again(node, wires, at, user)
            if wire is None:
                time.sleep(0.01)
                continue
            if not wire.flood(made.batch(user is not None)):
                wires.pop(at).close()
            sent += BATCH
        for wire in wires.values():
            wire.close()
        if sent < count:
            toll.errors.append(f"only {sent} requests were sent in the time there was")
    toll.samples = sent
    return toll


# -- HTTP ------------------------------------------------------------------------------------------

_LINES = (b"GET /v1/status HTTP/1.1", b"PUT /v1/read_only HTTP/1.1", b"GET /health HTTP/1.1")
_LINES += (b"POST /v1/tasks HTTP/1.1", b"GET /metrics HTTP/1.1", b"GET /v1/events HTTP/1.1")
_BROKEN = (b"GET", b"", b"GET  HTTP/1.1", b"G\x00T / HTTP/1.1", b"GET / HTTP/9.9", b"\xff" * 40)
_BROKEN += (b"GET http://[::1 HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"PRI *")
_BROKEN += (b"GET /" + b"a" * 9000 + b" HTTP/1.1", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1 x")
_HEADERS = (b"Host: localhost", b"Host:", b"Host: a\r\nHost: b", b"Content-Length: -1", b": x")
_HEADERS += (b"Content-Length: 99999999999999999999", b"Content-Length: 1\r\nContent-Length: 2")
_HEADERS += (b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"X: \x00\x01")
_HEADERS += (b"Content-Type: application/json", b"Authorization: Bearer x", b" folded: y")
_HEADERS += (
    b"X: " + b"y" * 20_000,
    b"Expect: 100-continue",
    b"Upgrade: h2c\r\nConnection: Upgrade",
)
_CHUNKS = (b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"-1\r\n\r\n", b"ffffffffffffffff\r\nx")
_CHUNKS += (b"1;" + b"a" * 5000 + b"\r\nx\r\n", b"0\r\nX: y\r\n\r\n", b"5\r\nhel", b"\r\n\r\n")


class Requests:
    """What is said to an HTTP port that no client would say."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def one(self) -> bytes:
        rng = self.rng
        way = rng.random()
        if way < 0.1:
            return rng.randbytes(rng.randrange(1, 300))
        if way < 0.2:
            # Pipelined: good ones, and something else behind them.
            good = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            return good * rng.randrange(1, 50) + self._head() + rng.choice(_CHUNKS)
        if way < 0.25:
            return rng.choice(_LINES) + b"\r\n" + b"A: b\r\n" * rng.randrange(20_000) + b"\r\n"
        body = rng.choice((b"", b"{}", b"[" * 5000, b"\xff{", b'{"read_only": 1}', *_CHUNKS))
        return self._head() + body

    def _head(self) -> bytes:
        rng = self.rng
        line = rng.choice(_BROKEN if rng.random() < 0.4 else _LINES)
        some = rng.sample(_HEADERS, rng.randrange(5))
        if rng.random() < 0.6:
            some.insert(0, b"Host: localhost")
        end = rng.choice((b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n", b""))
        return b"\r\n".join((line, *some)) + end


def requests(home: Path, count: int, seed: int) -> Toll:
    """`count` connections to the admin port, of which one in twenty says its piece slowly."""
    made = Requests(seed)
    until = time.monotonic() + 60 + count / 20
    with started(home) as node, watched(node, 1.0) as toll, _health(node, toll) as healthy:
        slow: list[socket.socket] = []
        sent = 0
        while sent < count and time.monotonic() < until:
            sent += 1
            data = made.one()
            with contextlib.suppress(OSError):
                wire = socket.create_connection(("127.0.0.1", node.admin), 2)
                if made.rng.random() < 0.05:
                    # It never ends its request; the node does.
                    wire.sendall(data[: made.rng.randrange(1, 60)])
                    slow.append(wire)
                    if len(slow) > 100:
                        slow.pop(0).close()
                    continue
                _said(wire, data)
            healthy()
        for wire in slow:
            wire.close()
        if sent < count:
            toll.errors.append(f"only {sent} requests were sent in the time there was")
    toll.samples = sent
    return toll


def _said(wire: socket.socket, data: bytes) -> None:
    """Send it, take what comes at once, and go."""
    wire.settimeout(0.5)
    with wire:
        wire.sendall(data)
        wire.settimeout(0.005)
        wire.recv(1 << 16)


@contextlib.contextmanager
def _health(node: Node, toll: Toll) -> Iterator[Callable[[], None]]:
    """Asked now and then: a probe is answered whatever others say."""
    last = [time.monotonic()]

    def look() -> None:
        now = time.monotonic()
        if now - last[0] < 0.25 or len(toll.errors) > 5:
            return
        last[0] = now
        try:
            node.ask("/health", 10.0)
        except (OSError, ValueError) as error:
            toll.errors.append(f"/health does not answer: {error}")
        if time.monotonic() - now > HEALTH_SECONDS:
            toll.errors.append(f"/health took {time.monotonic() - now:.1f} s")

    yield look


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    broken = False
    with tempfile.TemporaryDirectory(prefix="tandemq-fuzz-") as home:
        for name, run, count in (
            ("IPROTO", frames, options.frames),
            ("HTTP", requests, options.requests),
        ):
            if not count:
                continue
            began = time.monotonic()
            toll = run(Path(home) / name, count, options.seed)
            seconds = time.monotonic() - began
            wrong = toll.broken()
            broken = broken or bool(wrong)
            rate = f"{toll.samples:,} in {seconds:.0f} s"
            print(f"{'BROKEN' if wrong else 'held':6} {name}: {rate}, {toll.line()}")
            for one in wrong:
                print(f"       {one}")
            sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
