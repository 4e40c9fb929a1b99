"""Messages to bytes and back. The decoder takes any cut of the stream and bounds what it keeps.

Only shapes and types are checked here; whether a message makes sense now is its receiver's case.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

import msgpack

from tandemq.model.bounds import MESSAGE_BYTES_MAX
from tandemq.model.record import HEADER_SIZE, FrameError, decode_header
from tandemq.model.terms import plain_term
from tandemq_server.replication.lineage import ID_BYTES, Lineage, LineageError
from tandemq_server.replication.messages import (
    ANSWER_NAMES,
    LENGTH,
    NEWER_PROTOCOL,
    PROTOCOL_VERSION,
    TYPES,
    Frame,
    Hello,
    LinkError,
    Message,
)
from tandemq_server.replication.standing import Standing

TEXT_CHARS_MAX = 4096
_U64_MAX = 2**64 - 1
_TYPE_OF = {kind: number for number, kind in TYPES.items()}
_FRAME_TYPE = _TYPE_OF[Frame]
_HELLO_TYPE = _TYPE_OF[Hello]

# FRAME is written without the packer: length | array(3) | type | bin8(16) term id | bin32 data.
_FRAME_PREFIX = struct.Struct(f">IBBBB{ID_BYTES}sBI")
_FRAME_FIXED = _FRAME_PREFIX.size - LENGTH.size
_FRAME_MARKS = (0x93, _FRAME_TYPE, 0xC4, ID_BYTES, 0xC6)

_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="surrogateescape")


def frame_prefix(size: int, term_id: bytes) -> bytes:
    """What goes on the wire before a frame of `size` bytes, so that the frame is not copied."""
    assert len(term_id) == ID_BYTES
    return _FRAME_PREFIX.pack(
        _FRAME_FIXED + size, 0x93, _FRAME_TYPE, 0xC4, ID_BYTES, term_id, 0xC6, size
    )


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    if isinstance(message, Frame):
        return frame_prefix(len(message.data), message.term_id) + message.data
    values: list[Any] = [_TYPE_OF[type(message)]]
    for field in fields(message):
        value = getattr(message, field.name)
        values.append([plain_term(term) for term in value] if isinstance(value, Lineage) else value)
    body: bytes = _packer.pack(values)
    return LENGTH.pack(len(body)) + body


class MessageDecoder:
    """Messages out of a byte stream. After an error it stays broken: framing is lost for good."""

    def __init__(self, max_bytes: int = MESSAGE_BYTES_MAX) -> None:
        """`max_bytes`: a message announcing more is refused before any of it is kept."""
        assert max_bytes > 0
        self.max_bytes = max_bytes
        self._buffer = bytearray()
        self._at = 0
        self._error: LinkError | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take what one read delivered; gives every message it completes, in order.

        FRAMEs of one term right behind each other are given as one. The bytes are taken at once,
        the messages as they are asked for. Raises `LinkError` behind the last good message when
        the stream is garbage.
        """
        if self._error is None:
            self._buffer += data
        return self._messages()

    def _messages(self) -> Iterator[Message]:
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        if self._error is not None:
            raise self._error
        try:
            return self._read()
        except LinkError as error:
            self._error = error
            self._buffer.clear()
            self._at = 0
            raise

    def _read(self) -> Message | None:
        buffer, at = self._buffer, self._at
        if len(buffer) - at < LENGTH.size:
            self._drop_read()
            return None
        length: int = LENGTH.unpack_from(buffer, at)[0]
        start = at + LENGTH.size
        if not 0 < length <= self.max_bytes and not self._may_be_old_frame(at, length):
            raise LinkError(f"a message of {length} bytes; the limit is {self.max_bytes}")
        if len(buffer) - start < length:
            self._drop_read()
            return None
        message: Message
        if length >= _FRAME_FIXED:
            # Nearly every message is a FRAME as `frame_prefix` writes it.
            _, array, kind, bin8, id_bytes, term_id, bin32, size = _FRAME_PREFIX.unpack_from(
                buffer, at
            )
            marks = (array, kind, bin8, id_bytes, bin32)
            if marks == _FRAME_MARKS and size == length - _FRAME_FIXED:
                return self._frames(term_id, start, length)
        with memoryview(buffer) as view, view[start : start + length] as body:
            message = decode_message(body)
        self._at = start + length
        return message

    def _may_be_old_frame(self, at: int, length: int) -> bool:
        """Whether a message past the limit is one log frame, as older versions wrote them.

        So much of it is waited for that its lengths can be seen to agree with each other.
        """
        if length <= MESSAGE_BYTES_MAX:
            return False
        head = bytes(self._buffer[at : at + _FRAME_PREFIX.size + HEADER_SIZE])
        if len(head) < _FRAME_PREFIX.size:
            return True
        _, array, kind, bin8, id_bytes, _, bin32, size = _FRAME_PREFIX.unpack_from(head)
        marks = (array, kind, bin8, id_bytes, bin32)
        if marks != _FRAME_MARKS or size != length - _FRAME_FIXED:
            return False
        if len(head) < _FRAME_PREFIX.size + HEADER_SIZE:
            return True
        try:
            frame = decode_header(head, _FRAME_PREFIX.size)
        except FrameError:
            return False
        return frame.length == int(size) - HEADER_SIZE

    def _frames(self, term_id: bytes, start: int, length: int) -> Message:
        """The FRAME at hand, with those of the same term right behind it joined to it."""
        buffer, have = self._buffer, len(self._buffer)
        with memoryview(buffer) as view:
            parts = [view[start + _FRAME_FIXED : start + length]]
            end = start + length
            while end + _FRAME_PREFIX.size <= have:
                length, array, kind, bin8, id_bytes, term, bin32, size = _FRAME_PREFIX.unpack_from(
                    buffer, end
                )
                start = end + LENGTH.size
                if (
                    term != term_id
                    or start + length > have
                    or (array, kind, bin8, id_bytes, bin32) != _FRAME_MARKS
                    or size != length - _FRAME_FIXED
                    or length > self.max_bytes
                ):
                    break
                parts.append(view[start + _FRAME_FIXED : start + length])
                end = start + length
            data = b"".join(parts)
            for part in parts:
                part.release()
        self._at = end
        return Frame(term_id, data)

    def _drop_read(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0


def decode_message(body: bytes | memoryview) -> Message:
    """One message without its length. Raises `LinkError` and nothing else."""
    try:
        values = msgpack.unpackb(body, use_list=True, raw=False, unicode_errors="surrogateescape")
    except Exception as error:
        raise LinkError(f"not MessagePack: {type(error).__name__}") from error
    if not isinstance(values, list) or not values:
        raise LinkError("a message is not an array with a type")
    kind = TYPES.get(values[0]) if type(values[0]) is int else None
    if kind is None:
        raise LinkError(f"unknown message type {str(values[0])[:32]}")
    if values[0] == _HELLO_TYPE:
        _check_version(values)
    names, checks, required = _CHECKS[kind]
    if len(values) <= required:
        raise LinkError(f"{kind.__name__} has {len(values) - 1} fields of {required}")
    found: list[Any] = []
    try:
        _check_all(checks, values[1:], found)
    except (LinkError, LineageError) as error:
        raise LinkError(f"{names[len(found)]} of {kind.__name__} {error.reason}") from error
    return kind(*found)


def _check_all(checks: Sequence[Check], values: list[Any], found: list[Any]) -> None:
    """Each value that is as its check wants it goes to `found`.

    Most are counts and flags: the good ones are seen here, as heartbeats have many of them.
    """
    for check, value in zip(checks, values, strict=False):
        if check is _count:
            good = type(value) is int and 0 <= value <= _U64_MAX
        else:
            good = check is _flag and type(value) is bool
        found.append(value if good else check(value))


def _check_version(values: list[Any]) -> None:
    """The layout of a newer HELLO may be another; its version, in front, is not."""
    if len(values) > 1 and type(values[1]) is int and values[1] > PROTOCOL_VERSION:
        raise LinkError(
            f"protocol version {values[1]} is newer than {PROTOCOL_VERSION}, known here",
            NEWER_PROTOCOL,
        )


# -- fields ----------------------------------------------------------------------------------------

Check = Callable[[Any], Any]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _U64_MAX:
        raise LinkError("is not a count")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise LinkError("is not a boolean")
    return value


def _data(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise LinkError("is not binary")
    return value


def _id(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != ID_BYTES:
        raise LinkError(f"is not {ID_BYTES} bytes")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise LinkError(f"is not text of at most {TEXT_CHARS_MAX} characters")
    return value


def _answer(value: Any) -> int:
    if type(value) is not int or value not in ANSWER_NAMES:
        raise LinkError("is no answer")
    return value


def _lineage(value: Any) -> Lineage:
    if not isinstance(value, list) or not all(isinstance(term, list) for term in value):
        raise LinkError("is not a list of terms")
    return Lineage(value)


def _standing(value: Any) -> Standing | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != len(Standing._fields):
        raise LinkError(f"is not a standing of {len(Standing._fields)} fields")
    found: list[Any] = []
    _check_all(_STANDING, value, found)
    return Standing(*found)


def _partial(value: Any) -> tuple[str, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise LinkError("is not a snapshot's name and size")
    return _text(value[0]), _count(value[1])


_BY_ANNOTATION: dict[str, Check] = {
    "int": _count,
    "bool": _flag,
    "str": _text,
    "Lineage": _lineage,
    "tuple[str, int] | None": _partial,
    "Standing | None": _standing,
}
_STANDING: tuple[Check, ...] = (
    *(_count, _id, _count, _id, _flag, _count, _flag),
    *(_count, _count, _id, _flag),
)
_BY_NAME: dict[str, Check] = {"data": _data, "answer": _answer}


def _check_for(name: str, annotation: str) -> Check:
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _id if annotation == "bytes" else _BY_ANNOTATION[annotation]


#: For each type: its fields in order, their checks, and how many of them may not be missing.
_CHECKS: dict[type[Message], tuple[tuple[str, ...], tuple[Check, ...], int]] = {
    kind: (
        tuple(field.name for field in fields(kind)),
        tuple(_check_for(field.name, str(field.type)) for field in fields(kind)),
        sum(field.default is MISSING for field in fields(kind)),
    )
    for kind in TYPES.values()
}
