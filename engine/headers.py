"""Headers of a task: short texts its producer gives and its worker gets, trace context above all.

`put(data, {headers = {traceparent = ..., tracestate = ...}})` keeps them in the task's note
(notes.py), written in the record of the put; a put without headers never comes here. `traceparent`
and `tracestate` must be what the W3C's Trace Context, level 1, says, so that a broken trace shows
where it breaks; other names (`baggage`) are free.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine.arguments import lua_type
from tandemq_server.engine.notes import NOTE_HEADERS

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row

#: No header of a producer begins so.
OURS = "@"
#: The option of a put.
HEADERS = "headers"
HEADERS_MAX = 16
#: Names and values of one task together.
HEADERS_BYTES_MAX = 4096
#: What the recommendation asks everybody to carry, and the most it allows.
TRACESTATE_BYTES_MAX = 512
TRACESTATE_MEMBERS_MAX = 32

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


def checked(value: Any) -> dict[str, str] | None:
    """The headers of a put as they are kept; None where there are none. Raises code 32."""
    if value is None or value == {} or value == []:
        return None
    if type(value) is not dict:
        raise failure(f"Invalid value of headers: expected a map, got {lua_type(value)}")
    if len(value) > HEADERS_MAX:
        raise failure(f"Invalid value of headers: {len(value)} of them (at most {HEADERS_MAX})")
    found = dict(_one(name, text) for name, text in value.items())
    size = sum(len(name) + len(text) for name, text in found.items())
    if size > HEADERS_BYTES_MAX:
        raise failure(f"Invalid value of headers: {size} bytes (at most {HEADERS_BYTES_MAX})")
    if "traceparent" in found:
        _check_traceparent(found["traceparent"])
    if "tracestate" in found:
        if "traceparent" not in found:
            raise failure("Invalid header tracestate: it needs a traceparent")
        _check_tracestate(found["tracestate"])
    return found


def _one(name: Any, text: Any) -> tuple[str, str]:
    """One header, checked; connectors may send either as binary."""
    if type(name) is bytes:
        name = name.decode("utf-8", "surrogateescape")
    if type(name) is not str or not _NAME.fullmatch(name):
        raise failure(
            f"Invalid name of a header: {name!a:.80} (expected 1 to 64 of a-z, 0-9, '_', '.', '-')"
        )
    if type(text) is bytes:
        text = text.decode("utf-8", "surrogateescape")
    if type(text) is not str:
        raise failure(f"Invalid header {name}: expected a string, got {lua_type(text)}")
    if not _VALUE.fullmatch(text):
        raise failure(f"Invalid header {name}: expected printable ASCII")
    return name, text


def _check_traceparent(text: str) -> None:
    found = _TRACEPARENT.fullmatch(text)
    version = found.group(1) if found else "ff"
    if (
        found is None
        or version == "ff"
        or (version == "00" and found.group(4) is not None)
        or not found.group(2).strip("0")
        or not found.group(3).strip("0")
    ):
        raise failure(
            f"Invalid header traceparent: {text!a:.80} (expected VERSION-TRACE-PARENT-FLAGS in "
            "lower-case hexadecimal, of 2, 32, 16 and 2 digits, neither id zero)"
        )


def _check_tracestate(text: str) -> None:
    if len(text) > TRACESTATE_BYTES_MAX:
        raise failure(
            f"Invalid header tracestate: {len(text)} bytes (at most {TRACESTATE_BYTES_MAX})"
        )
    members = [member.strip(" ") for member in text.split(",")]
    members = [member for member in members if member]
    if len(members) > TRACESTATE_MEMBERS_MAX:
        raise failure(
            f"Invalid header tracestate: {len(members)} members (at most {TRACESTATE_MEMBERS_MAX})"
        )
    for member in members:
        if not _MEMBER.fullmatch(member):
            raise failure(f"Invalid header tracestate: {member!a:.80} (expected key=value)")


def of(note: Row | None) -> dict[str, str] | None:
    """The headers a task's note keeps, for people: without what else stands there (usage.py)."""
    found = kept(note)
    if found is not None and OURS in "".join(found):
        found = {name: text for name, text in found.items() if name[0] != OURS}
    return found or None


def kept(note: Row | None) -> dict[str, str] | None:
    """All that a task takes along wherever it goes."""
    return (note[NOTE_HEADERS] or None) if note is not None and len(note) > NOTE_HEADERS else None
