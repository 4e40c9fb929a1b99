"""One packet in any legal encoding, read with a MessagePack reader: the slow path of `frames.py`.

Header keys in any order, unknown keys skipped, body absent or empty. No framing, no caches.
"""

from __future__ import annotations

from typing import Any

from msgpack import Unpacker

from tandemq.model.errors import ER_MISSING_REQUEST_FIELD, QueueError
from tandemq_server.wire.arguments import UNREADABLE, decode, malformed, new_reader
from tandemq_server.wire.constants import (
    CALL,
    CALL_16,
    EVAL,
    KEY_EXPRESSION,
    KEY_FUNCTION,
    KEY_SYNC,
    KEY_TUPLE,
    KEY_TYPE,
    MALFORMED,
)

# (sync, request type, name | body | error, raw arguments | None), see `frames.RequestDecoder`.
Request = tuple[int, int, Any, Any]

_TEXT_KEY = {CALL: KEY_FUNCTION, CALL_16: KEY_FUNCTION, EVAL: KEY_EXPRESSION}
_TEXT_NAME = {KEY_FUNCTION: "function name", KEY_EXPRESSION: "expression"}
_SYNC_MAX = 2**64 - 1
_TYPE_MAX = 2**32 - 1


def missing_field(name: str) -> QueueError:
    """Error 69 with the server's wording."""
    return QueueError(ER_MISSING_REQUEST_FIELD, f"Missing mandatory field '{name}' in request")


def read_packet(packet: bytes) -> Request:
    """A packet without its length. Never raises: errors come back as a MALFORMED request."""
    sync = 0
    reader = new_reader(max(len(packet), 16))
    reader.feed(packet)
    what = "packet header"
    try:
        found = _read_pairs(reader, packet, (KEY_TYPE, KEY_SYNC))
        sync_value, rtype = _number(found.get(KEY_SYNC, b"\x00")), found.get(KEY_TYPE)
        if not 0 <= sync_value <= _SYNC_MAX:
            raise malformed(what)
        sync = sync_value
        if rtype is None:
            raise malformed("packet header without a request type")
        number = _number(rtype)
        if not 0 <= number <= _TYPE_MAX:
            raise malformed(what)
        what = "packet body"
        if number in _TEXT_KEY:
            return (sync, number, *_read_call(reader, packet, _TEXT_KEY[number]))
        return sync, number, _read_body(packet[reader.tell() :]), None
    except QueueError as error:
        return sync, MALFORMED, _bare(error), None
    except UNREADABLE:
        return sync, MALFORMED, malformed(what), None


def _bare(error: QueueError) -> QueueError:
    """Without what it came from: that leads to frames, which hold the reader, and the error itself
    once it is looked at; such a circle of tens of kilobytes stays until somebody looks for it.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _read_pairs(reader: Unpacker, packet: bytes, wanted: tuple[int, ...]) -> dict[int, bytes]:
    """The map at the reader's position: raw values of the wanted keys, all else skipped over."""
    found: dict[int, bytes] = {}
    for _ in range(reader.read_map_header()):
        key_at = reader.tell()
        reader.skip()
        value_at = reader.tell()
        reader.skip()
        mark = packet[key_at]
        key = _number(packet[key_at:value_at]) if mark < 0x80 or 0xCC <= mark <= 0xCF else -1
        if key in wanted:
            found[key] = packet[value_at : reader.tell()]
    return found


def _number(raw: bytes) -> int:
    value = decode(raw)
    if type(value) is not int:
        raise ValueError("not an integer")
    return value


def _read_call(reader: Unpacker, packet: bytes, key: int) -> tuple[bytes, bytes]:
    """(name or expression, raw argument array) of the body that ends the packet."""
    if reader.tell() == len(packet):
        raise missing_field(_TEXT_NAME[key])
    found = _read_pairs(reader, packet, (key, KEY_TUPLE))
    if reader.tell() != len(packet):
        raise malformed("packet body")
    text = found.get(key)
    if text is None:
        raise missing_field(_TEXT_NAME[key])
    args = found.get(KEY_TUPLE, b"\x90")
    if not (args[0] & 0xF0 == 0x90 or args[0] == 0xDC or args[0] == 0xDD):
        raise malformed("packet body, arguments are not an array")
    return _text(text), args


def _text(raw: bytes) -> bytes:
    """The bytes of a str."""
    mark = raw[0]
    if 0xA0 <= mark < 0xC0:
        return raw[1:]
    if 0xD9 <= mark <= 0xDB:
        return raw[1 + (1 << (mark - 0xD9)) :]
    raise ValueError("not a string")


def _read_body(raw: bytes) -> dict[int, Any]:
    if not raw:
        return {}
    body = decode(raw)
    if not isinstance(body, dict):
        raise malformed("packet body")
    return {key: value for key, value in body.items() if type(key) is int}
