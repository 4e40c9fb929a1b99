"""Listing by cursor and changes in bulk: what is found, in which portions, what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import batches, listing
from tandemq_server.engine.clients import PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text


def jobs(kind: str = "utubettl", count: int = 0, **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", kind, **opts)
    items = [(b"%d" % n, {"utube": f"u{n % 2}"}) for n in range(count)]
    bench.call(batches.put_many, tube, bench.worker(), items)
    return bench, tube


def anybody(_name: str) -> None:
    """Everybody may put everywhere."""


def bulk(bench: Bench, tube: EngineTube, action: str, **opts: Any) -> Any:
    return bench.call(listing.bulk, tube, bench.worker(), action, opts, anybody)


def ids(bench: Bench, tube: EngineTube, **opts: Any) -> list[int]:
    return [row[0] for row in bench.call(listing.page, tube, opts)[0]]


def test_filters_by_state_sub_queue_and_age() -> None:
    bench, tube = jobs(count=4)
    worker = bench.worker()
    bench.pass_time(10)
    bench.call(tube.put, worker, 0, b"young", {"utube": 7})
    bench.call(tube.put, worker, 0, b"late", {"delay": 50})
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.bury, worker, 1)
    assert ids(bench, tube) == [0, 1, 2, 3, 4, 5]
    assert ids(bench, tube, state="taken") == [0]
    assert ids(bench, tube, state="buried") == [1]
    assert ids(bench, tube, state="delayed") == [5]
    assert ids(bench, tube, state="ready", utube="u0") == [2]
    assert ids(bench, tube, utube=7) == [4]
    assert ids(bench, tube, older_than=10) == [0, 1, 2, 3]
    assert ids(bench, tube, younger_than=9.9) == [4, 5]
    assert ids(bench, tube, older_than=10.1) == []
    assert not bench.engine.records


def test_pages_neither_repeat_nor_skip_while_tasks_come_and_go() -> None:
    bench, tube = jobs(count=10)
    seen: list[int] = []
    cursor: int | None = None
    for _ in range(20):
        rows, cursor = bench.call(listing.page, tube, {"limit": 3, "after": cursor})
        seen += [row[0] for row in rows]
        bench.call(tube.delete, bench.worker(), seen[-1])
        if cursor is None:
            break
    assert seen == list(range(10))


def test_a_large_tube_is_looked_through_in_bounded_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "SCAN_ROWS", 10)
    bench, tube = jobs("fifo", count=100)
    for task_id in range(35):
        bench.call(tube.delete, bench.worker(), task_id)
    for task_id in (50, 99):
        bench.call(tube.bury, bench.worker(), task_id)
    assert bench.call(listing.page, tube, {"state": "buried"}) == ([], 44)
    found: list[int] = []
    cursor, calls = None, 0
    while cursor is not None or not calls:
        rows, cursor = bench.call(listing.page, tube, {"state": "buried", "after": cursor})
        found += [row[0] for row in rows]
        calls += 1
    assert found == [50, 99]
    assert calls == 7
    counted, cursor = 0, None
    for _ in range(calls):
        step = bulk(bench, tube, "kick", dry_run=True, after=cursor)
        counted, cursor = counted + step["count"], step["cursor"]
    assert (counted, cursor) == (2, None)


@pytest.mark.parametrize("kind", DRIVERS)
def test_kick_delete_and_move_are_one_record_each(kind: str) -> None:
    bench, tube = jobs(kind, count=6)
    other = bench.create("other", "utubettl")
    worker = bench.worker()
    bench.call(other.take, worker, 5, 60)
    for task_id in (1, 3, 5):
        bench.call(tube.bury, worker, task_id)
    assert bulk(bench, tube, "kick", dry_run=True) == {"count": 3, "cursor": None}
    before = len(bench.log)
    assert bulk(bench, tube, "kick", limit=2) == {"count": 2, "cursor": 3}
    assert [row[1] for row in tube.space.rows.values()] == list("rrrrr!")
    bench.call(tube.take, worker, 0, 0)
    assert bulk(bench, tube, "delete", state="ready", limit=1)["count"] == 1
    assert bulk(bench, tube, "move", to="other", after=1) == {"count": 4, "cursor": None}
    assert len(bench.log) == before + 5, "kick, take, delete, move, and the take that waited"
    assert [(row[0], row[1]) for row in tube.space.rows.values()] == [(0, "t")]
    assert [row[-1] for row in other.space.rows.values()] == [b"2", b"3", b"4", b"5"]
    assert worker.told[0][1][:2] == (0, "t")
    counts = tube.statistics()
    assert (counts["calls"]["kick"], counts["calls"]["delete"], counts["tasks"]["done"]) == (
        2,
        5,
        5,
    )
    assert other.statistics()["calls"]["put"] == 4
    assert_replica_agrees(bench)


def test_taken_tasks_are_left_alone_unless_asked_for() -> None:
    bench, tube = jobs("fifo", count=3)
    worker = bench.worker()
    bench.call(tube.take, worker, 0, 0)
    assert bulk(bench, tube, "delete", dry_run=True)["count"] == 2
    assert bulk(bench, tube, "delete")["count"] == 2
    assert bulk(bench, tube, "delete", state="taken")["count"] == 1
    assert text(bench.call(tube.ack, worker, 0)) == "Task was not taken"
    assert not bench.engine.taken.rows
    assert_replica_agrees(bench)


def test_delayed_tasks_can_be_kicked_and_moved_with_what_is_left() -> None:
    bench, tube = jobs()
    other = bench.create("other", "fifottl")
    worker = bench.worker()
    for _ in range(2):
        bench.call(tube.put, worker, 0, b"x", {"delay": 50})
    bench.pass_time(20)
    assert bulk(bench, tube, "kick")["count"] == 0
    assert bulk(bench, tube, "kick", state="delayed", limit=1)["count"] == 1
    assert [row[1] for row in tube.space.rows.values()] == ["r", "~"]
    assert bulk(bench, tube, "move", to="other", state="delayed")["count"] == 1
    bench.pass_time(29.9)
    assert other.space.rows[0][1] == "~"
    bench.pass_time(0.1)
    assert other.space.rows[0][1] == "r"
    assert_replica_agrees(bench)


def test_room_made_is_given_to_who_waits_and_a_full_target_refuses_all() -> None:
    bench, tube = jobs("limfifottl", count=2, capacity=2)
    small = bench.create("small", "fifo", capacity=1)
    worker = bench.worker()
    assert bench.call(tube.put, worker, 1, b"x", {"timeout": 9}) is PENDING
    assert "No room for 2 tasks" in text(bulk(bench, tube, "move", to="small"))
    assert len(tube.space.rows) == 2
    assert bulk(bench, tube, "move", to="small", limit=1)["count"] == 1
    assert len(small.space.rows) == 1
    assert worker.told[0][0] == 1
    assert_replica_agrees(bench)


def test_a_kick_in_bulk_lets_attempts_begin_anew() -> None:
    bench, tube = jobs("fifo", count=1, max_attempts=1)
    worker = bench.worker()
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0)
    assert tube.notes
    bulk(bench, tube, "kick")
    assert not tube.notes
    assert_replica_agrees(bench)


@pytest.mark.parametrize(
    ("action", "opts", "expected"),
    [
        ("drop", {}, "Invalid action: drop (expected kick, delete, move)"),
        ("kick", {"state": "ready"}, "ready tasks cannot be kicked"),
        ("kick", {"state": "delayed"}, "fifo queue does not support delays"),
        ("move", {"state": "taken", "to": "other"}, "taken tasks cannot be moved"),
        ("move", {}, "Invalid value of to: expected the name of a tube"),
        ("move", {"to": "jobs"}, "Invalid value of to: jobs (expected the name of another tube)"),
        ("delete", {"to": "x"}, "Invalid option to: delete moves nothing"),
        ("delete", {"limit": 10_001}, "Invalid value of limit: 10001 (expected 1 to 10000)"),
        ("delete", {"limit": 0}, "Invalid value of limit: 0"),
        ("delete", {"dry_run": 1}, "Invalid value of dry_run: 1"),
        ("delete", {"state": "done"}, "state: done (expected ready, taken, buried, delayed)"),
        ("delete", {"utube": "x"}, "Invalid option utube: fifo queue has no sub-queues"),
        ("delete", {"older_than": 1}, "fifo queue keeps no time of the put"),
        ("delete", {"older": 1}, "Unknown option older"),
        ("delete", {"after": "x"}, "expected unsigned"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    action: str, opts: dict[str, Any], expected: str
) -> None:
    bench, tube = jobs("fifo", count=2)
    before = len(bench.log)
    assert expected in text(bulk(bench, tube, action, **opts))
    assert len(bench.log) == before


def test_a_move_needs_the_right_to_put() -> None:
    bench, tube = jobs("fifo", count=1)
    bench.create("other", "fifo")

    def nobody(name: str) -> None:
        raise QueueError(42, f"Execute access to {name} is denied")

    refused = bench.call(listing.bulk, tube, bench.worker(), "move", {"to": "other"}, nobody)
    assert "denied" in text(refused)


def test_a_page_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LIST_BYTES", 10)
    bench, tube = jobs("fifo")
    worker = bench.worker()
    for size in (4, 6, 1, 30, 2):
        bench.call(tube.put, worker, 0, b"x" * size)
    pages, cursor = [], None
    while cursor is not None or not pages:
        rows, cursor = bench.call(listing.page, tube, {"after": cursor})
        pages.append([row[0] for row in rows])
    assert pages == [[0, 1], [2], [3], [4]]
