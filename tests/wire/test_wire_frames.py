"""Framing and headers: real connectors' bytes, any legal encoding, any cut, and broken packets."""

from __future__ import annotations

import ast
import pathlib
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemq.model.errors import QueueError
from tandemq_server.wire import frames
from tandemq_server.wire.constants import CALL, CALL_16, EVAL, MALFORMED, PING, SELECT
from tandemq_server.wire.frames import Request, RequestDecoder
from tandemq_server.wire.packets import read_packet

GOLDEN = pathlib.Path(__file__).parent / "golden" / "requests.txt"
LIMIT = 1 << 20


def packet(body: bytes) -> bytes:
    return b"\xce" + len(body).to_bytes(4, "big") + body


def plainly(request: Request) -> tuple[Any, ...]:
    """Errors compare by their text."""
    sync, rtype, a, b = request
    return (sync, rtype, (a.code, a.text), b) if isinstance(a, QueueError) else request


def golden() -> list[tuple[str, bytes, Request]]:
    found = []
    for block in GOLDEN.read_text().split("\n== ")[1:]:
        title, raw, _, request = block.strip().split("\n")
        raw, request = raw.split(None, 1)[1], request.split(None, 1)[1]
        found.append((title, bytes.fromhex(raw), ast.literal_eval(request)))
    return found


GOLDEN_REQUESTS = golden()


@pytest.mark.parametrize(("title", "raw", "request_"), GOLDEN_REQUESTS)
def test_connectors_bytes(title: str, raw: bytes, request_: Request) -> None:
    decoder = RequestDecoder(LIMIT)
    assert decoder.feed(raw) == [request_], title
    assert decoder.pending == 0
    # And the same again, now that the name is known and the short way is open.
    assert RequestDecoder(LIMIT).feed(raw * 5) == [request_] * 5, title


def test_golden_file_covers_every_connector() -> None:
    titles = " ".join(title for title, _, _ in GOLDEN_REQUESTS)
    for name in ("asynctnt", "tarantool-python", "go-tarantool", "net.box", "PHP", "Node"):
        assert name in titles


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64])
def test_cut_anywhere(step: int) -> None:
    stream = b"".join(raw for _, raw, _ in GOLDEN_REQUESTS)
    decoder = RequestDecoder(LIMIT)
    found: list[Request] = []
    for at in range(0, len(stream), step):
        found += decoder.feed(stream[at : at + step])
    assert found == [request for _, _, request in GOLDEN_REQUESTS]
    assert decoder.pending == 0


@given(st.lists(st.sampled_from(GOLDEN_REQUESTS), max_size=8), st.data())
def test_any_chunks_equal_one(chosen: list[Any], data: st.DataObject) -> None:
    stream = b"".join(raw for _, raw, _ in chosen)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = RequestDecoder(LIMIT)
    found: list[Request] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == [request for _, _, request in chosen]


# -- any legal encoding ----------------------------------------------------------------------------


def uint(value: int, width: int) -> bytes:
    """`value` in the narrowest form of at least `width` steps: 0 fixint, 1..4 cc..cf."""
    for step, size in ((1, 1), (2, 2), (3, 4), (4, 8)):
        if width == 0 and value < 0x80:
            return bytes((value,))
        if step >= width and value < 1 << (8 * size):
            return bytes((0xCB + step,)) + value.to_bytes(size, "big")
    raise AssertionError(value)


widths = st.integers(0, 4)
uints = st.one_of(st.integers(0, 127), st.integers(0, 2**16), st.integers(0, 2**64 - 1))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=40),
        st.binary(max_size=300),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def length_of(data: st.DataObject, size: int) -> bytes:
    return uint(size, data.draw(widths))


def map_of(data: st.DataObject, pairs: list[bytes]) -> bytes:
    shuffled = b"".join(data.draw(st.permutations(pairs)))
    count = len(pairs)
    return (
        data.draw(st.sampled_from([bytes((0x80 | count,)), b"\xde" + count.to_bytes(2, "big")]))
        + shuffled
    )


@settings(max_examples=300)
@given(st.data())
def test_short_way_and_reader_agree(data: st.DataObject) -> None:
    """Any key order, any integer width, unknown keys: the same request by both ways."""
    rtype = data.draw(st.sampled_from([CALL, CALL_16, EVAL]))
    sync = data.draw(uints)
    name = data.draw(st.one_of(st.just("queue.tube.q:put"), st.text(min_size=1, max_size=80)))
    args = msgpack.packb(data.draw(st.lists(values, max_size=18)))
    pairs = [
        uint(0, data.draw(widths)) + uint(rtype, data.draw(widths)),
        uint(1, data.draw(widths)) + uint(sync, data.draw(widths)),
    ]
    if data.draw(st.booleans()):
        pairs.append(data.draw(st.sampled_from([b"\x05\x00", b"\x0a\x07", b"\xa1x\x90"])))
    key = 0x27 if rtype == EVAL else 0x22
    body = [bytes((key,)) + msgpack.packb(name)]
    if data.draw(st.booleans()):
        body.append(b"\x21" + args)
    else:
        args = b"\x90"
    if data.draw(st.booleans()):
        body.append(b"\x5d\x91\x81\x01\x02")
    raw = map_of(data, pairs) + map_of(data, body)
    expected = (sync, rtype, name.encode(), args)
    assert read_packet(raw) == expected
    framed = length_of(data, len(raw)) + raw
    assert RequestDecoder(LIMIT).feed(framed * 3) == [expected] * 3


@settings(max_examples=300)
@given(
    st.sampled_from([raw for _, raw, _ in GOLDEN_REQUESTS if len(raw) < 80]),
    st.integers(0, 200),
    st.integers(0, 255),
)
def test_one_changed_byte_harms_nobody_else(raw: bytes, at: int, byte: int) -> None:
    """A damaged packet is read by both ways alike, or the arguments are to blame later."""
    at = at % len(raw)
    damaged = raw[:at] + bytes((byte,)) + raw[at + 1 :]
    after = packet(b"\x82\x00\x40\x01\x07")
    decoder = RequestDecoder(LIMIT)
    found = decoder.feed(raw + damaged + after)
    if decoder.lost is not None or decoder.pending or at < 5:
        return
    assert plainly(found[-1]) == (7, PING, {}, None)
    read = read_packet(damaged[5:] if damaged[0] == 0xCE else damaged[1:])
    if found[1][1] == MALFORMED or read[1] != MALFORMED:
        # As text: the byte may have made a NaN, which equals nothing, itself included.
        assert repr(plainly(found[1])) == repr(plainly(read))
    else:
        assert found[1][1] in (CALL, CALL_16, EVAL)


def test_names_invented_by_a_client_do_not_pile_up() -> None:
    decoder = RequestDecoder(LIMIT)
    for number in range(frames._CACHED_MAX + 50):
        name = f"f{number}".encode()
        raw = b"\x82\x00\x0a\x01\x05\x82\x22" + msgpack.packb(name.decode()) + b"\x21\x90"
        assert decoder.feed(packet(raw)) == [(5, CALL, name, b"\x90")]
    assert len(frames._CALLS) <= frames._CACHED_MAX


# -- malformed input -------------------------------------------------------------------------------

CALL_HEAD = b"\x82\x00\x0a\x01\x05"
ACK = CALL_HEAD + b"\x82\x22\xa1f\x21\x90"


@pytest.mark.parametrize(
    ("body", "sync", "code"),
    [
        (b"\xc1", 0, 20),
        (b"\x90", 0, 20),
        (b"\x82\x00\x0a", 0, 20),
        (b"\x81\x01\x05", 5, 20),  # no type
        (b"\x82\x00\xa1x\x01\x05", 5, 20),  # type is a string
        (b"\x82\x00\x0a\x01\xa1x", 0, 20),  # sync is a string
        (b"\x82\x00\x0a\x01\xff\x80", 0, 20),  # sync below 0
        (b"\x82\x00\x0a\x01\xc3\x80", 0, 20),  # sync is true
        (CALL_HEAD + b"\x90", 5, 20),
        (CALL_HEAD + b"\xc1", 5, 20),
        (CALL_HEAD + b"\x81\x22", 5, 20),
        (CALL_HEAD, 5, 69),
        (CALL_HEAD + b"\x80", 5, 69),
        (CALL_HEAD + b"\x81\x21\x90", 5, 69),
        (b"\x82\x00\x08\x01\x05\x81\x22\xa1f", 5, 69),
        (CALL_HEAD + b"\x81\x22\x07", 5, 20),  # name is a number
        (CALL_HEAD + b"\x81\x22\xc4\x01f", 5, 20),  # name is bin
        (CALL_HEAD + b"\x82\x22\xa1f\x21\x07", 5, 20),  # arguments are a number
        (CALL_HEAD + b"\x82\x22\xa1f\x21\x80", 5, 20),  # arguments are a map
        (CALL_HEAD + b"\x82\x22\xa1f\x21", 5, 20),
        (CALL_HEAD + b"\x81\x22\xa1f\x07", 5, 20),  # something after the body
        (b"\x82\x00\x40\x01\x05\x90", 5, 20),
        (b"\x82\x00\x01\x01\x05\x81\x10", 5, 20),
        (b"\x82\x00\x01\x01\x05\x81\x20" + b"\x91" * 500 + b"\x90", 5, 20),  # deep
        (b"\x82\x00\x01\x01\x05\x81\x81\x01\x02\x03", 5, 20),  # a map as key
    ],
)
def test_bad_packet_in_a_good_frame(body: bytes, sync: int, code: int) -> None:
    decoder = RequestDecoder(LIMIT)
    good = (5, CALL, b"f", b"\x90")
    found = decoder.feed(packet(ACK) + packet(body) + packet(ACK))
    assert found[0] == found[2] == good
    assert (found[1][:2], found[1][2].code, found[1][3]) == ((sync, MALFORMED), code, None)
    assert decoder.lost is None


@pytest.mark.parametrize(
    "length",
    [
        b"\xc0",
        b"\xc1",
        b"\xff",
        b"\xd0\x05",
        b"\xa1x",
        b"\x90",
        b"\x00",
        b"\xce\x00\x00\x00\x00",
        b"\xce\x00\x10\x00\x01",
        b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
    ],
)
def test_framing_lost(length: bytes) -> None:
    """A length that is none, is 0, or is over the limit: what came before counts, no more comes."""
    decoder = RequestDecoder(LIMIT)
    assert decoder.feed(packet(ACK) + length + packet(ACK)) == [(5, CALL, b"f", b"\x90")]
    assert decoder.lost is not None
    assert decoder.lost.code == 20
    assert decoder.pending == 0
    assert decoder.feed(packet(ACK)) == []


def test_largest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    raw = CALL_HEAD + b"\x82\x22\xa1f\x21\x91\xc5\x03\xe8" + bytes(1000)
    assert len(RequestDecoder(len(raw)).feed(packet(raw))) == 1
    decoder = RequestDecoder(len(raw) - 1)
    assert decoder.feed(packet(raw)[:5]) == []
    assert decoder.lost is not None


def test_pending_counts_what_waits() -> None:
    decoder = RequestDecoder(LIMIT)
    raw = packet(ACK)
    assert decoder.feed(raw + raw[:9]) == [(5, CALL, b"f", b"\x90")]
    assert decoder.pending == 9
    assert decoder.feed(raw[9:]) == [(5, CALL, b"f", b"\x90")]
    assert decoder.pending == 0


def test_body_of_other_types() -> None:
    raw = packet(b"\x82\x00\x01\x01\x05\x83\x10\xcd\x01\x19\x23\xa1\xff\x24\xc4\x01\xff")
    (request,) = RequestDecoder(LIMIT).feed(raw)
    assert request == (5, SELECT, {0x10: 281, 0x23: "\udcff", 0x24: b"\xff"}, None)


def test_large_packet_in_small_chunks_is_not_looked_at_each_time() -> None:
    raw = packet(CALL_HEAD + b"\x82\x22\xa1f\x21\x91\xc6\x00\x07\xa1\x20" + bytes(500_000))
    decoder = RequestDecoder(LIMIT)
    for at in range(0, len(raw) - 1000, 1000):
        assert decoder.feed(raw[at : at + 1000]) == []
    (request,) = decoder.feed(raw[decoder.pending :])
    assert request[:3] == (5, CALL, b"f")
    assert len(request[3]) == 500_006
