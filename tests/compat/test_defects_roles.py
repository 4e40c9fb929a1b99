"""Defects of the original around role changes, as far as one node alone can show them.

The node is switched by `box.cfg{read_only = ...}`, as operators of the original do. What two nodes
do to each other is tested with replication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.compat.compat_client import Raw, Tube, call, eventually, new_tube, refusal
from tests.compat.compat_server import Server

Open = Callable[..., Any]
NIL_CALLS = {
    "put": ("x",), "take": (1,), "ack": (0,), "release": (0,), "bury": (0,), "kick": (1,),
    "delete": (0,), "drop": (),
}  # fmt: skip
EMPTY_CALLS: dict[str, tuple[Any, ...]] = {
    "touch": (0, 1), "truncate": (), "release_all": (), "grant": ("somebody",),
}  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("roles")).start()
    yield started
    assert started.stop() == 0


@pytest.fixture
def conn(node: Server, connect: Open) -> Iterator[Raw]:
    """An operator's connection; the node serves again when the test is over."""
    opened: Raw = connect(node)
    yield opened
    switch(opened, read_only=False)


def switch(conn: Raw, *, read_only: bool) -> None:
    """Change the role and wait until the node has it."""
    call(conn, "box.cfg", {"read_only": read_only})
    wanted = "WAITING" if read_only else "RUNNING"
    eventually(lambda: call(conn, "queue.state") == [wanted])


def test_defect_13_deadlines_survive_two_role_changes(conn: Raw) -> None:
    tubes = [new_tube(conn, driver) for driver in ("limfifottl", "fifottl", "utubettl")]
    for _ in range(2):
        switch(conn, read_only=True)
        switch(conn, read_only=False)
        for tube in tubes:
            tube("put", "x", {"ttl": 0.02})
            eventually(lambda tube=tube: tube.statistics()["tasks"]["total"] == 0)


def test_deadlines_wait_for_a_serving_node(conn: Raw) -> None:
    """What falls due while nobody may write is done when somebody may again."""
    tube = new_tube(conn, "fifottl")
    tube("put", "x", {"ttl": 0.02})
    switch(conn, read_only=True)
    assert conn.silent(0.05)
    assert tube("peek", 0) == [[0, "r", "x"]]
    switch(conn, read_only=False)
    eventually(lambda: tube.statistics()["calls"]["ttl"] == 1)


def test_defect_23_identify_fails_or_works(conn: Raw, node: Server, connect: Open) -> None:
    """On a read-only node it leaves no session behind that exists nowhere else."""
    switch(conn, read_only=True)
    fresh = connect(node)
    for _ in range(2):
        assert refusal(fresh.identify).code == 7
    switch(conn, read_only=False)
    assert connect(node).identify(fresh.identify())


def test_defect_25_waiting_calls_end_with_the_role(conn: Raw, node: Server, connect: Open) -> None:
    """They are told at once, and may wait again where it makes sense."""
    tube = new_tube(conn, "limfifottl", capacity=1)
    taker, putter = connect(node), connect(node)
    taking = tube.of(taker).start("take", 60)
    taker.ping()
    other = new_tube(conn, "limfifottl", capacity=1)
    other("put", "full")
    putting = other.of(putter).start("put", "x", {"timeout": 60})
    putter.ping()
    switch(conn, read_only=True)
    for waiter, waiting in ((taker, taking), (putter, putting)):
        error = refusal(lambda waiter=waiter, waiting=waiting: waiter.answer(waiting))  # type: ignore[misc]
        assert error.code == 7
    switch(conn, read_only=False)
    taking = tube.of(taker).start("take", 60)
    tube("put", "x")
    assert taker.answer(taking) == [[0, "t", "x"]]


def test_defect_26_no_task_for_who_left_during_a_role_change(
    conn: Raw, node: Server, connect: Open
) -> None:
    tube = new_tube(conn, "fifo")
    leaving = connect(node)
    tube.of(leaving).start("take", 0.1)
    leaving.ping()
    switch(conn, read_only=True)
    leaving.close()
    switch(conn, read_only=False)
    tube("put", "x")
    assert conn.silent(0.15)
    assert tube("take", 0) == [[0, "t", "x"]]


@pytest.mark.parametrize("method", [*NIL_CALLS, *EMPTY_CALLS])
def test_defect_31_calls_on_a_read_only_node(conn: Raw, method: str) -> None:
    """An error that names the state; the original returns nil and loses the producer's task."""
    tube = new_tube(conn, "fifottl")
    tube("put", "x")
    tube("take", 0)
    switch(conn, read_only=True)
    error = refusal(lambda: tube(method, *{**NIL_CALLS, **EMPTY_CALLS}[method]))
    assert error.code == 7
    assert error.text.startswith(
        "Can't modify data on a read-only instance - box.cfg.read_only is true"
    )
    assert "WAITING" in error.text
    assert error.frames[0][2] in (358, 3859), "where one connector's fail-over looks"


def test_reading_on_a_read_only_node(conn: Raw) -> None:
    tube = new_tube(conn, "fifo")
    tube("put", "x")
    switch(conn, read_only=True)
    assert tube("peek", 0) == [[0, "r", "x"]]
    assert tube.statistics()["tasks"]["ready"] == 1
    assert call(conn, "queue.tube", tube.name) == [True]
    assert conn.rows(tube.name) == [[0, "r", "x"]]
    (info,) = call(conn, "box.info")
    assert info["ro"] is True
    assert refusal(lambda: call(conn, "queue.create_tube", "never", "fifo")).code == 7


def test_nil_where_it_is_wanted(launch: Open, connect: Open, tmp_path: Any) -> None:
    """compat.read_only_reply: nil brings back what the original answers."""
    path = tmp_path / "nil.yaml"
    path.write_text(yaml.safe_dump({"compat": {"read_only_reply": "nil"}}))
    conn = connect(launch("nil", flags=["--config", str(path)]))
    tube = new_tube(conn, "fifottl")
    switch(conn, read_only=True)
    for method, args in NIL_CALLS.items():
        assert tube(method, *args) == [None], method
    for method, args in EMPTY_CALLS.items():
        assert tube(method, *args) == [], method
    assert call(conn, "queue.create_tube", "never", "fifo") == []


def test_defect_42_a_waiting_take_is_told_at_once(conn: Raw, node: Server, connect: Open) -> None:
    """A take whose tube has a task nobody may take now is told so, not at its timeout."""
    tube = new_tube(conn, "utube")
    tube("put", "x", {"utube": "a"})
    tube("put", "y", {"utube": "a"})
    tube("take", 0)
    waiter = connect(node)
    waiting = tube.of(waiter).start("take", 60)
    waiter.ping()
    switch(conn, read_only=True)
    assert refusal(lambda: waiter.answer(waiting, 2)).code == 7


def test_a_connected_worker_keeps_its_tasks(conn: Raw) -> None:
    """The original takes it for a stranger until it identifies itself again."""
    tube: Tube = new_tube(conn, "fifo")
    tube("put", "x")
    tube("take", 0)
    switch(conn, read_only=True)
    switch(conn, read_only=False)
    assert tube("ack", 0) == [[0, "-", "x"]]
