"""Arguments of calls: payloads to the byte, options, ids, depth; against the library."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemq.model.errors import QueueError
from tandemq_server.wire.arguments import (
    FallThrough,
    check_nesting,
    first_id,
    plain,
    split_put,
    split_put_many,
    take_timeout,
)

pack = msgpack.packb

PAYLOADS = [
    b"\xc0",
    b"\xc2",
    b"\x07",
    b"\xff",
    b"\xcc\x80",
    b"\xcd\x01\x00",
    b"\xce\x00\x00\x00\x01",  # wider than it need be
    b"\xcf" + bytes(8),
    b"\xd3" + bytes(8),
    b"\xca\x40\x80\x00\x00",
    b"\xcb" + bytes(8),
    b"\xa0",
    b"\xa1x",
    b"\xbf" + b"x" * 31,
    b"\xd9\x05hello",
    b"\xd9\xff" + b"y" * 255,
    b"\xda\x01\x00" + b"z" * 256,
    b"\xdb\x00\x00\x00\x02ab",
    b"\xa2\xff\xfe",  # no utf-8
    b"\xc4\x02\x00\x01",
    b"\xc5\x00\x02\x00\x01",
    b"\xc6\x00\x00\x00\x02\x00\x01",
    b"\x80",
    b"\x90",
    b"\x81\x90\x01",  # an array as key
    b"\x82\xa1a\x01\xa1a\x02",  # the same key twice
    b"\x93\x01\x02\x03",
    b"\xdc\x00\x01\xc0",
    b"\xde\x00\x01\xa1a\xc0",
    b"\xd8\x02" + bytes(16),  # uuid
    b"\xc7\x03\x01abc",  # decimal
    b"\xd7\xff" + bytes(8),  # timestamp
]
OPTIONS: list[tuple[bytes, Any]] = [
    (b"\x80", None),
    (b"\x90", None),
    (b"\xc0", None),
    (b"\xde\x00\x00", None),
    (b"\xdc\x00\x00", None),
    (b"\x81\xa3ttl\x05", {"ttl": 5}),
    (b"\x82\xa3pri\x01\xa5utube\xa1\xff", {"pri": 1, "utube": "\udcff"}),
    (b"\x91\x05", [5]),
    (b"\x05", 5),
    (b"\xc2", False),
    (b"\xa0", ""),
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payload_untouched(payload: bytes) -> None:
    assert split_put(b"\x91" + payload) == (payload, None)
    assert split_put(b"\xdc\x00\x01" + payload) == (payload, None)
    assert split_put(b"\x93" + payload + b"\xc0" + payload) == (payload, None)
    for raw, options in OPTIONS:
        assert split_put(b"\x92" + payload + raw) == (payload, options)
        assert split_put(b"\xdd\x00\x00\x00\x02" + payload + raw) == (payload, options)


def test_put_without_arguments() -> None:
    assert split_put(b"\x90") == (None, None)
    assert split_put(b"\xdc\x00\x00") == (None, None)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_put_malformed(payload: bytes) -> None:
    good = b"\x92" + payload + b"\x81\xa3ttl\x05"
    bad = [good[:cut] for cut in range(len(good))]
    bad += [good + b"\x00", b"\x91" + payload + b"\x80", b"\x92" + payload, b"\x91" + good[1:]]
    bad += [
        b"\x91\xc1",
        b"\x92" + payload + b"\xc1",
        b"\x93" + payload + b"\x80",
        b"\x81" + payload,
    ]
    for raw in bad:
        with pytest.raises(QueueError) as caught:
            split_put(raw)
        assert caught.value.code == 20
        # A reader that met bad bytes must not spoil the next call.
        assert split_put(b"\x92\x81\xa1a\x01\x80") == (b"\x81\xa1a\x01", None)


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_any_bytes_as_put_arguments(raw: bytes) -> None:
    """What the library accepts as an array is accepted, its first item sliced out."""
    reader = msgpack.Unpacker()
    reader.feed(raw)
    try:
        count = reader.read_array_header()
        edges = [reader.tell()]
        for _ in range(count):
            reader.skip()
            edges.append(reader.tell())
        good = edges[-1] == len(raw)
    except (ValueError, msgpack.OutOfData):
        good = False
    if not good:
        with pytest.raises(QueueError):
            split_put(raw)
        return
    try:
        payload, _ = split_put(raw)
    except QueueError:
        assert count > 1  # options that skip over but do not decode
        return
    assert payload == (raw[edges[0] : edges[1]] if count else None)


def test_large_payloads_leave_no_large_buffer() -> None:
    payload = b"\x91" + b"\xc6\x00\x03\x00\x00" + bytes(0x30000)
    assert split_put(b"\x91" + payload) == (payload, None)
    assert split_put(b"\x91\x81\x01\x02") == (b"\x81\x01\x02", None)


# -- put_many --------------------------------------------------------------------------------------


def test_put_many() -> None:
    raw = b"\x91\x93\x91\xa1a\x92\x81\x01\x02\x81\xa3ttl\x05\x92\xc0\x90"
    items = [(b"\xa1a", None), (b"\x81\x01\x02", {"ttl": 5}), (b"\xc0", None)]
    assert split_put_many(raw) == (items, None)
    assert split_put_many(b"\x92" + raw[1:] + b"\x81\xa3pri\x01") == (items, {"pri": 1})
    assert split_put_many(b"\x93" + raw[1:] + b"\x80\x07") == (items, None)
    assert split_put_many(b"\x91\xdc\x00\x01\xdc\x00\x01\x07") == ([(b"\x07", None)], None)
    assert split_put_many(b"\x90") == ([], None)
    assert split_put_many(b"\x91\x90") == ([], None)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", 20),
        (b"\x91", 20),
        (b"\x91\x91", 20),
        (b"\x91\x91\x91", 20),
        (b"\x91\x91\x92\x01", 20),
        (b"\x91\x90\x00", 20),
        (b"\x92\x90\xc1", 20),
        (b"\x92\x90", 20),
        (b"\x91\x05", 1),
        (b"\x91\xc0", 1),
        (b"\x91\x80", 1),
        (b"\x91\x91\x05", 1),
        (b"\x91\x91\x90", 1),
        (b"\x91\x91\x93\x01\x80\x01", 1),
    ],
)
def test_put_many_refused(raw: bytes, code: int) -> None:
    with pytest.raises(QueueError) as caught:
        split_put_many(raw)
    assert caught.value.code == code
    assert split_put_many(b"\x91\x91\x91\x07") == ([(b"\x07", None)], None)


def test_put_many_with_options_that_differ() -> None:
    options = [{"key": f"k{n}", "window": n} for n in range(5)]
    options += [{}, [], None, {"key": "x" * 200}, {"a": [1, {"b": [2]}]}, 7, False]
    items = [[n, one] for n, one in enumerate(options)]
    wanted = [one if one not in ({}, [], None) or one is False else None for one in options]
    found, common = split_put_many(pack([items]))
    assert common is None
    assert found == [(pack(n), one) for n, one in enumerate(wanted)]
    assert [type(one) for _, one in found] == [type(one) for one in wanted]
    deep: object = 1
    for _ in range(70):
        deep = [deep]
    for bad in (b"\x81\x90\x01", pack({"a": deep})):
        raw = b"\x91\x94" + b"".join(b"\x92\x01\x81\xa1k" + pack(n) for n in range(3))
        with pytest.raises(QueueError) as caught:
            split_put_many(raw + b"\x92\x01" + bad)
        assert caught.value.code == 20


def test_put_many_names_the_item() -> None:
    with pytest.raises(QueueError, match="item 2 "):
        split_put_many(b"\x91\x92\x91\x01\x05")


# -- plain, ids, timeouts --------------------------------------------------------------------------


def test_plain() -> None:
    raw = pack([1, "a", b"b", None, {1: [2.5]}, msgpack.ExtType(2, b"x")])
    assert plain(raw) == [1, "a", b"b", None, {1: [2.5]}, msgpack.ExtType(2, b"x")]
    assert plain(b"\x91\xa2\xff\xfe") == ["\udcff\udcfe"]
    assert plain(b"\x90") == []


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x05", b"\x91", b"\x90\x00", b"\x91\x81\x90\x01", b"\x91\xc1"]
)
def test_plain_refused(raw: bytes) -> None:
    with pytest.raises(QueueError) as caught:
        plain(raw)
    assert caught.value.code == 20


def test_plain_does_not_reserve_room_on_a_claim() -> None:
    """Each array claims as many items as a message of its size may: 1000 levels would be a lot."""
    with pytest.raises(QueueError):
        plain(b"\xdd\x00\x01\x00\x00" * 1000 + bytes(65536))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32, 2**64 - 1])
def test_first_id(value: int) -> None:
    assert first_id(pack([value])) == value
    assert first_id(b"\x91\xcf" + value.to_bytes(8, "big")) == value
    if float(value) < 2**64 and int(float(value)) == value:
        assert first_id(pack([float(value)])) == value


@pytest.mark.parametrize(
    "args",
    [
        *([], [None], ["1"], [-1], [1.5], [math.nan], [math.inf], [-1.0], [2.0**64]),
        *([1, {}], [True], [[1]], [-(2**40)]),
    ],
)
def test_first_id_falls_through(args: list[Any]) -> None:
    with pytest.raises(FallThrough):
        first_id(pack(args))


@pytest.mark.parametrize(
    "raw", [b"", b"\x91", b"\x91\xcd\x01", b"\x91\xcd\x01\x02\x03", b"\x91\xcc"]
)
def test_first_id_falls_through_malformed(raw: bytes) -> None:
    with pytest.raises(FallThrough):
        first_id(raw)


@pytest.mark.parametrize(
    "value", [0, 5, 127, 128, 70000, -1, 0.5, -0.5, 1e300, None, "x", True, {}]
)
def test_take_timeout(value: Any) -> None:
    found = take_timeout(pack([value]))
    assert found == value
    assert type(found) is type(value)


def test_take_timeout_other_forms() -> None:
    assert take_timeout(b"\x90") is None
    assert take_timeout(b"\xdc\x00\x00") is None
    assert take_timeout(pack([3, {"token": True}])) == 3
    assert take_timeout(b"\x91\xca\x3f\x00\x00\x00") == 0.5
    for raw in (b"", b"\x91", b"\x91\xcb", b"\x91\x05\x05", b"\x05"):
        with pytest.raises(QueueError):
            take_timeout(raw)


# -- depth -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth_max", [1, 5, 128, 1024])
@pytest.mark.parametrize(
    "opening", [b"\x91", b"\x81\xa1k", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\x01"]
)
def test_nesting_limit_is_exact(depth_max: int, opening: bytes) -> None:
    check_nesting(opening * depth_max + b"\x07", depth_max)
    with pytest.raises(QueueError, match=f"deeper than {depth_max} ") as caught:
        check_nesting(opening * (depth_max + 1) + b"\x07", depth_max)
    assert caught.value.code == 20


def test_nesting_of_wide_and_of_binary_payloads() -> None:
    check_nesting(pack([[1]] * 1000), 2)
    check_nesting(pack(bytes(range(256)) * 100), 1)
    check_nesting(pack([b"\x91" * 5000, {"a": "\u0091" * 500}]), 2)
    with pytest.raises(QueueError):
        check_nesting(pack([[1]] * 1000 + [[[1]]]), 2)
    with pytest.raises(QueueError):
        check_nesting(b"\xc1" + b"\x90" * 50, 5)
