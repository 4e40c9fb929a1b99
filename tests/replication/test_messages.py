"""Messages there and back, in any cut; garbage gives the one declared error."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq_server.replication.codec import (
    MESSAGE_BYTES_MAX,
    MessageDecoder,
    decode_message,
    encode,
)
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import (
    GARBAGE,
    LENGTH,
    NEWER_PROTOCOL,
    REWIND,
    TYPES,
    Ack,
    Ask,
    Bye,
    Fence,
    Frame,
    Handoff,
    Heartbeat,
    Hello,
    LinkError,
    Message,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
    Welcome,
)

A, B = b"a" * 16, b"b" * 16
LINEAGE = Lineage([(1, A, None, 1, "one", False), (4, B, A, 20, "zwei ✓", True)])
SAMPLES: list[Message] = [
    Hello(1, A, B, "name", LINEAGE, 30, 29, "WAITING", True, 28, 31, ("0.snap", 77)),
    Hello(1, A, B, "", Lineage(), 0, 0, "INIT", False, 0, 0),
    Welcome(REWIND, 19, 0, "parted", 1, A, B, "up", LINEAGE, 40, 39, "RUNNING", True),
    Welcome(REWIND, 19, 0, "", 1, A, B, "up", LINEAGE, 40, 39, "RUNNING", True, "fsync"),
    Hello(1, A, B, "name", LINEAGE, 30, 29, "WAITING", True, 28, 31, None, "write"),
    Frame(A, b"TQf1 and more"),
    Frame(B, b""),
    Ack(A, 2**63, 17, 5),
    Heartbeat(4, B, "RUNNING", 2**64 - 1, 0, 1_700_000_000_000_000, False, True),
    SnapshotBegin(9, 2**40, "9.snap", 0xFFFFFFFF),
    SnapshotChunk(0, b"\0" * 300, 1),
    SnapshotEnd(9),
    Fence(5, A),
    Handoff(6, 1234),
    Bye(3, "because"),
    Ask(True, "switch-over to b"),
]
STREAM = b"".join(encode(message) for message in SAMPLES)


def test_every_type_is_sampled() -> None:
    assert {type(message) for message in SAMPLES} == set(TYPES.values())


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_there_and_back(message: Message) -> None:
    data = encode(message)
    assert LENGTH.unpack_from(data)[0] == len(data) - LENGTH.size
    assert list(MessageDecoder().feed(data)) == [message]


def test_byte_by_byte_is_one_chunk() -> None:
    decoder = MessageDecoder()
    found = [message for byte in STREAM for message in decoder.feed(bytes([byte]))]
    assert found == SAMPLES == list(MessageDecoder().feed(STREAM))
    assert decoder.pending_bytes == 0


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    decoder, found, before = MessageDecoder(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        found += decoder.feed(STREAM[before:cut])
        before = cut
    assert found == SAMPLES


def test_messages_not_asked_for_stay() -> None:
    decoder = MessageDecoder()
    assert next(decoder.feed(STREAM)) == SAMPLES[0]
    assert list(decoder.feed(b"")) == SAMPLES[1:]


@given(st.binary(max_size=200))
def test_garbage_gives_only_the_declared_error(data: bytes) -> None:
    try:
        list(MessageDecoder(max_bytes=4096).feed(data))
    except LinkError as error:
        assert error.reason


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_flipped_byte_gives_only_the_declared_error(at: int, flip: int) -> None:
    data = bytearray(STREAM)
    data[at] ^= flip
    outcomes = []
    for step in (1, len(data)):
        decoder, found, failed = MessageDecoder(), [], ""
        try:
            for start in range(0, len(data), step):
                for message in decoder.feed(bytes(data[start : start + step])):
                    found.append(message)
        except LinkError as error:
            failed = error.reason
        outcomes.append((found, failed))
    assert outcomes[0] == outcomes[1], "how the bytes are cut makes no difference"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.binary(max_size=20) | st.text(),
    lambda inner: st.lists(inner, max_size=14),
    max_leaves=30,
)


@given(st.integers(0, 12), st.lists(VALUES, max_size=14))
def test_wrong_fields_give_only_the_declared_error(kind: int, values: list[Any]) -> None:
    try:
        message = decode_message(msgpack.packb([kind, *values]))
    except LinkError:
        return
    assert list(MessageDecoder().feed(encode(message))) == [message]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xc1", "not MessagePack: FormatError"),
        (msgpack.packb(7), "a message is not an array with a type"),
        (msgpack.packb([]), "a message is not an array with a type"),
        (msgpack.packb([99]), "unknown message type 99"),
        (msgpack.packb([True, 1]), "unknown message type True"),
        (msgpack.packb([8]), "SnapshotEnd has 0 fields of 1"),
        (msgpack.packb([8, -1]), "end_lsn of SnapshotEnd is not a count"),
        (msgpack.packb([9, 1, b"short"]), "term_id of Fence is not 16 bytes"),
        (msgpack.packb([11, 1, 2]), "reason of Bye is not text of at most 4096 characters"),
        (msgpack.packb([3, A, "text"]), "data of Frame is not binary"),
        (msgpack.packb([5, 1, A, "s", 1, 1, 1, 1, 1]), "read_only of Heartbeat is not a boolean"),
        (msgpack.packb([2, 9, *[0] * 12]), "answer of Welcome is no answer"),
        (
            msgpack.packb([1, 1, A, B, "n", [5], 0, 0, "s", True, 0, 0]),
            "lineage of Hello is not a list of terms",
        ),
        (
            msgpack.packb([1, 1, A, B, "n", [], 0, 0, "s", True, 0, 0, [1]]),
            "partial of Hello is not a snapshot's name and size",
        ),
    ],
)
def test_errors_name_the_field(body: bytes, reason: str) -> None:
    with pytest.raises(LinkError) as caught:
        decode_message(body)
    assert caught.value.reason == reason
    assert caught.value.code == GARBAGE


def test_a_broken_lineage_is_named() -> None:
    terms = [[2, A, None, 5, "x", False], [1, B, A, 9, "x", False]]
    with pytest.raises(LinkError, match="lineage of Hello term 1 from LSN 9 cannot follow"):
        decode_message(msgpack.packb([1, 1, A, B, "n", terms, 0, 0, "s", True, 0, 0]))


def test_a_newer_hello_is_told_apart_from_garbage() -> None:
    with pytest.raises(LinkError) as caught:
        decode_message(msgpack.packb([1, 2, "anything"]))
    assert caught.value.code == NEWER_PROTOCOL


def test_fields_of_a_newer_node_are_passed_over() -> None:
    assert decode_message(msgpack.packb([8, 5, "new", 1])) == SnapshotEnd(5)


def test_a_length_past_the_limit_is_refused_before_anything_is_kept() -> None:
    decoder = MessageDecoder(max_bytes=100)
    with pytest.raises(LinkError, match="101 bytes; the limit is 100"):
        list(decoder.feed(LENGTH.pack(101)))
    with pytest.raises(LinkError):
        list(decoder.feed(STREAM))
    assert decoder.pending_bytes == 0
    with pytest.raises(LinkError, match="0 bytes"):
        list(MessageDecoder().feed(LENGTH.pack(0)))
    assert MESSAGE_BYTES_MAX < 2**32


def test_a_node_of_an_older_version_says_no_mode() -> None:
    for message in SAMPLES[:3]:
        _, *fields = msgpack.unpackb(encode(message)[LENGTH.size :], raw=False)
        kind = 1 if isinstance(message, Hello) else 2
        older = msgpack.packb([kind, *fields[:-1]])
        assert decode_message(older) == message
        assert decode_message(older).wal_mode == ""  # type: ignore[union-attr]
