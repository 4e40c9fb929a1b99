"""Replies and events as bytes, one packet each: tasks, lists of values, errors, watcher events.

Every packet is ready for one write. What to answer is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from msgpack import Packer

from tandemq.model.errors import QueueError
from tandemq.model.raw import Raw
from tandemq_server.wire.constants import (
    ERROR_CODE,
    ERROR_ERRNO,
    ERROR_FIELDS,
    ERROR_FILE,
    ERROR_FLAG,
    ERROR_LINE,
    ERROR_MESSAGE,
    ERROR_TYPE,
    EVENT,
    KEY_DATA,
    KEY_ERROR,
    KEY_ERROR_TEXT,
    KEY_EVENT_DATA,
    KEY_EVENT_KEY,
)

#: The schema version before the first tube; `use_schema` moves it.
SCHEMA_VERSION: Final = 80

# Header of every reply in fixed width, as the field's server writes it:
# ce <length u32> 83 00 ce <code u32> 01 cf <sync u64> 05 ce <schema u32>.
_HEADER = Struct(">BIHBIHQHI").pack
_HEADER_BYTES: Final = 23  # without the five bytes of the length
_EVENT_HEADER = Struct(">BIHBIHQ").pack
_EVENT_HEADER_BYTES: Final = 17

# A task reply up to its payload; the constant stretches travel as byte strings:
# ... sync, then 05 ce <schema> 81 30 dd 00000001 93 ce <id u32> a1 <status>, payload.
_TASK_HEAD: Final = b"\x83\x00\xce\x00\x00\x00\x00\x01\xcf"
_TASK_BODY_BYTES: Final = 15
_TASK = Struct(f">BI{len(_TASK_HEAD)}sQ{_TASK_BODY_BYTES}sI2s").pack
_TASK_BYTES: Final = Struct(f">{len(_TASK_HEAD)}sQ{_TASK_BODY_BYTES}sI2s").size
_TASK_WIDE = Struct(f">BI{len(_TASK_HEAD)}sQ{_TASK_BODY_BYTES}sQ2s").pack
# One task within an array of tasks, up to its payload.
_TASK_ITEM = Struct(">2sI2s").pack
_TASK_ITEM_WIDE = Struct(">2sQ2s").pack
# Every printable character: facades have statuses of their own.
_STATUS: Final = {chr(code): bytes((0xA1, code)) for code in range(0x20, 0x7F)}

_DATA: Final = bytes((0x81, KEY_DATA, 0xDD))
_EMPTY_DATA: Final = _DATA + b"\x00\x00\x00\x00"
_NIL_DATA: Final = _DATA + b"\x00\x00\x00\x01\xc0"
_NIL_DATA_16: Final = _DATA + b"\x00\x00\x00\x01\x91\xc0"
#: Characters of an error's text, and of each of its details: a tube's name fits.
ERROR_TEXT_MAX: Final = 100_000
# Reported as the source of every error; connectors only insist that there is one.
_ERROR_FILE: Final = "tandemq"


def use_schema(version: int) -> None:
    """The schema version that replies carry from here on: connectors read the schema again when it
    moves.

    It stands in every reply and hardly ever changes, so it is part of the constant stretches
    rather than an argument of everything that answers. Who makes replies says it beforehand.
    """
    global _schema, _task_32, _task_64
    body = b"\x05\xce" + version.to_bytes(4, "big") + b"\x81\x30\xdd\x00\x00\x00\x01"
    _schema, _task_32, _task_64 = version, body + b"\x93\xce", body + b"\x93\xcf"


def schema_in_use() -> int:
    return _schema


_schema, _task_32, _task_64 = 0, b"", b""
use_schema(SCHEMA_VERSION)


class _HasRaw(Exception):
    """The value holds something the packer cannot write by itself."""


def _refuse(value: object) -> Any:
    if isinstance(value, Raw):
        raise _HasRaw
    raise TypeError(f"cannot be put on the wire: {type(value).__name__}")


_packer = Packer(unicode_errors="surrogateescape", default=_refuse)
_pack = _packer.pack


def task_reply(sync: int, task_id: int, status: str, data: bytes) -> bytes:
    """`[[id, status, data]]`, `data` being raw MessagePack. The same for CALL and CALL_16."""
    if task_id < 0x100000000:
        return (
            _TASK(
                0xCE,
                _TASK_BYTES + len(data),
                _TASK_HEAD,
                sync,
                _task_32,
                task_id,
                _STATUS[status],
            )
            + data
        )
    # Ids are not written wider than they are: some connectors make big integers of a u64.
    size = _TASK_BYTES + 4 + len(data)
    return _TASK_WIDE(0xCE, size, _TASK_HEAD, sync, _task_64, task_id, _STATUS[status]) + data


def tasks_reply(sync: int, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """`[[[id, status, data], ...]]` of rows that begin with id and status and end with data."""
    count = len(rows)
    parts = [_DATA + b"\x00\x00\x00\x01\xdd" + count.to_bytes(4, "big")]
    parts += [
        _TASK_ITEM(b"\x93\xce", row[0], _STATUS[row[1]]) + row[-1]
        if row[0] < 0x100000000
        else _TASK_ITEM_WIDE(b"\x93\xcf", row[0], _STATUS[row[1]]) + row[-1]
        for row in rows
    ]
    return _packet(sync, 0, b"".join(parts))


def encode(value: Any) -> bytes:
    """MessagePack of a value nested at will; `Raw` is spliced, str may hold surrogate escapes.

    Raises TypeError or OverflowError for what has no MessagePack form: an error of ours.
    """
    try:
        encoded: bytes = _pack(value)
    except _HasRaw:
        parts: list[bytes] = []
        _splice(value, parts)
        return b"".join(parts)
    return encoded


def _splice(value: Any, parts: list[bytes]) -> None:
    """Append the encoding of `value` piece by piece, containers by hand, leaves by the packer."""
    if isinstance(value, Raw):
        parts.append(value.data)
    elif isinstance(value, (list, tuple)):
        parts.append(_container(len(value), 0x90, 0xDC))
        for item in value:
            _splice(item, parts)
    elif isinstance(value, dict):
        parts.append(_container(len(value), 0x80, 0xDE))
        for key, item in value.items():
            _splice(key, parts)
            _splice(item, parts)
    else:
        parts.append(_pack(value))


def _container(count: int, short: int, wide: int) -> bytes:
    if count < 16:
        return bytes((short | count,))
    if count < 0x10000:
        return bytes((wide,)) + count.to_bytes(2, "big")
    return bytes((wide + 1,)) + count.to_bytes(4, "big")


def values_reply(sync: int, values: Sequence[Any], call16: bool = False) -> bytes:
    """The values a call returns, as `encode` takes them; `call16` wraps every non-array."""
    if call16:
        values = [value if _is_array(value) else (value,) for value in values]
    return packed_reply(sync, len(values), b"".join(map(encode, values)))


def packed_reply(sync: int, count: int, packed: bytes) -> bytes:
    """`count` values whose MessagePack is there already, one behind the other."""
    return _packet(sync, 0, _DATA + count.to_bytes(4, "big") + packed)


def _is_array(value: Any) -> bool:
    if isinstance(value, Raw):
        mark = value.data[0]
        return mark & 0xF0 == 0x90 or mark == 0xDC or mark == 0xDD
    return isinstance(value, (list, tuple))


def empty_reply(sync: int) -> bytes:
    """A call that returns nothing: `[]`."""
    return _packet(sync, 0, _EMPTY_DATA)


def nil_reply(sync: int, call16: bool = False) -> bytes:
    """A call that returns an explicit nil: `[nil]`, for CALL_16 `[[nil]]`."""
    return _packet(sync, 0, _NIL_DATA_16 if call16 else _NIL_DATA)


def ok_reply(sync: int, body: dict[int, Any]) -> bytes:
    """ID, PING, AUTH: a body of its own, `{}` included; no connector bears a missing one."""
    return _packet(sync, 0, encode(body))


def _told(text: str) -> str:
    """What an error repeats of a request is for reading: its beginning, if it is long."""
    return text if len(text) <= ERROR_TEXT_MAX else f"{text[:ERROR_TEXT_MAX]}..."


def error_reply(sync: int, error: QueueError) -> bytes:
    """The text under 0x31 and, under 0x52, one frame with keys 0..5 (6 when there are fields)."""
    text = _told(error.text)
    frame: dict[int, Any] = {
        ERROR_TYPE: error.kind,
        ERROR_FILE: _ERROR_FILE,
        ERROR_LINE: error.line,
        ERROR_MESSAGE: text,
        ERROR_ERRNO: 0,
        ERROR_CODE: error.code,
    }
    if error.fields:
        frame[ERROR_FIELDS] = {key: _told(value) for key, value in error.fields.items()}
    body = encode({KEY_ERROR_TEXT: text, KEY_ERROR: {0: [frame]}})
    return _packet(sync, ERROR_FLAG | error.code, body)


def event(sync: int, key: str, has_value: bool, value: Any = None) -> bytes:
    """EVENT of a watched key; without a value for a key that was never broadcast."""
    body: dict[int, Any] = {KEY_EVENT_KEY: key}
    if has_value:
        body[KEY_EVENT_DATA] = value
    encoded = encode(body)
    size = _EVENT_HEADER_BYTES + len(encoded)
    return _EVENT_HEADER(0xCE, size, 0x8200, 0xCE, EVENT, 0x01CF, sync) + encoded


def _packet(sync: int, code: int, body: bytes) -> bytes:
    size = _HEADER_BYTES + len(body)
    return _HEADER(0xCE, size, 0x8300, 0xCE, code, 0x01CF, sync, 0x05CE, _schema) + body
