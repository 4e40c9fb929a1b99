"""The original's tables row by row over a socket: events, counters, order, life times, checks."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster.cluster_nodes import until
from tests.queue15.client15 import Client, Connect

STATES = ("ready", "delayed", "taken", "buried", "done")
#: Longer than any test; ttl, ttr and delay in seconds.
TTL, TTR, DELAY = 5000, 300, 900

EVENTS = [
    # state, ttl, ttr, delay: where its event is, seconds from its creation; None: from a take
    ("ready", TTL, TTR, 0, TTL),
    ("delayed", TTL, TTR, DELAY, DELAY),
    ("taken", TTL, TTR, 0, None),
    ("taken", 100, TTR, 0, 100),
    ("buried", TTL, TTR, 0, TTL),
    ("done", TTL, TTR, 0, TTL),
]


def brought_to(client: Client, state: str, ident: str) -> str:
    """A fresh task, the only ready one, to that state."""
    if state in ("taken", "buried", "done"):
        assert client.take()[0] == ident
    if state in ("buried", "done"):
        client("bury" if state == "buried" else "done", 0, ident)
    assert client("peek", 0, ident)[2] == state
    return ident


@pytest.mark.parametrize(("state", "ttl", "ttr", "delay", "event"), EVENTS)
def test_event_of_each_state(
    client: Client, state: str, ttl: int, ttr: int, delay: int, event: int | None
) -> None:
    put = client.put("x", ttl=ttl, ttr=ttr, delay=delay)
    before = client.meta(put)["now"]
    meta = client.meta(brought_to(client, state, put))
    assert (meta["status"], meta["ttl"], meta["ttr"]) == (state, ttl + delay, ttr)
    if event is None:
        assert before <= meta["event"] - ttr * 1_000_000 <= meta["now"]
    else:
        assert meta["event"] - meta["created"] == event * 1_000_000
    assert (meta["cid"] != 0) == (state == "taken")


COUNTED = [
    # call, state before, arguments after the id; its counter
    *((name, "taken", (), name) for name in ("ack", "release", "requeue", "bury", "done", "touch")),
    ("release", "taken", (60,), "release"),
    ("dig", "buried", (), "dig"),
    ("unbury", "buried", (), "dig"),
    *(("delete", state, (), "delete") for state in STATES),
    *(("meta", state, (), "meta") for state in STATES),
]


@pytest.mark.parametrize(("name", "state", "args", "counter"), COUNTED)
def test_each_call_is_counted_once(
    client: Client, name: str, state: str, args: tuple[Any, ...], counter: str
) -> None:
    ident = client.in_state(state)
    before = client.counters()
    reply = client(name, 0, ident, *args)
    assert reply[0] == ident
    after = client.counters()
    changed = {key for key in after if after[key] != before.get(key, 0)}
    assert {key for key in changed if not key.startswith("tasks.")} == {counter}
    assert after[counter] == before.get(counter, 0) + 1


PRODUCED = [
    ("put", 0, "ready", "put"),
    ("put", 60, "delayed", "put"),
    ("urgent", 0, "ready", "urgent"),
    ("urgent", 60, "delayed", "urgent"),
    ("put_unique", 0, "ready", "put"),
    ("put_unique", 60, "delayed", "put"),
]


@pytest.mark.parametrize(("name", "delay", "state", "counter"), PRODUCED)
def test_producers_count_and_begin_in_their_state(
    client: Client, name: str, delay: int, state: str, counter: str
) -> None:
    ident = client.put("x", name=name, delay=delay)
    assert client("peek", 0, ident) == [ident, client.tube, state, "x"]
    counters = client.counters()
    assert (counters.pop(counter), counters.pop("peek"), counters[f"tasks.{state}"]) == (1, 1, 1)
    assert all(key.startswith("tasks.") for key in counters)


def test_ttl_ends_a_task_in_every_state_and_is_counted_by_it(client: Client) -> None:
    for state in ("buried", "done", "taken", "ready"):
        brought_to(client, state, client.put("x", ttl=2))
    client.put("x", delay=1.5, ttl=0.5)
    until(lambda: client.counters()["tasks.total"] == 0, every=0.1)
    counters = client.counters()
    found = {state: counters.get(f"ttl.{state}", 0) for state in STATES}
    # A delay ends before the life of its task does.
    assert found == {"ready": 2, "delayed": 0, "taken": 1, "buried": 1, "done": 1}
    assert counters["ttl.total"] == 5


def drained(client: Client) -> list[Any]:
    return [task[3] for task in iter(client.take, None)]


ORDERS = [
    # priorities of tasks 0, 1, ...; what happens to the first one taken; the order in the end
    ((0, 0, 0), "nothing", [0, 1, 2]),
    ((1, 30, 20), "nothing", [1, 2, 0]),
    ((-200, -127, -127), "nothing", [0, 1, 2]),
    ((127, 128, 255), "nothing", [1, 2, 0]),
    ((0, 0, 0), "release", [0, 1, 2]),
    ((5, 9, 0), "release", [1, 0, 2]),
    ((0, 0, 0), "requeue", [1, 2, 0]),
    ((9, 0, -127), "requeue", [1, 2, 0]),
    ((0, 0, 0), "bury and dig", [0, 1, 2]),
    ((0, 0, 0), "bury and kick", [0, 1, 2]),
    ((5, 9, 0), "disconnect", [1, 0, 2]),
    ((5, 9, 0), "ttr", [1, 0, 2]),
]


@pytest.mark.parametrize(("pris", "event", "order"), ORDERS)
def test_order_and_what_keeps_a_task_in_its_place(
    dial: Connect, client: Client, pris: tuple[int, ...], event: str, order: list[int]
) -> None:
    other = Client(dial(), client.tube)
    for number, pri in enumerate(pris):
        # Of the one that will be taken; long enough to be drained in.
        ttr = 0.7 if event == "ttr" and pri == max(pris) else 0
        client.put(number, pri=pri, ttr=ttr)
    if event != "nothing":
        ident = other.take()[0]
        if event in ("release", "requeue"):
            other(event, 0, ident)
        elif event.startswith("bury"):
            other("bury", 0, ident)
            client(*(("dig", 0, ident) if event == "bury and dig" else ("kick", 0, client.tube)))
        elif event == "disconnect":
            other.connection.close()
        until(lambda: client("peek", 0, ident)[2] == "ready")
    assert drained(client) == order


def test_a_smaller_ipri_beats_any_priority(client: Client) -> None:
    client.put("best", pri=128)
    client.put("urgent", pri=-127, name="urgent")
    client.put("later", pri=128, name="urgent", delay=1000)
    ident = client.put("last", pri=128)
    assert client.meta(ident)["ipri"] == "127"
    assert drained(client) == ["urgent", "best", "last"]


LIVES = [
    # arguments of release; state, ttl from the creation: least and most
    ((), "ready", 50, 50),
    ((0, 0), "ready", 50, 50),
    ((20,), "delayed", 50, 50),
    ((0, 100), "ready", 100, 110),
    ((20, 100), "delayed", 120, 130),
    ((70,), "delayed", 120, 120),
]


@pytest.mark.parametrize(("args", "state", "least", "most"), LIVES)
def test_release_and_the_life_time(
    client: Client, args: tuple[Any, ...], state: str, least: int, most: int
) -> None:
    ident = brought_to(client, "taken", client.put("x", ttl=50))
    assert client("release", 0, ident, *args)[2] == state
    assert least <= client.meta(ident)["ttl"] <= most


DEFAULTS = [
    # delay, ttl, ttr given; ttl and ttr kept
    ((0, 0, 0), (2_160_000, 60)),
    ((-5, -1, -1), (2_160_000, 60)),
    (("0", "0", "0"), (2_160_000, 60)),
    (("3.5", "10", "20"), (13.5, 20)),
    ((3, 0, 0), (2_160_003, 60)),
    ((0, "1e3", 0.25), (1000, 0.25)),
]


@pytest.mark.parametrize(("given", "kept"), DEFAULTS)
def test_defaults_and_numbers_as_text(
    client: Client, given: tuple[Any, ...], kept: tuple[float, float]
) -> None:
    meta = client.meta(client("put", 0, client.tube, *given, 0, "x")[0])
    assert (meta["ttl"], meta["ttr"]) == kept


KICKS = [((), 1), ((None,), 1), ((0,), 0), ((-3,), 0), (("2",), 2), ((2.0,), 2), ((99,), 3)]


@pytest.mark.parametrize(("args", "dug"), KICKS)
def test_kick_counts(client: Client, args: tuple[Any, ...], dug: int) -> None:
    idents = [client.in_state("buried") for _ in range(3)]
    assert client("kick", 0, client.tube, *args) == dug
    states = [client("peek", 0, ident)[2] for ident in idents]
    assert states == ["ready"] * dug + ["buried"] * (3 - dug)
    assert client.counters().get("dig", 0) == dug


@pytest.mark.parametrize("data", [(), ("one",), ("one", 2, {"three": [3]}, None, b"\x00\xff")])
def test_done_replaces_all_fields(client: Client, data: tuple[Any, ...]) -> None:
    ident = client.put("a", "b")
    client.take()
    assert client("done", 0, ident, *data) == [ident, client.tube, "done", *data]
    assert client("peek", 0, ident)[3:] == list(data)


@pytest.mark.parametrize("state", STATES)
def test_put_unique_and_a_task_in_each_state(client: Client, state: str) -> None:
    ident = client.in_state(state)
    found = client("put_unique", 0, client.tube, 0, 0, 0, 0, "x", "more")
    if state == "done":
        assert found[0] != ident
        assert found[1:] == [client.tube, "ready", "x", "more"]
    else:
        assert found == [ident, client.tube, state, "x"]
    assert client.counters()["put"] == (2 if state == "done" else 1)


def test_existence_is_checked_before_state_and_state_before_owner(
    client: Client, other: Client
) -> None:
    for name in ("ack", "release", "requeue", "bury", "done", "touch"):
        ident = client.in_state("taken")
        assert other(name, 0, ident).startswith("! Only consumer")
        client("release", 0, ident, 1000)
        assert other(name, 0, ident) == "! Task is not taken"
        client("delete", 0, ident)
        assert other(name, 0, ident) == "! Task not found"


def test_a_waiting_take_gets_what_a_delay_lets_go(client: Client) -> None:
    client.put("x", delay=0.3)
    begun = time.monotonic()
    assert client.take(10)[3] == "x"
    assert time.monotonic() - begun < 5
    assert client.counters()["take"] == 1
    assert "take_timeout" not in client.counters()


def test_counters_of_takes(client: Client) -> None:
    assert client.take() is None
    client.put("x")
    assert client.take()[3] == "x"
    counters = client.counters()
    assert (counters["take"], counters["take_timeout"]) == (1, 1)
