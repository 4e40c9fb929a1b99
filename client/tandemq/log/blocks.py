"""Framing of everything in a file that is not a log frame, and bounded reading of big files.

A block is `magic, length, crc, body`. The CRC is seeded, so that a block is valid in one file at
one position only. Nothing here knows what a body means.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgpack

from tandemq.log.disk import ReadDisk
from tandemq.model.bounds import LENGTH_MAX, TooLarge
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError
from tandemq.model.units import MIB

FORMAT_VERSION = 1
_BLOCK = struct.Struct(">4sII")
BLOCK_SIZE = _BLOCK.size
WINDOW_BYTES = MIB


def _crc(magic: bytes, length: int, body: bytes | memoryview, seed: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_BLOCK.pack(magic, length, 0), zlib.crc32(seed)))


def block_seed(header: bytes, position: int) -> bytes:
    """What ties a block to its file (by the header's own bytes) and to its place in it."""
    return zlib.crc32(header).to_bytes(4, "big") + position.to_bytes(8, "big")


def encode_block(magic: bytes, body: bytes, seed: bytes = b"") -> bytes:
    """One block; `seed` is empty for the first block of a file. Raises `TooLarge`."""
    length = len(body)
    if length > LENGTH_MAX:
        raise TooLarge(f"a block of {length} bytes was to be written, {LENGTH_MAX} are the most")
    return _BLOCK.pack(magic, length, _crc(magic, length, body, seed)) + body


def encode_fixed(magic: bytes, value: Any, size: int, seed: bytes = b"") -> bytes:
    """A block of exactly `size` bytes: MessagePack, then zeros. Raises `ValueError`."""
    body: bytes = msgpack.packb(value)
    room = size - BLOCK_SIZE
    if len(body) > room:
        raise ValueError(f"{len(body)} bytes do not fit a block of {size}")
    return encode_block(magic, body.ljust(room, b"\0"), seed)


def big_block_crc(buffer: bytes, at: int, seed: bytes) -> tuple[int, int]:
    """(what the CRC of the body starts from, what it must be) of a block read in pieces."""
    magic, length, crc = _BLOCK.unpack_from(buffer, at)
    return _crc(magic, length, b"", seed), crc


def decode_block(buffer: bytes, at: int, magic: bytes, seed: bytes = b"") -> memoryview:
    """The verified body of the block at `at`. Raises `FrameError`, torn when bytes are missing."""
    if len(buffer) - at < BLOCK_SIZE:
        raise FrameError("block header is cut short", torn=True)
    found, length, crc = _BLOCK.unpack_from(buffer, at)
    if found != magic:
        raise FrameError(f"magic is {found!r} instead of {magic!r}")
    body = memoryview(buffer)[at + BLOCK_SIZE : at + BLOCK_SIZE + length]
    if len(body) < length:
        raise FrameError("block is cut short", torn=True)
    if (actual := _crc(magic, length, body, seed)) != crc:
        raise FrameError(f"CRC is {actual:08x}, the block says {crc:08x}")
    return body


def block_length(buffer: bytes, at: int) -> int:
    """Body bytes the block at `at` announces, not verified. Raises `FrameError`.

    Its length is not bounded here, see `Window.check_big`.
    """
    if len(buffer) - at < BLOCK_SIZE:
        raise FrameError("block header is cut short", torn=True)
    length: int = _BLOCK.unpack_from(buffer, at)[1]
    return length


def unpack(body: bytes | memoryview) -> Any:
    """The first MessagePack value of a verified body. Raises `FrameError`."""
    try:
        unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=False, unicode_errors="surrogateescape", max_buffer_size=0
        )
        unpacker.feed(body)
        return unpacker.unpack()
    except Exception as error:
        raise FrameError(f"body is not MessagePack: {error}") from error


def check_owner(file: str, value: Any, cluster: bytes, node: bytes | None) -> dict[str, Any]:
    """The map of a file's first block, refused by name when newer, foreign or not a map.

    `node` None: any node of the cluster may have written it. Raises `StorageError`.
    """
    if not isinstance(value, dict) or not isinstance(value.get("version"), int):
        raise StorageError(file, 0, "header is not a map with a format version")
    if value["version"] > FORMAT_VERSION:
        raise StorageError(
            file, 0, f"format version {value['version']} is newer than {FORMAT_VERSION}, known here"
        )
    if value.get("cluster") != cluster:
        raise StorageError(file, 0, f"belongs to cluster {_hex(value.get('cluster'))}")
    if node is not None and value.get("node") != node:
        raise StorageError(file, 0, f"belongs to node {_hex(value.get('node'))}")
    return value


def _hex(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)


class Window:
    """A file read front to back through about a megabyte of memory."""

    __slots__ = ("_data", "_disk", "_start", "name", "size")

    def __init__(self, disk: ReadDisk, name: str, size: int | None = None) -> None:
        """`size`: where the file is taken to end, for one that is still growing."""
        self._disk = disk
        self.name = name
        self.size = disk.size(name) if size is None else size
        self._data = b""
        self._start = 0

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """A buffer and the index of `position` in it, holding `length` bytes if the file does."""
        index = position - self._start
        if index < 0 or index + length > len(self._data):
            wanted = min(max(length, WINDOW_BYTES), self.size - position)
            self._data = self._disk.read(self.name, position, max(wanted, 0))
            self._start = position
            index = 0
        return self._data, index

    def check_big(self, position: int, length: int, crc: int, wanted: int) -> None:
        """Verify a CRC over `length` bytes in pieces, none of which is kept.

        `crc`: what it starts from. Raises `FrameError`, torn when the file does not hold them: a
        length that was damaged costs no memory.
        """
        if position + length > self.size:
            raise FrameError("body is cut short", torn=True)
        end = position + length
        while position < end:
            data = self._disk.read(self.name, position, min(WINDOW_BYTES, end - position))
            if not data:
                raise FrameError("body is cut short", torn=True)
            crc = zlib.crc32(data, crc)
            position += len(data)
        if crc != wanted:
            raise FrameError(f"CRC is {crc:08x}, the header says {wanted:08x}")

    def pieces(self, position: int, length: int) -> Pieces:
        """What is too large to be held, to be read from front to back."""
        return Pieces(self._disk, self.name, position, position + length)


class Pieces:
    """Part of a file as something with a `read`."""

    __slots__ = ("_at", "_disk", "_end", "_name")

    def __init__(self, disk: ReadDisk, name: str, start: int, end: int) -> None:
        self._disk = disk
        self._name = name
        self._at = start
        self._end = end

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        data = self._disk.read(self._name, self._at, min(size, self._end - self._at))
        self._at += len(data)
        return data
