"""A bare, blocking IPROTO client that can also say what no client would."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import ssl
import struct
from typing import Any

import msgpack

CALL, AUTH, EVAL, SELECT, PING, ID, SUBSCRIBE = 0x0A, 0x07, 0x08, 0x01, 0x40, 0x49, 0x42
DENIED = 42


class Gone(Exception):
    """The server closed the connection."""


def body_of(name: str, *args: Any) -> dict[int, Any]:
    return {0x22: name, 0x21: list(args)}


def frame(rtype: int, body: Any, sync: int = 1) -> bytes:
    packet = msgpack.packb({0: rtype, 1: sync}) + msgpack.packb(body)
    return b"\xce" + struct.pack(">I", len(packet)) + bytes(packet)


def header_of(size: int, rtype: int) -> bytes:
    """The beginning of a request that says it has `size` bytes."""
    return b"\xce" + struct.pack(">I", size) + bytes((0x82, 0, rtype, 1, 1, 0x82))


def scramble(password: str, salt: bytes) -> bytes:
    first = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(salt[:20] + hashlib.sha1(first).digest()).digest()
    return bytes(one ^ other for one, other in zip(first, mask, strict=True))


class Wire:
    """One connection. Raises OSError and `Gone`."""

    def __init__(
        self,
        port: int,
        user: str | None = None,
        password: str = "",
        wait: float = 10.0,
        authority: str = "",
        local: str = "",
    ) -> None:
        """authority: speak TLS with who shows a certificate of that file's authority.

        local: the address to come from; any of loopback's.
        """
        self.socket = socket.create_connection(
            ("127.0.0.1", port), wait, (local, 0) if local else None
        )
        if authority:
            context = ssl.create_default_context(cafile=authority)
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.socket.settimeout(wait)
        self.rest = b""
        self.sync = 0
        self.salt = base64.b64decode(self.read(128)[64:108])
        if user is not None:
            code, body = self.ask(AUTH, self.login(user, password))
            assert code == 0, body

    def login(self, user: str, password: str) -> dict[int, Any]:
        return {0x23: user, 0x21: ["chap-sha1", scramble(password, self.salt)]}

    def read(self, size: int) -> bytes:
        while len(self.rest) < size:
            data = self.socket.recv(1 << 18)
            if not data:
                raise Gone
            self.rest += data
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def receive(self) -> tuple[int, int, Any]:
        """(sync, error code or 0, body)."""
        length = msgpack.unpackb(self.read(5))
        unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
        unpacker.feed(self.read(length))
        header, body = unpacker.unpack(), unpacker.unpack()
        return header[1], header[0] & 0x7FFF, body

    def ask(self, rtype: int, body: Any) -> tuple[int, Any]:
        """(error code or 0, the reply's data or error's text)."""
        self.sync += 1
        self.socket.sendall(frame(rtype, body, self.sync))
        _, code, answer = self.receive()
        return code, answer[0x31] if code else answer.get(0x30, answer)

    def call(self, name: str, *args: Any) -> tuple[int, Any]:
        return self.ask(CALL, body_of(name, *args))

    def send(self, data: bytes) -> bool:
        """Whether it all went out before the server had enough."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def flood(self, data: bytes) -> bool:
        """Send and throw away what comes back; False when the server had enough."""
        view = memoryview(data)
        self.socket.setblocking(False)
        try:
            while view:
                with contextlib.suppress(BlockingIOError):
                    view = view[self.socket.send(view) :]
                with contextlib.suppress(BlockingIOError):
                    while got := self.socket.recv(1 << 18):
                        if len(got) < 1 << 18:
                            break
                    else:
                        return False
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(10.0)
        return True

    def closed(self, wait: float = 5.0) -> bool:
        """Whether the server closes it within `wait` seconds."""
        self.socket.settimeout(wait)
        try:
            while self.socket.recv(1 << 18):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()
