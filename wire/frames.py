"""Bytes of a connection into requests: framing, and a short way for calls as connectors send them.

Arguments of a call stay raw MessagePack; `arguments.py` takes them apart. No sockets, no deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tandemq.model.errors import QueueError
from tandemq_server.wire.arguments import malformed
from tandemq_server.wire.constants import CALL, CALL_16, EVAL, PING
from tandemq_server.wire.overlong import LARGE_BYTES, LOOK_BYTES, overlong
from tandemq_server.wire.packets import Request, read_packet

__all__ = ["Request", "RequestDecoder"]

# Lead byte of the length, length, first four bytes of the header, the byte after them and four
# more: a sync of any width up to 32 bits is then at hand without another look into the buffer.
_HEAD = Struct(">BIIBI").unpack_from
# The same with the sync first: length, `82 01`, first byte of the sync, four bytes, two more.
_HEAD_SYNC = Struct(">BIHBIH").unpack_from
# A CALL with a one-byte name, sync and no arguments: less than this is no call we know.
_SHORT_BYTES_MIN = 11
# How far a look at the header and the start of the body may reach: nearer to the end of what was
# read than this, packets take the longer way.
_LOOK_BYTES = 18

# The body of a call up to the first byte of its arguments (`82 22 <name> 21 9x`) -> the name.
# A look-up then checks five bytes and the name at once, and equal names are one object. Bodies
# repeat for ever, names are few: when a client invents names the tables start anew.
_CALLS: dict[bytes, bytes] = {}
_EVALS: dict[bytes, bytes] = {}
_CACHED_MAX = 4096

_NAMES = {0x0A: _CALLS, 0x06: _CALLS, 0x08: _EVALS}
# `82 00 <type> 01 <sync>`: asynctnt, go-tarantool, PHP, Node.
_HEADS = {0x82000A01: (0x0A, _CALLS), 0x82000601: (0x06, _CALLS), 0x82000801: (0x08, _EVALS)}
# tarantool-python: type, sync 0, schema version 0; its lengths are as short as they can be.
_PYTHON_BYTES_MIN = 14
_PYTHON = {
    b"\x83\x00\x0a\x01\x00\x05\x00": 0x0A,
    b"\x83\x00\x06\x01\x00\x05\x00": 0x06,
    b"\x83\x00\x08\x01\x00\x05\x00": 0x08,
}
# Type keys and types of the requests that have a short way.
_TYPES = {bytes((0x00, rtype, 0x01)): rtype for rtype in (CALL, CALL_16, EVAL, PING)}
_EMPTY_BODIES = frozenset((b"", b"\x80"))
_WIDTHS = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}


class RequestDecoder:
    """Cuts the byte stream of one connection into requests.

    `feed(data)` returns the requests completed by `data`, each a tuple `(sync, type, a, b)`:

    * CALL, CALL_16, EVAL: a = function name or expression (bytes), b = the argument array as raw
      MessagePack, `b"\\x90"` if absent. On the short way only its first byte is looked at; who
      takes it apart finds anything else wrong with it (`wire.arguments`, QueueError 20).
    * any other type: a = body as dict with int keys, b = None.
    * a packet that is well framed and otherwise unreadable: `(sync or 0, -1, QueueError, None)`.

    Once framing is lost `lost` holds the error to answer with sync 0 before closing, and every
    later `feed` returns nothing. `pending` counts the bytes held of an incomplete packet.
    """

    __slots__ = ("_held", "_needed", "_refusal", "_skip", "frame_bytes_max", "lost")

    def __init__(self, frame_bytes_max: int) -> None:
        assert frame_bytes_max > 0
        self.frame_bytes_max = frame_bytes_max
        self.lost: QueueError | None = None
        self._held = bytearray()
        # How many bytes have to be there before the held packet can tell anything new.
        self._needed = 1
        # How many bytes of a packet that is refused already are still to come, and its answer.
        self._skip = 0
        self._refusal: Request | None = None

    @property
    def pending(self) -> int:
        return len(self._held) or (1 if self._skip else 0)

    @property
    def missing(self) -> int:
        """Bytes without which the packet that is begun tells nothing new; 0 when none is."""
        return max(0, self._needed - len(self._held)) if self._held else self._skip

    def feed(self, data: bytes) -> list[Request]:
        """The requests that `data` completes, in order of arrival. Never raises."""
        requests: list[Request] = []
        if self._skip:
            data = self._pass_over(data, requests)
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return requests
            data = bytes(self._held)
            self._held = bytearray()
        if self.lost is not None:
            return requests
        done = self._cut(data, requests)
        if done < len(data) and self.lost is None:
            self._held += data[done:] if done else data
        return requests

    def _pass_over(self, data: bytes, requests: list[Request]) -> bytes:
        """What is behind the packet that is not read; its answer, once all of it has come."""
        size = min(self._skip, len(data))
        self._skip -= size
        if not self._skip and self._refusal is not None:
            requests.append(self._refusal)
            self._refusal = None
        return data[size:]

    def one_by_one(self, data: bytes) -> Iterator[Request]:
        """As `feed`, each request read only when it is asked for: `frame_bytes_max` may change.

        Who stops early must not feed again.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held = bytearray()
        passed: list[Request] = []
        if self._skip:
            data = self._pass_over(data, passed)
            yield from passed
        pos, size = 0, len(data)
        while pos < size and self.lost is None:
            found: list[Request] = []
            end = self._next(data, pos, size, found)
            if end == pos:
                break
            pos = end
            yield from found
        if pos < size and self.lost is None:
            self._held += data[pos:]

    def _cut(self, data: bytes, requests: list[Request]) -> int:
        """Append the complete packets of `data`; return where the rest of it starts."""
        pos = 0
        size = len(data)
        limit = self.frame_bytes_max
        while pos < size:
            # Each reads on while packets have its form: a connection has one library behind it.
            if data[pos] != 0xCE:
                found = _cut_python(data, pos, size, limit, requests)
            elif data[pos + 6 : pos + 7] == b"\x01":
                found = _cut_sync_first(data, pos, size, limit, requests)
            else:
                found = _cut_type_first(data, pos, size, limit, requests)
            if found == pos:
                found = self._next(data, pos, size, requests)
                if found == pos:
                    return pos
            pos = found
        return pos

    def _next(self, data: bytes, pos: int, size: int, requests: list[Request]) -> int:
        """Read the packet at `pos` the longer way; return its end, `pos` if it is incomplete."""
        lead = data[pos]
        width = 1 if 0 < lead < 0x80 else _WIDTHS.get(lead, 0)
        if not width:
            self.lost = malformed("packet length")
            return pos
        start = pos + width
        if start > size:
            self._needed = width
            return pos
        length = lead if width == 1 else int.from_bytes(data[pos + 1 : start], "big")
        if not 0 < length <= self.frame_bytes_max:
            self.lost = malformed(f"packet length {length}, at most {self.frame_bytes_max}")
            return pos
        end = start + length
        if end > size:
            if length > LARGE_BYTES:
                if size - start < LOOK_BYTES:
                    self._needed = start + LOOK_BYTES - pos
                    return pos
                self._refusal = overlong(data[start : start + LOOK_BYTES])
                if self._refusal is not None:
                    self._skip = end - size
                    return size
            self._needed = end - pos
            return pos
        packet = data[start:end]
        requests.append(_read_known(packet) or read_packet(packet))
        return end


def _cut_type_first(data: bytes, pos: int, size: int, limit: int, requests: list[Request]) -> int:
    """Packets `ce <length> 82 00 <type> 01 <sync>` with a known name; returns where they end."""
    append = requests.append
    heads = _HEADS
    last = size - _LOOK_BYTES
    while pos <= last:
        lead, length, head, mark, sync = _HEAD(data, pos)
        end = pos + 5 + length
        if not (
            lead == 0xCE and _SHORT_BYTES_MIN < length <= limit and end <= size and head in heads
        ):
            break
        if mark == 0xCE:
            at = pos + 14
        elif mark < 0x80:
            sync = mark
            at = pos + 10
        elif mark == 0xCD:
            sync >>= 16
            at = pos + 12
        elif mark == 0xCC:
            sync >>= 24
            at = pos + 11
        else:
            break
        rtype, names = heads[head]
        args_at = at + data[at + 2] - 0x9C
        name = names.get(data[at : args_at + 1])
        if name is None and data[at + 2] == 0xD9:
            args_at = at + data[at + 3] + 5
            name = names.get(data[at : args_at + 1])
        if name is None or args_at >= end:
            break
        append((sync, rtype, name, data[args_at:end]))
        pos = end
    return pos


def _cut_sync_first(data: bytes, pos: int, size: int, limit: int, requests: list[Request]) -> int:
    """Packets `ce <length> 82 01 <sync> 00 <type>` with a known name; returns where they end."""
    append = requests.append
    last = size - _LOOK_BYTES
    while pos <= last:
        lead, length, head, mark, sync, rtype = _HEAD_SYNC(data, pos)
        end = pos + 5 + length
        if not (
            lead == 0xCE and _SHORT_BYTES_MIN < length <= limit and end <= size and head == 0x8201
        ):
            break
        # `sync` holds the four bytes after the sync's first one: the type may begin within.
        if mark == 0xCE:
            at = pos + 14
        elif mark < 0x80:
            rtype = sync >> 16
            sync = mark
            at = pos + 10
        elif mark == 0xCD:
            rtype = sync & 0xFFFF
            sync >>= 16
            at = pos + 12
        else:
            break
        names = _NAMES.get(rtype)
        if names is None:
            break
        args_at = at + data[at + 2] - 0x9C
        name = names.get(data[at : args_at + 1])
        if name is None and data[at + 2] == 0xD9:
            args_at = at + data[at + 3] + 5
            name = names.get(data[at : args_at + 1])
        if name is None or args_at >= end:
            break
        append((sync, rtype, name, data[args_at:end]))
        pos = end
    return pos


def _cut_python(data: bytes, pos: int, size: int, limit: int, requests: list[Request]) -> int:
    """Packets `<short length> 83 00 <type> 01 00 05 00` with a known name; where they end."""
    while pos + _PYTHON_BYTES_MIN < size:
        lead = data[pos]
        if lead < 0x80:
            start = pos + 1
            end = start + lead
        elif lead == 0xCC:
            start = pos + 2
            end = start + data[pos + 1]
        elif lead == 0xCD:
            start = pos + 3
            end = start + (data[pos + 1] << 8) + data[pos + 2]
        else:
            break
        rtype = _PYTHON.get(data[start : start + 7])
        if rtype is None or end > size or end - start > limit or end - start < 13:
            break
        names = _NAMES[rtype]
        at = start + 7
        args_at = at + data[at + 2] - 0x9C
        name = names.get(data[at : args_at + 1])
        if name is None and data[at + 2] == 0xD9:
            args_at = at + data[at + 3] + 5
            name = names.get(data[at : args_at + 1])
        if name is None or args_at >= end:
            break
        requests.append((0, rtype, name, data[args_at:end]))
        pos = end
    return pos


def _read_known(packet: bytes) -> Request | None:
    """A call or PING with a header as some connector writes it; None for everything else."""
    python = _PYTHON.get(packet[:7])
    if python is not None:
        return _read_tail(packet, 7, 0, python)
    if len(packet) < 5 or packet[0] != 0x82:
        return None
    # net.box writes the sync first, then the type; the others the type, then the sync.
    sync_first = packet[1] == 0x01
    sync_at = 2 if sync_first else 4
    mark = packet[sync_at]
    width = 1 if mark < 0x80 else _WIDTHS.get(mark, 0)
    end = sync_at + width
    if not width or end > len(packet):
        return None
    sync = mark if width == 1 else int.from_bytes(packet[sync_at + 1 : end], "big")
    rtype = _TYPES.get(packet[end : end + 2] + b"\x01" if sync_first else packet[1:4])
    if sync_first:
        end += 2
    if rtype == PING:
        return (sync, PING, {}, None) if packet[end:] in _EMPTY_BODIES else None
    return _read_tail(packet, end, sync, rtype) if rtype else None


def _read_tail(packet: bytes, at: int, sync: int, rtype: int) -> Request | None:
    """The body `82 <22 or 27> <text> 21 <array>` from `at` on, text of at most 255 bytes."""
    names = _EVALS if rtype == 0x08 else _CALLS
    if at + 5 > len(packet) or packet[at] != 0x82:
        return None
    mark = packet[at + 2]
    if mark == 0xD9:
        text_at = at + 4
        args_at = text_at + packet[at + 3] + 1
    elif 0xA0 <= mark < 0xC0:
        text_at = at + 3
        args_at = text_at + mark - 0x9F
    else:
        return None
    prefix = packet[at : args_at + 1]
    text = names.get(prefix)
    if text is None:
        if (
            args_at >= len(packet)
            or packet[at + 1] != (0x27 if rtype == 0x08 else 0x22)
            or packet[args_at - 1] != 0x21
            or not (packet[args_at] & 0xF0 == 0x90 or packet[args_at] in (0xDC, 0xDD))
        ):
            return None
        if len(names) >= _CACHED_MAX:
            names.clear()
        text = names[prefix] = packet[text_at : args_at - 1]
    return sync, rtype, text, packet[args_at:]
