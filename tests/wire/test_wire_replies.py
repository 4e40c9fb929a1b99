"""Replies and events: their bytes, against the golden file and against what the library decodes."""

from __future__ import annotations

import pathlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.errors import QueueError, failure
from tandemq.model.raw import Raw, raw_str
from tandemq_server.wire import replies

GOLDEN = pathlib.Path(__file__).parent / "golden" / "replies.txt"


@pytest.fixture(autouse=True)
def _first_schema() -> None:
    """A core that ran in this process before may have moved it."""
    replies.use_schema(replies.SCHEMA_VERSION)


def read(raw: bytes) -> tuple[dict[int, Any], dict[int, Any]]:
    """(header, body), after checking the five-byte length every connector relies on."""
    assert raw[0] == 0xCE
    assert int.from_bytes(raw[1:5], "big") == len(raw) - 5
    reader = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
    reader.feed(raw[5:])
    header, body = reader.unpack(), reader.unpack()
    assert reader.tell() == len(raw) - 5
    return header, body


def samples() -> dict[str, bytes]:
    payload = b"\xa5hello"
    denied = QueueError(
        42,
        "Execute access to function 'f' is denied for user 'guest'",
        "AccessDeniedError",
        {"object_type": "function", "object_name": "f", "access_type": "Execute"},
    )
    return {
        "task": replies.task_reply(7, 3, "t", payload),
        "task with an id past 32 bits": replies.task_reply(2**64 - 1, 2**32, "-", payload),
        "nothing returned": replies.empty_reply(7),
        "nil returned": replies.nil_reply(7),
        "nil returned to CALL_16": replies.nil_reply(7, call16=True),
        "values": replies.values_reply(7, [1, "RUNNING", {"a": 1.5}, [2]]),
        "values to CALL_16": replies.values_reply(7, [1, "RUNNING", {"a": 1.5}, [2]], call16=True),
        "session uuid": replies.values_reply(7, [raw_str(bytes(range(240, 256)))]),
        "PING": replies.ok_reply(0, {}),
        "ID": replies.ok_reply(1, {0x54: 6, 0x55: [2, 3, 6], 0x5B: "chap-sha1"}),
        "error of the queue": replies.error_reply(7, failure("Task was not taken")),
        "access denied": replies.error_reply(7, denied),
        "event without a value": replies.event(6, "box.shutdown", has_value=False),
        "event": replies.event(6, "box.status", has_value=True, value={"is_ro": False}),
    }


def test_golden() -> None:
    written = []
    for title, raw in samples().items():
        header, body = read(raw)
        written.append(f"== {title}\nbytes   {raw.hex()}\npacket  {header!r} {body!r}\n")
    assert GOLDEN.read_text().split("\n", 2)[2] == "\n" + "\n".join(written)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from("rt!~-RTWZBD"),
    st.binary(max_size=300),
)
def test_task(sync: int, task_id: int, status: str, data: bytes) -> None:
    header, body = read(replies.task_reply(sync, task_id, status, msgpack.packb(data)))
    assert header == {0: 0, 1: sync, 5: replies.SCHEMA_VERSION}
    assert body == {0x30: [[task_id, status, data]]}


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.binary(max_size=20),
)
nested = st.recursive(
    leaves | leaves.map(lambda leaf: Raw(replies.encode(leaf))),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=17)
    ),
    max_leaves=30,
)


def as_decoded(value: Any) -> Any:
    if isinstance(value, Raw):
        return msgpack.unpackb(value.data, unicode_errors="surrogateescape")
    if isinstance(value, (list, tuple)):
        return [as_decoded(item) for item in value]
    if isinstance(value, dict):
        return {key: as_decoded(item) for key, item in value.items()}
    return value


@given(st.lists(nested, max_size=4))
def test_values(values: list[Any]) -> None:
    decoded = [as_decoded(value) for value in values]
    assert read(replies.values_reply(9, values))[1] == {0x30: decoded}
    wrapped = [value if isinstance(value, list) else [value] for value in decoded]
    assert read(replies.values_reply(9, values, call16=True))[1] == {0x30: wrapped}


def test_large_containers_with_raw_inside() -> None:
    rows = [[number, Raw(b"\xc0")] for number in range(70_000)]
    (data,) = read(replies.values_reply(1, [rows]))[1].values()
    assert data[0][-1] == [69_999, None]
    table = {number: Raw(b"\x01") for number in range(300)}
    assert read(replies.values_reply(1, [table]))[1] == {0x30: [dict.fromkeys(range(300), 1)]}


def test_values_that_have_no_wire_form_are_our_error() -> None:
    for value in (object(), 2**64, {1, 2}):
        with pytest.raises((TypeError, OverflowError)):
            replies.values_reply(1, [value])
    assert read(replies.values_reply(1, [5]))[1] == {0x30: [5]}


def test_error_frame_has_all_keys() -> None:
    error = QueueError(7, "Can't modify data on a read-only instance", line=358)
    header, body = read(replies.error_reply(3, error))
    assert header == {0: 0x8007, 1: 3, 5: replies.SCHEMA_VERSION}
    (frame,) = body[0x52][0]
    assert sorted(frame) == [0, 1, 2, 3, 4, 5]
    assert (frame[0], frame[2], frame[3], frame[5]) == ("ClientError", 358, error.text, 7)
    assert body[0x31] == error.text


def test_event_has_no_schema_version() -> None:
    header, body = read(replies.event(2**40, "k", has_value=True, value=None))
    assert header == {0: 76, 1: 2**40}
    assert body == {0x57: "k", 0x58: None}


def test_the_schema_version_moves() -> None:
    """Tasks, ids beyond 32 bits, values and errors carry what was said last."""
    replies.use_schema(4242)
    packets = (
        replies.task_reply(1, 7, "t", b"\xc0"),
        replies.task_reply(1, 2**40, "t", b"\xc0"),
        replies.values_reply(1, []),
        replies.error_reply(1, QueueError(32, "no")),
    )
    for packet in packets:
        unpacker = msgpack.Unpacker(strict_map_key=False)
        unpacker.feed(packet)
        unpacker.unpack()
        assert unpacker.unpack()[5] == 4242
