"""Large requests whose name or expression is longer than any there is, told by their first bytes.

So they need not be kept until they are complete only to be refused.
"""

from __future__ import annotations

from typing import Any, Final

from tandemq.model.errors import failure, no_such_proc
from tandemq.model.units import KIB
from tandemq_server.wire.arguments import UNREADABLE, new_reader
from tandemq_server.wire.constants import (
    CALL,
    CALL_16,
    EVAL,
    KEY_EXPRESSION,
    KEY_FUNCTION,
    KEY_SYNC,
    KEY_TYPE,
    MALFORMED,
)
from tandemq_server.wire.packets import Request

#: Requests up to this size are read as ever; of larger ones the first bytes are looked at.
LARGE_BYTES: Final = 256 * KIB
LOOK_BYTES: Final = 64
#: The longest name of a tube, and a call of it; expressions are far shorter.
NAME_BYTES_MAX: Final = 4 * 65_000 + 100
_STR32 = 0xDB


def overlong(head: bytes) -> Request | None:
    """The answer to such a request, by its first LOOK_BYTES behind the length; None for others."""
    reader = new_reader(LOOK_BYTES)
    reader.feed(head)
    try:
        values: dict[Any, Any] = {}
        for _ in range(reader.read_map_header()):
            key = reader.unpack()
            values[key] = reader.unpack()
        reader.read_map_header()
        key, at = reader.unpack(), reader.tell()
        size = int.from_bytes(head[at + 1 : at + 5], "big")
        sync, rtype = values[KEY_SYNC], values[KEY_TYPE]
    except (*UNREADABLE, KeyError):
        return None
    if len(head) < at + 5 or head[at] != _STR32 or size <= NAME_BYTES_MAX or type(sync) is not int:
        return None
    if rtype == EVAL and key == KEY_EXPRESSION:
        return sync, MALFORMED, failure(f"expression of {size} bytes is not read"), None
    if rtype in (CALL, CALL_16) and key == KEY_FUNCTION:
        shown = head[at + 5 :].decode("utf-8", "replace")
        return sync, MALFORMED, no_such_proc(f"{shown}..."), None
    return None
