"""Every call, state, ordering rule and error text over a real socket, with stock connectors."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asynctnt
import pytest
from tarantool.error import DatabaseError

from tests.queue15.client15 import HEX, MISSING, Client, Connect

REPLIES = [
    ("put", ("T", 0, 0, 0, 0, "a", {"b": [1, None]}), ["T", "ready", "a", {"b": [1, None]}]),
    ("put", ("T", "0.0", "60", b"60", "-5"), ["T", "ready"]),
    ("put", ("T", 100, 0, 0, 0, "a"), ["T", "delayed", "a"]),
    ("put", ("T", "1e2", 0, 0, 0, 1.5), ["T", "delayed", 1.5]),
    ("put", ("T", -1, -1, -1, -1, b"\xff\x00"), ["T", "ready", b"\xff\x00"]),
    ("urgent", ("T", 0, 0, 0, 0, "a"), ["T", "ready", "a"]),
    ("urgent", ("T", 5, 0, 0, 0, "a"), ["T", "delayed", "a"]),
    ("put_unique", ("T", 0, 0, 0, 0, "a", "b"), ["T", "ready", "a", "b"]),
]


@pytest.mark.parametrize(("name", "args", "reply"), REPLIES)
def test_producers(client: Client, name: str, args: tuple[Any, ...], reply: list[Any]) -> None:
    args = (client.tube, *args[1:])
    for space in (0, "0", b"0", 0.0, "space0"):
        got = client(name, space, *args)
        assert HEX.fullmatch(got[0])
        assert got[1:] == [client.tube, *reply[1:]]


TRANSITIONS = [
    # call, state before, arguments after the id, status in the reply, state afterwards
    ("ack", "taken", (), "taken", None),
    ("release", "taken", (), "ready", "ready"),
    ("release", "taken", (0,), "ready", "ready"),
    ("release", "taken", (-1, -1), "ready", "ready"),
    ("release", "taken", ("50", 0), "delayed", "delayed"),
    ("release", "taken", (50, 60), "delayed", "delayed"),
    ("requeue", "taken", (), "ready", "ready"),
    ("bury", "taken", (), "buried", "buried"),
    ("done", "taken", ("n", 2), "done", "done"),
    ("touch", "taken", (), "taken", "taken"),
    ("dig", "buried", (), "ready", "ready"),
    ("unbury", "buried", (), "ready", "ready"),
    *(("delete", state, (), state, None) for state in ("ready", "delayed", "taken", "buried")),
    ("delete", "done", (), "done", None),
    *(
        ("peek", state, (), state, state)
        for state in ("ready", "delayed", "taken", "buried", "done")
    ),
]


@pytest.mark.parametrize(("name", "state", "args", "status", "after"), TRANSITIONS)
def test_transitions(
    client: Client, name: str, state: str, args: tuple[Any, ...], status: str, after: str | None
) -> None:
    ident = client.in_state(state)
    data = list(args) if name == "done" else ["x"]
    assert client(name, 0, ident, *args) == [ident, client.tube, status, *data]
    left = client("peek", 0, ident)
    assert left == ("! Task not found" if after is None else [ident, client.tube, after, *data])


NEEDED = {
    "ack": "taken", "touch": "taken", "done": "taken", "bury": "taken", "release": "taken",
    "requeue": "taken", "dig": "buried", "unbury": "buried",
}  # fmt: skip


@pytest.mark.parametrize("name", [*NEEDED, "delete", "meta", "peek"])
@pytest.mark.parametrize("ident", [MISSING, "", 1, None, "\udcff"])
def test_task_not_found(client: Client, name: str, ident: Any) -> None:
    if ident == "\udcff":
        ident = b"\xff"
    assert client(name, 0, ident) == "! Task not found"


@pytest.mark.parametrize(("name", "needed"), NEEDED.items())
def test_wrong_state(client: Client, name: str, needed: str) -> None:
    for state in {"ready", "delayed", "taken", "buried", "done"} - {needed}:
        ident = client.in_state(state)
        assert client(name, 0, ident) == f"! Task is not {needed}"
        client("delete", 0, ident)


@pytest.mark.parametrize("name", [name for name, needed in NEEDED.items() if needed == "taken"])
def test_wrong_owner(client: Client, other: Client, name: str) -> None:
    ident = client.in_state("taken")
    assert other(name, 0, ident) == f"! Only consumer that took the task can it {name}"


ERRORS = [
    ("take", (0, "T", -1), "Timeout can't be less then 0"),
    ("take", (0, "T", "soon"), "attempt to compare nil with number"),
    ("put_unique", (0, "T", 0, 0, 0, 0), "Can not put unique task without data"),
    ("put", (0, "T"), "attempt to compare nil with number"),
    ("put", (0, "T", "x", 0, 0, 0), "attempt to compare nil with number"),
    ("put", (0, "T", 0, None, 0, 0), "attempt to compare nil with number"),
    ("put", (0, "T", 0, 0, "", 0), "attempt to compare nil with number"),
    ("put", (0, "T", 0, 0, 0), "attempt to perform arithmetic on local 'pri' (a nil value)"),
    ("put", (0, "T", 0, 0, 0, "nan"), "attempt to perform arithmetic on local 'pri' (a nil value)"),
    ("put", (None, "T", 0, 0, 0, 0), "table index is nil"),
    ("urgent", ("one", "T", 0, 0, 0, 0), "table index is nil"),
    ("put", (), "table index is nil"),
    ("kick", (0, "T", "many"), "attempt to compare nil with number"),
    ("release", (0, MISSING, "x"), "attempt to compare nil with number"),
    ("put", (7, "T", 0, 0, 0, 0), "Space 7 does not exist"),
    ("take", (0, None), "Invalid tube"),
    ("put", (0, [1], 0, 0, 0, 0), "Invalid tube"),
    ("put", (0, "n" * 1001, 0, 0, 0, 0), "Invalid tube"),
    ("statistics", (None, "T"), "table index is nil"),
]


@pytest.mark.parametrize(("name", "args", "text"), ERRORS)
def test_errors_change_nothing(client: Client, name: str, args: tuple[Any, ...], text: str) -> None:
    args = tuple(client.tube if arg == "T" else arg for arg in args)
    assert client(name, *args).startswith(f"! {text}")
    assert client("statistics", 0, client.tube) == []


PRIORITIES = [
    (0, "128"), (30, "98"), (-127, "255"), (-200, "255"), (127, "1"), (128, "0"), (255, "0"),
    ("30", "98"), ("-127.0", "255"),
]  # fmt: skip


@pytest.mark.parametrize(("pri", "stored"), PRIORITIES)
def test_priorities_as_stored(client: Client, pri: Any, stored: str) -> None:
    assert client("meta", 0, client.put(pri=pri))[5] == stored


def test_order(client: Client) -> None:
    for pri, data in ((10, "a"), (30, "b"), (20, "c"), (30, "d"), (0, "e"), (-127, "f")):
        client.put(data, pri=pri)
    client.put("u1", name="urgent")
    client.put("u2", name="urgent", pri=-127)
    client.put("late", name="urgent", delay=1000)
    taken = [client.take()[3] for _ in range(8)]
    assert taken == ["u2", "u1", "b", "d", "c", "a", "e", "f"]
    assert client.take() is None


def test_meta_has_thirteen_fields(client: Client) -> None:
    before = int(time.time() * 1e6)
    ident = client.put("x", ttl=10, ttr="20", pri=30)
    assert client.take()[0] == ident
    meta = client("meta", 0, ident)
    session = client.connection.call("box.session.id").data[0]
    assert meta[:3] == [ident, client.tube, "taken"]
    assert meta[4:7] == ["127", "98", session]
    assert meta[8:12] == [10, 20, 0, 1]
    event, created, now = meta[3], meta[7], meta[12]
    assert before - 1_000_000 < created <= now < before + 60_000_000
    assert event == created + 10_000_000, "the ttl ends before the ttr"
    client("bury", 0, ident)
    client("dig", 0, ident)
    client.take()
    assert client("meta", 0, ident)[10:12] == [2, 2], "cbury counts bury and dig"


def test_ttl_includes_the_delay(client: Client) -> None:
    ident = client.put(delay=7, ttl=10)
    assert client("meta", 0, ident)[8] == 17
    assert client("meta", 0, client.put())[8:10] == [25 * 86_400, 60]


def test_release_with_a_new_ttl_counts_from_now(client: Client) -> None:
    ident = client.put("x", ttl=20)
    client.take()
    client("release", 0, ident, 2, 50)
    assert 52 <= client("meta", 0, ident)[8] < 60


def test_delay_ttr_and_ttl(client: Client, other: Client) -> None:
    start = time.monotonic()
    client.put("x", delay="0.2", ttr=0.2, ttl=0.6)
    task = client.take(5)
    assert 0.2 <= time.monotonic() - start < 2
    assert other.take(5)[:3] == [task[0], client.tube, "taken"], "its ttr came"
    assert client("ack", 0, task[0]) == "! Only consumer that took the task can it ack"
    time.sleep(0.5)
    assert other("ack", 0, task[0]) == "! Task not found"


def test_touch_starts_the_ttr_anew(client: Client) -> None:
    ident = client.put("x", ttr=0.3)
    client.take()
    for _ in range(3):
        time.sleep(0.15)
        assert client("touch", 0, ident)[2] == "taken"
    assert client("ack", 0, ident)[2] == "taken"


def test_waiting_takes_are_served_in_order(dial: Connect, client: Client) -> None:
    waiting = [Client(dial(), client.tube) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        futures = []
        for one in waiting:
            futures.append(pool.submit(one.take, 10))
            time.sleep(0.05)
        for number in range(3):
            client.put(number)
        assert [future.result()[3] for future in futures] == [0, 1, 2]


def test_take_without_a_task(client: Client) -> None:
    start = time.monotonic()
    assert client.take("0.2") is None
    assert 0.2 <= time.monotonic() - start < 2
    assert client.take(0) is None
    assert client("statistics", 0, client.tube)[:2] == [f"space0.{client.tube}.take_timeout", "2"]


def test_disconnect_gives_tasks_back(dial: Connect, client: Client) -> None:
    gone = Client(dial(), client.tube)
    idents = [client.put(number) for number in range(2)]
    assert [gone.take()[0] for _ in idents] == idents
    gone.connection.close()
    assert [client.take(5)[0] for _ in idents] == idents
    flat = client("statistics", 0, client.tube)
    assert flat[flat.index(f"space0.{client.tube}.ready_by_disconnect") + 1] == "2"


def test_kick_and_truncate_count(client: Client) -> None:
    assert client("kick", 0, client.tube) == 0
    idents = [client.in_state("buried") for _ in range(3)]
    assert client("kick", 0, client.tube, 2) == 2
    assert [client("peek", 0, ident)[2] for ident in idents] == ["ready", "ready", "buried"]
    assert client("truncate", 0, client.tube) == 3
    assert client("truncate", 0, client.tube) == 0
    assert client("peek", 0, idents[0]) == "! Task not found"


def test_statistics_rows(client: Client) -> None:
    client.in_state("taken")
    client.put("y", name="urgent")
    flat = client("statistics", "0", client.tube)
    names, values = flat[::2], flat[1::2]
    start = f"space0.{client.tube}."
    assert [name.removeprefix(start) for name in names] == [
        "put", "take", "peek", "urgent", "tasks.total", "tasks.ready", "tasks.delayed",
        "tasks.taken", "tasks.buried", "tasks.done",
    ]  # fmt: skip
    assert values == ["1", "1", "1", "1", "2", "1", "0", "1", "0", "0"]
    assert names[0] in client("statistics", 0)
    assert names[0] in client("statistics")
    assert names[0] in client("statistic")
    assert client("restart_check", 0, client.tube) == "already started"


def test_spaces_by_a_call(client: Client) -> None:
    described = client("create_space", 21, {"ttl": 5, "if_not_exists": True})
    assert (described["name"], described["type"]) == ("space21", "queue15")
    ident = client("put", 21, "x", 0, 0, 0, 0)[0]
    assert client("meta", 21, ident)[8] == 5
    assert client("peek", 0, ident) == "! Task not found"
    assert client("create_space", "x").startswith("! Invalid space: x")
    assert client("create_space", 22, {"max_attempts": 3}) == (
        "! Invalid option max_attempts: not for queue15"
    )
    assert client("create_space", 22, {"meta_pri": "both"}).startswith(
        "! Invalid value of meta_pri"
    )


def test_dialects(dial: Connect, client: Client) -> None:
    new = dial(old=False)
    assert new.call("queue15.put", [0, client.tube, 0, 0, 0, 0, "x"]).data[0][2] == "ready"
    with pytest.raises(DatabaseError, match=r"call queue15\.put, or set dialect: queue15"):
        new.call("queue.put", [0, client.tube, 0, 0, 0, 0, "x"])
    assert new.call("queue.statistics").data[0]["space0"]["calls"]["put"] >= 1
    # The module's own calls are there in the other dialect too, where no name is meant twice.
    assert client.connection.call("queue.stats").data[0]["space0"]
    client.connection.call("queue.create_tube", ["plain", "fifo", {"if_not_exists": True}])
    assert client("statistics", "plain") == (
        "! Tube plain is not a queue15 space: its calls are queue.tube.plain:put and so on"
    )
    with pytest.raises(DatabaseError, match=r"call queue15\.put\(space, tube"):
        new.call("queue.tube.space0:put", ["x"])
    with pytest.raises(DatabaseError, match=r"call queue15\.take\(space, tube"):
        new.call("queue.tube.space0:take", [0])


def test_asynctnt(client: Client, server15: Any) -> None:
    async def run() -> None:
        async with asynctnt.Connection(host="127.0.0.1", port=server15.port15) as conn:
            tube = client.tube
            waiting = asyncio.ensure_future(conn.call("queue.take", [0, tube]))
            await asyncio.sleep(0.05)
            put = await conn.call("queue.put", [0, tube, 0, 0, 0, 0, {"n": 1}])
            task = (await asyncio.wait_for(waiting, 5)).body[0]
            assert task == [put.body[0][0], tube, "taken", {"n": 1}]
            assert (await conn.call("queue.ack", [0, task[0]])).body == [task]
            assert (await conn.call("queue.take", [0, tube, 0])).body == []
            # The old CALL: each value a tuple of its own.
            assert (await conn.call16("queue.kick", [0, tube])).body[0][0] == 0

    asyncio.run(run())
