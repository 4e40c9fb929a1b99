"""Arguments of calls whose last ones are a task's own fields, which are never decoded."""

from __future__ import annotations

from typing import Any

from msgpack import Packer

from tandemq_server.wire.arguments import UNREADABLE, decode, malformed, new_reader

_PACKER = Packer()


def split_fields(args: bytes, fixed: int) -> tuple[list[Any], bytes]:
    """(the first `fixed` arguments decoded, None where missing; the rest as a MessagePack array).

    Raises QueueError 20 when `args` is not exactly one well-formed array.
    """
    reader = new_reader(max(len(args), 1))
    values: list[Any] = []
    end = 0
    count = start = 0
    try:
        reader.feed(args)
        count = reader.read_array_header()
        start = end = reader.tell()
        for number in range(count):
            reader.skip()
            if number < fixed:
                values.append((end, reader.tell()))
                start = reader.tell()
            end = reader.tell()
        complete = end == len(args)
    except UNREADABLE:
        complete = False
    if not complete:
        raise malformed("arguments of a call")
    decoded = [decode(args[begin:stop]) for begin, stop in values]
    decoded += [None] * (fixed - len(decoded))
    return decoded, _PACKER.pack_array_header(max(0, count - fixed)) + args[start:]
