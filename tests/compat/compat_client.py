"""Clients of the black-box tests: raw IPROTO with pipelining, and the stock Python connector.

Both speak through `call(conn, name, *args)`, so that a test need not know which one it was given.
Nothing here imports the product.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import msgpack
import tarantool
from tarantool.error import DatabaseError

CALL, CALL_16, EVAL, SELECT, PING, ID, AUTH = 0x0A, 0x06, 0x08, 0x01, 0x40, 0x49, 0x07
TYPE, SYNC, SCHEMA = 0x00, 0x01, 0x05
TUPLE, FUNCTION, EXPRESSION, DATA, ERROR_TEXT, ERROR = 0x21, 0x22, 0x27, 0x30, 0x31, 0x52
EVENT = 76
ANSWER_SECONDS = 10.0
_numbers = itertools.count(1)


class Refused(Exception):
    """The server answered with an error: code, text, and the frames of the error stack."""

    def __init__(self, code: int, text: str, frames: Any = None) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.frames = frames


class Raw:
    """One connection, requests numbered and pipelined as a test likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.greeting = self._read(128)
        self._sync = itertools.count(1)
        self._early: dict[int, tuple[int, dict[int, Any]]] = {}
        self.events: list[dict[int, Any]] = []

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int, seconds: float = ANSWER_SECONDS) -> bytes:
        self.socket.settimeout(seconds)
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the server closed the connection")
            data += chunk
            self.socket.settimeout(ANSWER_SECONDS)
        return data

    def send(self, kind: int, body: dict[int, Any]) -> int:
        """Send one request without waiting; its number."""
        sync = next(self._sync)
        packer = msgpack.Packer(unicode_errors="surrogateescape")
        frame = packer.pack({TYPE: kind, SYNC: sync}) + packer.pack(body)
        self.socket.sendall(struct.pack(">BI", 0xCE, len(frame)) + frame)
        return sync

    def send_raw_args(self, name: str, args: bytes) -> int:
        """CALL with arguments that are already MessagePack."""
        sync = next(self._sync)
        packer = msgpack.Packer()
        frame = packer.pack({TYPE: CALL, SYNC: sync})
        frame += b"\x82" + packer.pack(FUNCTION) + packer.pack(name) + packer.pack(TUPLE) + args
        self.socket.sendall(struct.pack(">BI", 0xCE, len(frame)) + frame)
        return sync

    def read_packet(
        self, seconds: float = ANSWER_SECONDS
    ) -> tuple[int, int, dict[int, Any], bytes]:
        """(code, sync, body, body as it came) of the next packet."""
        prefix = self._read(5, seconds)
        assert prefix[0] == 0xCE, "a reply's length is 0xce and four bytes"
        packet = self._read(struct.unpack(">I", prefix[1:])[0])
        unpacker = msgpack.Unpacker(
            raw=False, unicode_errors="surrogateescape", strict_map_key=False
        )
        unpacker.feed(packet)
        header = unpacker.unpack()
        at = unpacker.tell()
        return header[TYPE], header.get(SYNC, 0), unpacker.unpack(), packet[at:]

    def answer(self, sync: int, seconds: float = ANSWER_SECONDS) -> list[Any]:
        """Wait for one request's answer; others that come first are kept. Raises Refused."""
        while sync not in self._early:
            code, number, body, _ = self.read_packet(seconds)
            if code == EVENT:
                self.events.append(body)
            else:
                self._early[number] = (code, body)
        code, body = self._early.pop(sync)
        if code:
            frames = body.get(ERROR, {}).get(0)
            raise Refused(code & 0x7FFF, body[ERROR_TEXT], frames)
        data = body.get(DATA, [])
        assert isinstance(data, list)
        return data

    def silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long."""
        try:
            code, number, body, _ = self.read_packet(seconds)
        except TimeoutError:
            return True
        self._early[number] = (code, body)
        return False

    def start(self, name: str, *args: Any) -> int:
        """Send a CALL without waiting; its number."""
        return self.send(CALL, {FUNCTION: name, TUPLE: list(args)})

    def call(self, name: str, *args: Any) -> list[Any]:
        return self.answer(self.start(name, *args))

    def call_16(self, name: str, *args: Any) -> list[Any]:
        return self.answer(self.send(CALL_16, {FUNCTION: name, TUPLE: list(args)}))

    def eval(self, text: str, *args: Any) -> list[Any]:
        return self.answer(self.send(EVAL, {EXPRESSION: text, TUPLE: list(args)}))

    def ping(self) -> None:
        self.answer(self.send(PING, {}))

    def select(self, space: int, index: int = 0, key: Any = (), iterator: int = 0) -> list[Any]:
        body = {0x10: space, 0x11: index, 0x12: 0xFFFFFFFF, 0x13: 0, 0x14: iterator}
        return self.answer(self.send(SELECT, {**body, 0x20: list(key)}))

    def space_id(self, name: str) -> int:
        rows = self.select(281, 2, [name])
        assert len(rows) == 1, f"one space is called {name}"
        return int(rows[0][0])

    def rows(self, space: str) -> list[Any]:
        """All stored rows of a space, by primary key."""
        return self.select(self.space_id(space), 0, (), 2)

    def identify(self, *uuid: str) -> str:
        return str(self.call("queue.identify", *uuid)[0])


class Stock:
    """The `tarantool` connector of PyPI, as an application would open it."""

    def __init__(self, port: int, **options: Any) -> None:
        self.connection = tarantool.Connection(
            "127.0.0.1", port, fetch_schema=False, reconnect_max_attempts=1, **options
        )

    def call(self, name: str, *args: Any) -> list[Any]:
        try:
            data = self.connection.call(name, list(args)).data
        except DatabaseError as error:
            raise Refused(error.code, error.message, error.extra_info) from error
        assert isinstance(data, list)
        return data

    def close(self) -> None:
        self.connection.close()


class Tube:
    """A tube seen from one connection: `tube("put", "data")`."""

    def __init__(self, conn: Any, name: str) -> None:
        self.conn = conn
        self.name = name

    def __call__(self, method: str, *args: Any) -> list[Any]:
        return call(self.conn, f"queue.tube.{self.name}:{method}", *args)

    def start(self, method: str, *args: Any) -> int:
        """Without waiting for the answer; only over a Raw connection."""
        return int(self.conn.start(f"queue.tube.{self.name}:{method}", *args))

    def of(self, conn: Any) -> Tube:
        """The same tube seen from another connection."""
        return Tube(conn, self.name)

    def statistics(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = call(self.conn, "queue.statistics", self.name)[0]
        return found


def call(conn: Any, name: str, *args: Any) -> list[Any]:
    """CALL `name` over either kind of connection; the list of values it returned."""
    data = conn.call(name, *args)
    assert isinstance(data, list)
    return data


def new_tube(conn: Any, driver: str, **options: Any) -> Tube:
    """Create a tube with a name of its own."""
    name = f"{driver}_{next(_numbers)}"
    call(conn, "queue.create_tube", name, driver, options)
    return Tube(conn, name)


def refusal(action: Callable[[], Any]) -> Refused:
    """The error an action is answered with; an answer without one is a failure."""
    try:
        outcome = action()
    except Refused as error:
        return error
    raise AssertionError(f"not refused, answered {outcome!r}")


def eventually(check: Callable[[], Any], seconds: float = 3.0) -> Any:
    """Ask again every few milliseconds until the answer is true; what it was then."""
    deadline = time.monotonic() + seconds
    while not (outcome := check()):
        assert time.monotonic() < deadline, "did not become true in time"
        time.sleep(0.005)
    return outcome
