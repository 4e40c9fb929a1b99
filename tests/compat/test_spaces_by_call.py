"""Reading spaces by a call, as the Java connector reads the schema; events of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import EVENT, Raw, Stock, new_tube
from tests.compat.compat_client import refusal as error_of
from tests.compat.compat_server import Server

VSPACE, INSERT, REPLACE, DELETE, WATCH, WATCH_ONCE = 281, 0x02, 0x03, 0x05, 0x4A, 0x4D
KEY, VALUE = 0x57, 0x58


def refusal(call: Callable[..., Any], *args: Any) -> tuple[int, str]:
    """(code, text) a call is answered with."""
    error = error_of(lambda: call(*args))
    return error.code, error.text


def test_schema_by_call(raw: Raw) -> None:
    """cartridge-driver: `client.space("x")` asks `box.space._vspace:select` and `_vindex`."""
    tube = new_tube(raw, "fifottl")
    by_call = raw.call("box.space._vspace:select")
    assert by_call == [raw.select(VSPACE)]
    ours = [row for row in by_call[0] if row[2] == tube.name]
    assert [row[2] for row in ours] == [tube.name]
    (indexes,) = raw.call("box.space._vindex:select", [ours[0][0]])
    assert {row[0] for row in indexes} == {ours[0][0]}
    assert raw.call("box.space._vspace:get", ours[0][0]) == ours
    assert raw.call("box.space._vspace:get", 999_999) == [None]
    (two,) = raw.call("box.space._vspace:select", [], {"limit": 2, "iterator": "ALL"})
    assert two == by_call[0][:2]
    assert raw.call("box.space._vspace:count") == [len(by_call[0])]


def test_rows_of_a_tube_by_call(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    for data in ("a", {"b": 1}):
        tube("put", data)
    prefix = f"box.space.{tube.name}"
    assert raw.call(f"{prefix}:len") == [2]
    assert raw.call(f"{prefix}:count") == [2]
    assert raw.call(f"{prefix}:count", 1) == [1]
    assert raw.call(f"{prefix}:get", 1) == [[1, "r", {"b": 1}]]
    assert raw.call(f"{prefix}:get", 5) == [None]
    assert raw.call(f"{prefix}:select", [0]) == [[[0, "r", "a"]]]
    assert raw.call_16(f"{prefix}:select") == [[0, "r", "a"], [1, "r", {"b": 1}]]
    assert refusal(raw.call, "box.space.no_such:count")[0] == 33
    assert refusal(raw.call, f"{prefix}:get", "text")[0] == 18
    assert refusal(raw.call, f"{prefix}:select", [], {"iterator": "SIDEWAYS"})[0] == 32
    assert refusal(raw.call, f"{prefix}:update", 0)[0] == 33
    tube("drop")
    assert refusal(raw.call, f"{prefix}:len")[0] == 33


def test_only_those_who_may_read(guarded: Server, connect: Callable[..., Any]) -> None:
    worker = connect(guarded, "tarantool", user="worker", password="worker's secret")
    tube = new_tube(worker, "fifo")
    stranger: Stock = connect(guarded, "tarantool", user="stranger", password="stranger's secret")
    assert refusal(stranger.call, f"box.space.{tube.name}:len")[0] == 42
    # What connectors must know to connect at all: nothing of the tube is in it.
    (rows,) = stranger.call("box.space._vspace:select")
    assert tube.name not in [row[2] for row in rows]
    tube("grant", "stranger")
    assert stranger.call(f"box.space.{tube.name}:len") == [0]


@pytest.mark.parametrize("kind", [INSERT, REPLACE, DELETE])
def test_refused_writes_name_their_space(raw: Raw, kind: int) -> None:
    tube = new_tube(raw, "fifo")
    (number,) = [row[0] for row in raw.select(VSPACE) if row[2] == tube.name]
    code, text = refusal(lambda: raw.answer(raw.send(kind, {0x10: number, 0x21: [1], 0x20: [1]})))
    assert (code, text) == (42, f"Write access to space '{tube.name}' is denied for user 'guest'")
    code, text = refusal(lambda: raw.answer(raw.send(kind, {0x10: VSPACE, 0x21: [1]})))
    assert "space '_vspace'" in text
    assert refusal(lambda: raw.answer(raw.send(kind, {0x10: 4242, 0x21: [1]})))[0] == 36


def test_broadcast(raw: Raw, server: Server, connect: Callable[..., Any]) -> None:
    """Whoever watches a key on this node is told its value, and asks once for it later."""
    watcher = connect(server)
    watcher.send(WATCH, {KEY: "weather"})
    assert watcher.read_packet()[2] == {KEY: "weather"}
    watcher.send(WATCH, {KEY: "weather"})
    assert raw.call("box.broadcast", "weather", {"rain": [1, 2]}) == []
    code, _sync, body, _ = watcher.read_packet()
    assert (code, body) == (EVENT, {KEY: "weather", VALUE: {"rain": [1, 2]}})
    assert raw.answer(raw.send(WATCH_ONCE, {KEY: "weather"})) == [{"rain": [1, 2]}]
    raw.call("box.broadcast", "weather")
    assert raw.answer(raw.send(WATCH_ONCE, {KEY: "weather"})) == []
    assert "reserved" in refusal(raw.call, "box.broadcast", "box.status", 1)[1]
    assert refusal(raw.call, "box.broadcast", 7, 1)[0] == 1
    assert refusal(raw.call, "box.broadcast", "big", "x" * 100_000)[0] == 1
