"""Arguments of `finish`: a task's id, tasks to put, options; payloads stay the bytes they are."""

from __future__ import annotations

from typing import Any

from tandemq.model.errors import ER_ILLEGAL_PARAMS, QueueError
from tandemq_server.wire.arguments import UNREADABLE, decode, malformed, new_reader

#: One put: (name of the tube, payload as raw MessagePack, options or None).
Put = tuple[Any, bytes, Any]


def split_finish(args: bytes) -> tuple[Any, list[Put], Any]:
    """`[id, [[tube, data] or [tube, data, options], ...]?, options?]`; nil is the same as absent.

    Raises QueueError 20 for malformed bytes, 1 for another shape, naming the put by its number
    counted from 1.
    """
    reader = new_reader()
    reader.feed(args)

    def value() -> bytes:
        start = reader.tell()
        reader.skip()
        return args[start : reader.tell()]

    def is_array() -> bool:
        at = reader.tell()
        if at >= len(args):
            raise ValueError("incomplete")
        return args[at] & 0xF0 == 0x90 or args[at] in (0xDC, 0xDD)

    puts: list[Put] = []
    task_id = options = None
    try:
        count = reader.read_array_header()
        task_id = decode(value()) if count else None
        if count > 1 and not is_array():
            if value() != b"\xc0":
                raise QueueError(ER_ILLEGAL_PARAMS, "finish: argument #2 should be an array")
        elif count > 1:
            for number in range(1, reader.read_array_header() + 1):
                width = reader.read_array_header() if is_array() else 0
                if not 2 <= width <= 3:
                    text = f"finish: put {number} should be [tube, data] or [tube, data, options]"
                    raise QueueError(ER_ILLEGAL_PARAMS, text)
                name, data = decode(value()), value()
                puts.append((name, data, decode(value()) if width == 3 else None))
        options = decode(value()) if count > 2 else None
        for _ in range(count - 3):
            reader.skip()
        complete = reader.tell() == len(args)
    except UNREADABLE:
        complete = False
    if not complete:
        raise malformed("arguments of finish")
    return task_id, puts, options
