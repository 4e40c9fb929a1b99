"""A blocking IPROTO connection that leaves tuples as the bytes they came in.

Here: one request at a time, SELECT page by page. Must not be here: what the tuples mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import msgpack

from tandemq.client.dial import blocking
from tandemq.client.errors import TlsRefused
from tandemq.client.tls import Tls
from tandemq.model.units import GIB
from tandemq_server.wire import client
from tandemq_server.wire import constants as c
from tandemq_server.wire.greeting import GREETING_BYTES

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
REPLY_BYTES_MAX = GIB
ALL, GE, GT = 2, 5, 6
NO_LIMIT = 0xFFFFFFFF


class RawError(client.ClientError):
    """The server's refusal, or what is wrong with the line to it."""


class CallRefused(RawError):
    """The server's refusal: what was asked did not happen."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class RawConnection:
    """A connection to `host`:`port`; user None is guest, tls None is without.

    Raises OSError, ClientError, of which RawError is one, and ValueError for files of `tls` that
    do not serve.
    """

    def __init__(
        self, host: str, port: int, user: str | None, password: str | None, tls: Tls | None = None
    ) -> None:
        try:
            self.socket = blocking(host, port, tls, CONNECT_SECONDS)
        except TlsRefused as error:
            raise RawError(str(error)) from None
        self.stream = self.socket.makefile("rb")
        try:
            greeting = self._read(GREETING_BYTES)
        except TimeoutError:
            raise RawError("no greeting came: a node that speaks TLS needs --tls-ca") from None
        salt = client.salt_of(greeting)
        self.socket.settimeout(ANSWER_SECONDS)
        if user is not None:
            self._ask(client.auth_request(user, password or "", salt))

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stream.close()
        self.socket.close()

    def _read(self, size: int) -> bytes:
        data = self.stream.read(size)
        if len(data) != size:
            raise RawError("the connection was closed")
        return data

    def _ask(self, packet: bytes) -> bytes:
        """The body of the reply, raw."""
        self.socket.sendall(packet)
        head = self._read(client.LENGTH_BYTES)
        reply = self._read(client.reply_length(head, REPLY_BYTES_MAX))
        unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=REPLY_BYTES_MAX)
        unpacker.feed(reply)
        header = unpacker.unpack()
        body = reply[unpacker.tell() :]
        if header[c.KEY_TYPE]:
            text = msgpack.unpackb(body, strict_map_key=False).get(c.KEY_ERROR_TEXT, "refused")
            raise CallRefused(header[c.KEY_TYPE] & ~c.ERROR_FLAG, text)
        return body

    def _data(self, body: bytes) -> list[bytes]:
        """The elements of a reply's data."""
        unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(len(body), 1))
        unpacker.feed(body)
        for _ in range(unpacker.read_map_header()):
            if unpacker.unpack() != c.KEY_DATA:
                unpacker.skip()
                continue
            found = []
            for _ in range(unpacker.read_array_header()):
                start = unpacker.tell()
                unpacker.skip()
                found.append(body[start : unpacker.tell()])
            return found
        return []

    def call(self, name: str, *args: Any, raw: list[bytes] | None = None) -> Any:
        """The first value a call returns; `raw`: further arguments, already encoded."""
        data = self.call_raw(name, [*map(msgpack.packb, args), *(raw or [])])
        return msgpack.unpackb(data[0], strict_map_key=False) if data else None

    def call_raw(self, name: str, args: list[bytes]) -> list[bytes]:
        """All values a call returns; they and the arguments as raw MessagePack."""
        packer = msgpack.Packer()
        encoded = packer.pack_array_header(len(args)) + b"".join(args)
        body = packer.pack_map_header(2) + msgpack.packb(c.KEY_FUNCTION) + msgpack.packb(name)
        body += msgpack.packb(c.KEY_TUPLE) + encoded
        packet = msgpack.packb({c.KEY_TYPE: c.CALL, c.KEY_SYNC: 1}) + body
        return self._data(self._ask(b"\xce" + len(packet).to_bytes(4, "big") + packet))

    def select(
        self, space: int, key: list[Any], *, index: int = 0, iterator: int = 0,
        limit: int = NO_LIMIT, offset: int = 0,
    ) -> list[bytes]:  # fmt: skip
        """Tuples, each as it stands."""
        body = {
            c.KEY_SPACE_ID: space,
            c.KEY_INDEX_ID: index,
            c.KEY_LIMIT: limit,
            c.KEY_OFFSET: offset,
            c.KEY_ITERATOR: iterator,
            c.KEY_KEY: key,
        }
        return self._data(self._ask(client.request(c.SELECT, body)))

    def pages(self, space: int, after: Any, limit: int, key_at: int = 0) -> Iterator[list[bytes]]:
        """All tuples by primary key, the field `key_at`, behind the key `after` (None: all)."""
        while True:
            page = self.select(
                space,
                [] if after is None else [after],
                iterator=ALL if after is None else GT,
                limit=limit,
            )
            if not page:
                return
            yield page
            after = field(page[-1], key_at)


def field(raw: bytes, at: int) -> Any:
    """One field of a tuple, decoded."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(raw), 1))
    unpacker.feed(raw)
    unpacker.read_array_header()
    for _ in range(at):
        unpacker.skip()
    return unpacker.unpack()
