"""Microseconds per operation of the wire's hot functions: `python benchmarks/wire_micro.py`.

Best of several rounds on one core; a yardstick for changes here, no substitute for load tests.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

from tandemq.model.errors import failure
from tandemq_server.wire.arguments import check_nesting, first_id, plain, split_put, take_timeout
from tandemq_server.wire.frames import RequestDecoder
from tandemq_server.wire.replies import empty_reply, error_reply, task_reply, values_reply

FRAMES = 200
ROUNDS = 9


def framed(body: bytes, *, short: bool = False) -> bytes:
    size = len(body)
    if short:
        return (bytes((size,)) if size < 0x80 else bytes((0xCC, size))) + body
    return b"\xce" + size.to_bytes(4, "big") + body


def measure(title: str, function: Callable[[], Any], each: int = 1) -> None:
    function()
    number = max(1, 40_000 // each)
    best = min(timeit.repeat(function, number=number, repeat=ROUNDS))
    print(f"{title:44} {best / number / each * 1e6:7.3f} us")


def decoding() -> None:
    payload = b"\xd9\x64" + b"x" * 100
    put = b"\x82\x22\xb0queue.tube.q:put\x21\x92" + payload + b"\x80"
    take = b"\x82\x22\xb1queue.tube.q:take\x21\x91\x00"
    long = b"\x82\x22\xd9\x26queue.tube.email_notifications:release\x21\x92\x05\x80"
    python = b"\x83\x00\x0a\x01\x00\x05\x00"
    cases = {
        "put, asynctnt (sync u16)": framed(b"\x82\x00\x0a\x01\xcd\x12\x34" + put),
        "take, asynctnt (sync fixint)": framed(b"\x82\x00\x0a\x01\x07" + take),
        "put, go-tarantool / PHP (sync u32)": framed(b"\x82\x00\x0a\x01\xce\0\0\1\0" + put),
        "take, Node (CALL_16)": framed(b"\x82\x00\x06\x01\xce\0\0\1\0" + take),
        "put, net.box": framed(b"\x82\x01\xcd\x12\x34\x00\x0a" + put),
        "put, tarantool-python": framed(python + put, short=True),
        "take, tarantool-python": framed(python + take, short=True),
        "release, name of 38 bytes": framed(b"\x82\x00\x0a\x01\x07" + long),
        "PING, asynctnt": framed(b"\x82\x00\x40\x01\x07"),
        "put, unusual header (generic)": framed(b"\x83\x00\x0a\x05\x00\x01\x07" + put),
    }
    for title, raw in cases.items():
        decoder = RequestDecoder(1 << 20)
        measure(f"decode {title}", lambda d=decoder, r=raw * FRAMES: d.feed(r), FRAMES)


def main() -> None:
    decoding()
    payload = b"\xd9\x64" + b"x" * 100
    nested = b"\x82\xa2id\x07\xa4tags\x92\xa1a\xa1b"
    measure("split_put str, {}", lambda: split_put(b"\x92" + payload + b"\x80"))
    measure("split_put str, no options", lambda: split_put(b"\x91" + payload))
    measure("split_put map, {}", lambda: split_put(b"\x92" + nested + b"\x80"))
    measure("split_put str, {ttl}", lambda: split_put(b"\x92" + payload + b"\x81\xa3ttl\x05"))
    measure("check_nesting of 102 bytes", lambda: check_nesting(payload, 64))
    measure("first_id fixint", lambda: first_id(b"\x91\x05"))
    measure("first_id u32", lambda: first_id(b"\x91\xce\x00\x01\x00\x00"))
    measure("first_id u64", lambda: first_id(b"\x91\xcf\0\0\0\0\0\1\0\0"))
    measure("take_timeout 0", lambda: take_timeout(b"\x91\x00"))
    measure("take_timeout double", lambda: take_timeout(b"\x91\xcb\x3f\xe0\0\0\0\0\0\0"))
    measure("plain [id, {}]", lambda: plain(b"\x92\x05\x80"))
    measure("task_reply", lambda: task_reply(70_000, 123_456, "t", payload))
    measure("empty_reply", lambda: empty_reply(70_000))
    measure("values_reply [n]", lambda: values_reply(70_000, [1]))
    error = failure("Task was not taken")
    measure("error_reply", lambda: error_reply(70_000, error))


if __name__ == "__main__":
    main()
