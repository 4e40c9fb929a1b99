"""Arguments of a call, taken from raw MessagePack: payloads untouched, options and ids decoded.

Whether a value makes sense for a call is the engine's question. Nothing here keeps a payload.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import Any, Final

from msgpack import StackError, Unpacker, unpackb
from msgpack.exceptions import UnpackException

from tandemq.model.errors import ER_ILLEGAL_PARAMS, ER_INVALID_MSGPACK, QueueError

# Containers within containers that decoded arguments may have. Task payloads are not decoded;
# their limit is configuration, see `check_nesting`.
PLAIN_DEPTH_MAX: Final = 64
# Above this a reader is made for one call: a reused one would keep its buffer for ever.
_READER_BYTES_MAX: Final = 65536
_BUFFER_BYTES_MAX: Final = 0x7FFFFFFF

# What msgpack raises for bytes it does not like; TypeError is an unhashable map key.
UNREADABLE = (ValueError, TypeError, OverflowError, UnpackException)

_decode = partial(unpackb, strict_map_key=False, unicode_errors="surrogateescape")
_DOUBLE = Struct(">d").unpack_from

# Decoded options by their bytes: bounded, and thrown away whole when full.
_KNOWN_OPTIONS_MAX = 4096
_KNOWN_OPTIONS_BYTES_MAX = 96
_known_options: dict[bytes, Any] = {}
# One-byte spellings of "no options": {}, [] (PHP) and nil.
_NO_OPTIONS = frozenset((0x80, 0x90, 0xC0))
# Size of `[id]` by the id's marker.
_UINT_BYTES = {0xCC: 3, 0xCD: 4, 0xCE: 6}
_CONTAINER_MARKERS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))


class FallThrough(Exception):
    """The arguments are not of the one simple form asked for: decode them with `plain`."""


def malformed(what: str) -> QueueError:
    """Error 20 with the server's usual wording."""
    return QueueError(ER_INVALID_MSGPACK, f"Invalid MsgPack - {what}")


def new_reader(read_bytes: int = 4096) -> Unpacker:
    """A reader for skip() and tell(); it decodes nothing by itself."""
    return Unpacker(read_size=read_bytes, max_buffer_size=_BUFFER_BYTES_MAX)


def _stack_limit() -> int:
    """How many containers within containers the MessagePack library can skip over."""
    low, high = 1, 65536
    while low < high:
        middle = (low + high + 1) // 2
        reader = new_reader()
        reader.feed(b"\x91" * middle + b"\xc0")
        try:
            reader.skip()
            low = middle
        except (StackError, ValueError):
            high = middle - 1
    return low


_STACK_LIMIT: Final = _stack_limit()


class _Skimmer:
    """A reused reader. One that met bad bytes is in no known state and is replaced."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = new_reader()

    def take(self, size: int) -> Unpacker:
        return self._reader if size <= _READER_BYTES_MAX else new_reader()

    def replace(self) -> None:
        self._reader = new_reader()


_skimmer = _Skimmer()


def split_put(args: bytes) -> tuple[bytes | None, Any]:
    """`[payload, options?]` -> (payload as raw MessagePack or None, options or None).

    Options that are absent, nil, {} or [] are None; a value that is neither a map nor empty is
    returned as it is. Arguments after the second are checked and ignored. Raises QueueError 20
    when `args` is not exactly one well-formed array.
    """
    count = args[0] if args else 0
    if count == 0x92 or count == 0x91:
        try:
            mark = args[1]
            if mark == 0xD9 or mark == 0xC4:
                end = args[2] + 3
            elif 0xA0 <= mark < 0xC0:
                end = mark - 0x9E
            elif mark == 0xDA or mark == 0xC5:
                end = (args[2] << 8) + args[3] + 4
            elif mark < 0x80:
                end = 2
            elif 0xCC <= mark <= 0xCF:
                end = 2 + (1 << (mark - 0xCC))
            else:
                return _split_put(args)
            if count == 0x92:
                if args[end] in _NO_OPTIONS and end == len(args) - 1:
                    return args[1:end], None
                return args[1:end], _options(args[end:])
            if end == len(args):
                return args[1:], None
        except IndexError:
            pass
    return _split_put(args)


def _split_put(args: bytes) -> tuple[bytes | None, Any]:
    """Any other form: containers, long strings, more arguments, malformed bytes."""
    size = len(args)
    reader = _skimmer.take(size)
    count = start = middle = end = 0
    try:
        base = reader.tell()
        reader.feed(args)
        count = reader.read_array_header()
        start = middle = end = reader.tell() - base
        if count:
            reader.skip()
            middle = end = reader.tell() - base
        if count > 1:
            reader.skip()
            end = reader.tell() - base
        for _ in range(count - 2):
            reader.skip()
        complete = reader.tell() - base == size
    except UNREADABLE:
        complete = False
    if not complete:
        _skimmer.replace()
        raise malformed("arguments of put")
    if not count:
        return None, None
    return args[start:middle], _options(args[middle:end]) if end > middle else None


def _options(raw: bytes) -> Any:
    """One options value: None for nil, {} and []; anything else decoded as it is."""
    if len(raw) == 1 and raw[0] in _NO_OPTIONS:
        return None
    if len(raw) > _KNOWN_OPTIONS_BYTES_MAX:
        value = decode(raw)
        return None if value == {} or value == [] else value
    # Callers send the same few options over and over; whoever gets them only reads them.
    known = _known_options.get(raw)
    if known is None:
        known = decode(raw)
        if known == {} or known == []:
            return None
        if len(_known_options) >= _KNOWN_OPTIONS_MAX:
            _known_options.clear()
        _known_options[raw] = known
    return known


def split_put_many(args: bytes) -> tuple[list[tuple[bytes, Any]], Any]:
    """`[[item, ...], common options?]`, each item `[payload]` or `[payload, options]`.

    Returns ([(payload as raw MessagePack, options or None), ...], common options or None), options
    as in `split_put`. Raises QueueError 20 for malformed bytes, 1 for another shape, naming the
    item by its number counted from 1.
    """
    plain_items = _plain_items(args)
    if plain_items is not None:
        return plain_items, None
    reader = _skimmer.take(len(args))
    items: list[tuple[bytes, Any]] = []
    common_at = common_end = 0
    try:
        base = reader.tell()
        reader.feed(args)
        count = reader.read_array_header()
        if count:
            if not _is_array(args, reader.tell() - base):
                raise QueueError(ER_ILLEGAL_PARAMS, "put_many: argument #1 should be an array")
            items = _read_items(reader, args, base, reader.read_array_header())
        common_at = common_end = reader.tell() - base
        if count > 1:
            reader.skip()
            common_end = reader.tell() - base
        for _ in range(count - 2):
            reader.skip()
        complete = reader.tell() - base == len(args)
    except UNREADABLE:
        complete = False
    except QueueError:
        _skimmer.replace()
        raise
    if not complete:
        _skimmer.replace()
        raise malformed("arguments of put_many")
    return items, _options(args[common_at:common_end]) if common_end > common_at else None


def _plain_items(args: bytes) -> list[tuple[bytes, Any]] | None:
    """The items of `[[[text], [text, {}], ...]]`, texts up to 255 bytes; None for other forms."""
    items: list[tuple[bytes, Any]] = []
    append = items.append
    try:
        if args[0] != 0x91:
            return None
        mark = args[1]
        if mark & 0xF0 == 0x90:
            count, at = mark & 0x0F, 2
        elif mark == 0xDC:
            count, at = args[2] << 8 | args[3], 4
        else:
            return None
        for _ in range(count):
            mark = args[at + 1]
            if mark == 0xD9:
                end = at + 3 + args[at + 2]
            elif mark & 0xE0 == 0xA0:
                end = at + 2 + (mark & 0x1F)
            else:
                return None
            append((args[at + 1 : end], None))
            if args[at] != 0x91:
                if args[at] != 0x92 or args[end] not in _NO_OPTIONS:
                    return None
                end += 1
            at = end
    except IndexError:
        return None
    return items if at == len(args) else None


def _read_items(reader: Unpacker, args: bytes, base: int, count: int) -> list[tuple[bytes, Any]]:
    """So many items at the reader's position."""
    payloads, options = [], []
    header, skip, tell = reader.read_array_header, reader.skip, reader.tell
    at = tell() - base
    for number in range(1, count + 1):
        if args[at : at + 1] == b"\x92":  # as nearly always
            header()
            skip()
            middle = tell() - base
            skip()
            end = tell() - base
            payloads.append(args[at + 1 : middle])
            options.append(args[middle:end])
        else:
            payload, raw = _read_item(reader, args, base, number)
            payloads.append(payload)
            options.append(raw)
            end = tell() - base
        at = end
    return list(zip(payloads, _options_of(options), strict=True))


def _options_of(raws: list[bytes]) -> list[Any]:
    """`_options` of each; in one go where most differ, as keys do."""
    if len(set(raws)) > len(raws) >> 1 > 1:
        for raw in raws:
            if len(raw) > PLAIN_DEPTH_MAX:
                check_nesting(raw, PLAIN_DEPTH_MAX)
        together = b"\xdd" + len(raws).to_bytes(4, "big") + b"".join(raws)
        try:
            values = _decode(together)
        except UNREADABLE:
            pass  # one by one says what is wrong
        else:
            return [None if value == {} or value == [] else value for value in values]
    return [_options(raw) for raw in raws]


def _read_item(reader: Unpacker, args: bytes, base: int, number: int) -> tuple[bytes, bytes]:
    """One `[payload]` or `[payload, options]` at the reader's position; options nil if left out."""
    width = 0
    if _is_array(args, reader.tell() - base):
        width = reader.read_array_header()
    if not 1 <= width <= 2:
        raise QueueError(
            ER_ILLEGAL_PARAMS, f"put_many: item {number} should be [data] or [data, options]"
        )
    start = reader.tell() - base
    reader.skip()
    end = reader.tell() - base
    if width == 1:
        return args[start:end], b"\xc0"
    reader.skip()
    return args[start:end], args[end : reader.tell() - base]


def _is_array(data: bytes, at: int) -> bool:
    if at >= len(data):
        raise ValueError("incomplete")
    mark = data[at]
    return mark & 0xF0 == 0x90 or mark == 0xDC or mark == 0xDD


def decode(raw: bytes) -> Any:
    """One MessagePack value: str as utf-8 with surrogateescape, bin as bytes, ext as ExtType.

    Raises QueueError 20 when `raw` is anything but one well-formed value nested at most
    `PLAIN_DEPTH_MAX` deep, or holds a map key that cannot be one in Python (array, map).
    """
    # The depth comes first: a decoder reserves room for each array it enters, on a claimed length.
    check_nesting(raw, PLAIN_DEPTH_MAX)
    try:
        return _decode(raw)
    except UNREADABLE:
        raise malformed("value") from None


def plain(args: bytes) -> list[Any]:
    """All arguments decoded, see `decode`. Raises QueueError 20, also when it is no array."""
    values = decode(args)
    if not isinstance(values, list):
        raise malformed("arguments are not an array")
    return values


def take_timeout(args: bytes) -> Any:
    """The first argument of take: seconds as int or float, None when absent or nil.

    A value of another type is returned as it is, further arguments are ignored. QueueError 20.
    """
    if len(args) == 2 and args[0] == 0x91:
        mark = args[1]
        if mark < 0x80:
            return mark
        if mark == 0xC0:
            return None
    elif args == b"\x90":
        return None
    elif len(args) == 10 and args[0] == 0x91 and args[1] == 0xCB:
        return _DOUBLE(args, 2)[0]
    values = plain(args)
    return values[0] if values else None


def first_id(args: bytes) -> int:
    """The task id of `[id]`: any unsigned width, or a double that is a whole number.

    Raises FallThrough for every other form (more arguments, other types, malformed).
    """
    size = len(args)
    if size >= 2 and args[0] == 0x91:
        mark = args[1]
        if size == 2:
            if mark < 0x80:
                return mark
        elif size == 10:
            if mark == 0xCF:
                return int.from_bytes(args[2:], "big")
            if mark == 0xCB:
                number: float = _DOUBLE(args, 2)[0]
                if number.is_integer() and 0 <= number < 2**64:
                    return int(number)
        elif _UINT_BYTES.get(mark) == size:
            return int.from_bytes(args[2:], "big")
    raise FallThrough


def check_nesting(raw: bytes, depth_max: int) -> None:
    """Raise QueueError 20 if `raw`, one MessagePack value, nests containers deeper than that.

    A container that holds nothing counts as a value. Limits above what the MessagePack library
    itself can skip over (1024) mean that number. Not a check of form: bytes with few container
    markers in them, which is nearly all, pass without a closer look.
    """
    if len(raw) <= depth_max:
        return
    if len(raw) - len(raw.translate(None, _CONTAINER_MARKERS)) <= depth_max:
        return
    # Arrays around the value use up the library's own limit until `depth_max` is left of it.
    reader = new_reader()
    reader.feed(b"\x91" * (_STACK_LIMIT - depth_max))
    reader.feed(raw)
    try:
        reader.skip()
    except StackError:
        raise malformed(f"nested deeper than {depth_max} levels") from None
    except UNREADABLE:
        raise malformed("value") from None
