"""Tasks, and calls that wait, over a switch-over of two real nodes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import tarantool
from tarantool.error import DatabaseError

from tests.cluster.cluster_nodes import Member, pair, until
from tests.xqueue.xqueue_bench import options

TTR = 4
TASK = {"priority": 0, "tube": "a"}


def call(client: tarantool.Connection, name: str, *args: Any) -> Any:
    whole = name if "." in name else f"box.space.q:{name}"
    try:
        return list(client.call(whole, list(args)).data)
    except DatabaseError as error:
        text = error.args[1]
        return f"! {text.decode() if isinstance(text, bytes) else text}"


def take(member: Member, **opts: Any) -> tuple[Any, bytes]:
    """A task in the hand of a session of its own: its key, and the session."""
    client = member.connect()
    session = call(client, "queue.identify")[0]
    return call(client, "take", 0, opts)[0][b"id"], session


class Waiting(threading.Thread):
    """A call that waits."""

    def __init__(self, member: Member, name: str, *args: Any) -> None:
        super().__init__()
        self.client = member.connect(encoding="utf-8")
        self.called = (name, *args)
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        self.answer = call(self.client, *self.called)


def test_a_switch_over_loses_no_task_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", str(TTR)) as nodes:
        first = nodes.a.connect(encoding="utf-8")
        assert call(first, "xqueue.upgrade", "q", options(tube_stats=["a"])) == []
        keys = [call(first, "put", TASK)[0]["id"] for _ in range(4)]
        (kept, session), (lost, _), (late, late_session) = (
            take(nodes.a), take(nodes.a), take(nodes.a, ttr=1),
        )  # fmt: skip
        assert [kept, lost, late] == keys[:3]
        waiting = [
            Waiting(nodes.a, "wait", keys[3], 60),
            Waiting(nodes.a, "put", TASK, {"wait": 60}),
            Waiting(nodes.a, "take", 60, {"tube": "nobody's"}),
        ]
        until(lambda: len(call(first, "queue.statistics", "q")) == 1)
        until(lambda: call(first, "len") == [5])
        nodes.in_step()
        counts = {"R": 2, "T": 3, "W": 0, "B": 0, "Z": 0, "D": 0}
        replica = nodes.b.connect(encoding="utf-8")
        assert call(replica, "stats")[0]["counts"] == counts
        assert call(replica, "stats")[0]["tube"]["a"]["counts"] == counts
        assert "read-only" in call(replica, "take", 0)

        nodes.a.switch_to(nodes.b)

        for thread in waiting:
            thread.join(20)
            assert not thread.is_alive(), thread.called
            assert "read-only instance" in thread.answer
            assert "(queue is in " in thread.answer
        worker, other = nodes.b.connect(), nodes.b.connect()
        assert call(worker, "queue.identify", session) == [session]
        assert call(other, "queue.identify", late_session) == [late_session]
        assert call(other, "ack", kept).startswith(f"! Task {kept}ULL taken by ")
        assert call(worker, "ack", kept)[0][b"status"] == b"T"
        # Its own ttr ran out, though its session is there; the other one's session is not.
        until(lambda: call(replica, "get", late)[0][1] == "R")
        assert "not taken by any" in call(other, "ack", late)
        until(lambda: call(replica, "get", lost)[0][1] == "R")
        assert call(replica, "stats")[0]["counts"] == {**counts, "R": 4, "T": 0}
        got = [call(replica, "take", 0)[0]["id"] for _ in range(4)]
        assert got == sorted(got)
        assert {lost, late, keys[3]} < set(got)
        assert [call(replica, "ack", key)[0]["id"] for key in got] == got
        until(lambda: call(first, "len") == [0])
