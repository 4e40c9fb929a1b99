"""Sessions and ownership: identify, shared sessions, disconnects, waiting consumers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.compat.compat_client import Raw, Tube, call, eventually, new_tube, refusal
from tests.compat.compat_server import Server

Open = Callable[..., Any]


@pytest.fixture
def pair(server: Server, connect: Open) -> tuple[Raw, Raw]:
    return connect(server), connect(server)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that keeps sessions for a while after their last connection went."""
    node = Server(tmp_path_factory.mktemp("keeping")).start()
    yield node
    assert node.stop() == 0


def test_identify(raw: Raw) -> None:
    uuid = raw.identify()
    assert len(uuid.encode("utf-8", "surrogateescape")) == 16
    assert raw.identify() == uuid
    assert raw.identify(uuid) == uuid
    assert raw.call("queue.identify", None) == [uuid]
    as_binary = uuid.encode("utf-8", "surrogateescape")
    assert raw.call("queue.identify", as_binary) == [uuid]


def test_two_connections_of_one_session(pair: tuple[Raw, Raw]) -> None:
    first, second = pair
    tube = new_tube(first, "fifottl")
    uuid = first.identify()
    assert second.identify() != uuid
    assert second.identify(uuid) == uuid
    for number in range(3):
        tube("put", number)
        tube("take", 0)
    assert tube.of(second)("touch", 0, 5) == [[0, "t", 0]]
    assert tube.of(second)("ack", 0) == [[0, "-", 0]]
    assert tube.of(second)("release", 1) == [[1, "r", 1]]
    second.close()
    assert tube("ack", 2) == [[2, "-", 2]], "the session lives on in its other connection"


def test_identify_as_another_session_leaves_the_own_one(pair: tuple[Raw, Raw]) -> None:
    first, second = pair
    tube = new_tube(first, "fifo")
    tube("put", "x")
    tube("take", 0)
    first.identify(second.identify())
    assert tube.statistics()["tasks"]["ready"] == 1
    assert refusal(lambda: tube("ack", 0)).text == "Task was not taken"


def test_session_without_ttr_ends_with_its_connection(pair: tuple[Raw, Raw]) -> None:
    first, second = pair
    uuid = first.identify()
    first.close()
    eventually(lambda: uuid not in [row[0] for row in second.rows("_queue_shared_sessions")])
    assert "is unknown" in refusal(lambda: second.identify(uuid)).text


def test_session_outlives_its_connection(keeping: Server, connect: Open) -> None:
    look, first = connect(keeping), connect(keeping)
    call(look, "queue.cfg", {"ttr": 30})
    tube = new_tube(look, "fifo")
    tube("put", "x")
    uuid = first.identify()
    tube.of(first)("take", 0)
    first.close()
    eventually(lambda: look.rows("_queue_shared_sessions")[0][2] is False)
    assert tube.statistics()["tasks"]["taken"] == 1
    again = connect(keeping)
    assert again.identify(uuid) == uuid
    assert tube.of(again)("ack", 0) == [[0, "-", "x"]]


def test_session_expires(keeping: Server, connect: Open) -> None:
    look, first = connect(keeping), connect(keeping)
    call(look, "queue.cfg", {"ttr": 0.1})
    tube = new_tube(look, "fifo")
    tube("put", "x")
    uuid = first.identify()
    tube.of(first)("take", 0)
    first.close()
    assert tube("take", 5) == [[0, "t", "x"]]
    assert "is unknown" in refusal(lambda: look.identify(uuid)).text


def test_session_outlives_a_restart(launch: Open, connect: Open, tmp_path: Path) -> None:
    """in_replicaset makes ownership durable; the worker comes back and acknowledges."""
    path = tmp_path / "node.yaml"
    path.write_text("queue: {in_replicaset: true, ttr: 60}\n")
    node = launch(flags=["--config", str(path)])
    first = connect(node)
    call(first, "queue.create_tube", "durable", "fifo")
    call(first, "queue.tube.durable:put", "x")
    call(first, "queue.tube.durable:take", 0)
    uuid = first.identify()
    node.restart(hard=True)
    again = connect(node)
    (found,) = call(again, "queue.statistics", "durable")
    assert found["tasks"]["taken"] == 1
    again.identify(uuid)
    assert call(again, "queue.tube.durable:ack", 0) == [[0, "-", "x"]]


def test_restart_releases_what_was_taken(launch: Open, connect: Open) -> None:
    node = launch()
    first = connect(node)
    call(first, "queue.create_tube", "plain", "fifo")
    call(first, "queue.tube.plain:put", "x")
    call(first, "queue.tube.plain:take", 0)
    node.restart(hard=True)
    assert call(connect(node), "queue.tube.plain:take", 0) == [[0, "t", "x"]]


def test_waiting_on_a_busy_connection(raw: Raw) -> None:
    """A waiting take holds up nothing else on its connection; answers come as they are ready."""
    tube = new_tube(raw, "fifo")
    first, second = tube.start("take", 10), tube.start("take", 10)
    raw.ping()
    put = tube.start("put", "x")
    assert raw.answer(put) == [[0, "r", "x"]]
    assert raw.answer(first) == [[0, "t", "x"]]
    assert tube("ack", 0) == [[0, "-", "x"]]
    tube("put", "y")
    assert raw.answer(second) == [[1, "t", "y"]]


def test_waiting_take_times_out(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    assert tube("take", 0.05) == []


@pytest.mark.parametrize("driver", ["fifo", "fifottl", "limfifottl", "utube", "utubettl"])
@pytest.mark.parametrize("event", ["put", "release", "kick", "disconnect", "release_all"])
def test_what_wakes_a_consumer(
    server: Server, connect: Open, raw: Raw, driver: str, event: str
) -> None:
    tube: Tube = new_tube(raw, driver)
    other = connect(server)
    mine = tube.of(other)
    if event != "put":
        tube("put", "x")
        mine("bury" if event == "kick" else "take", 0)
    waiting = tube.start("take", 10)
    assert raw.silent(0.01)
    if event == "disconnect":
        other.close()
    else:
        mine(event, *{"put": ("x",), "release": (0,)}.get(event, ()))
    assert raw.answer(waiting) == [[0, "t", "x"]]


@pytest.mark.parametrize("driver", ["utube", "utubettl"])
@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
@pytest.mark.parametrize("event", ["ack", "delete", "bury", "disconnect"])
def test_what_frees_a_sub_queue(
    server: Server, connect: Open, raw: Raw, driver: str, mode: str, event: str
) -> None:
    tube = new_tube(raw, driver, storage_mode=mode)
    tube("put", "first", {"utube": "a"})
    tube("put", "second", {"utube": "a"})
    other = connect(server)
    tube.of(other)("take", 0)
    waiting = tube.start("take", 10)
    assert raw.silent(0.01)
    if event == "disconnect":
        other.close()
        assert raw.answer(waiting) == [[0, "t", "first"]], "given back to its place"
    else:
        tube.of(other)(event, 0)
        assert raw.answer(waiting) == [[1, "t", "second"]]


def test_sub_queue_names(tube: Callable[..., Tube]) -> None:
    """Numbers, booleans and text of one rendering are one sub-queue; left out and NULL are one."""
    fresh = tube("utube")
    for same in ((1, "1", 1.0), (True, "true"), (None, "nil"), (1.5, "1.5")):
        for value in same:
            fresh("put", str(same), {"utube": value})
    fresh("put", "left out")
    taken = [fresh("take", 0) for _ in range(5)]
    assert taken[4] == []
    assert len({str(task) for task in taken}) == 5
    assert fresh.statistics()["tasks"]["taken"] == 4


def test_shutdown_answers_who_waits(launch: Open, connect: Open) -> None:
    """SIGTERM: watchers are told, waiting takes end with nothing, and the process ends soon."""
    node = launch()
    conn = connect(node)
    tube = new_tube(conn, "fifo")
    for _ in range(2):  # the second one says that the event of the first one was seen
        conn.send(0x4A, {0x57: "box.shutdown"})
        conn.ping()
    assert conn.events == [{0x57: "box.shutdown"}]
    waiting = tube.start("take")
    conn.ping()
    stopping = ThreadPoolExecutor(1).submit(node.stop)
    assert conn.answer(waiting) == []
    if len(conn.events) == 1:
        conn.events.append(conn.read_packet()[2])
    assert conn.events[1] == {0x57: "box.shutdown", 0x58: True}
    assert stopping.result(5) == 0


def test_shutdown_with_a_worker_connected(launch: Open, connect: Open) -> None:
    """An orderly end is no failure of the log, and what the worker holds is given back later."""
    node = launch()
    tube = new_tube(connect(node), "fifo")
    tube("put", "x")
    tube("take", 0)
    assert node.stop() == 0
    log = node.log.read_text()
    assert " error " not in log, log
    node.start()
    assert tube.of(connect(node))("take", 0) == [[0, "t", "x"]]


@pytest.mark.parametrize("driver", ["fifo", "fifottl", "limfifottl", "utube", "utubettl"])
def test_kicked_tasks_come_in_order(raw: Raw, driver: str) -> None:
    """By id, or by priority where there is one."""
    tube = new_tube(raw, driver)
    for number, pri in enumerate((5, 1, 3)):
        tube("put", pri, {"pri": pri, "utube": number})
    for number in (2, 0, 1):
        tube("bury", number)
    tube("kick", 2)
    expected = [1, 3] if driver.endswith("ttl") else [5, 1]
    assert [tube("take", 0)[0][2] for _ in range(2)] == expected
    assert tube("take", 0) == []
