"""Keys, headers, attempts, dead letters, pauses, room, steps, bulk: a switch-over and a kill.

One pair for all of them: what was begun on the first node goes on on the second one, and once more
on that one after kill -9, part of it out of a snapshot and the rest out of the log behind it.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tests.cluster.cluster_nodes import Member, pair

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "rojo=00f067aa0ba902b7",
}


def caller(member: Member, encoding: str | None = "utf-8") -> Any:
    """`call("jobs:put", ...)`: what a stock connector gets from this node, texts decoded."""
    client = member.connect(encoding=encoding)

    def call(name: str, *args: Any) -> Any:
        return client.call(f"queue.tube.{name}", list(args)).data

    call.client = client  # type: ignore[attr-defined]
    return call


def refused(text: str) -> Any:
    return pytest.raises(tarantool.DatabaseError, match=text)


def prepare(member: Member) -> tuple[Any, int]:
    """Something unfinished of everything; the session that holds a task, and the task's token."""
    call = caller(member)
    create = call.client.call
    create("queue.create_tube", "dead", "fifo")
    retried = {"max_attempts": 3, "dead_letter": "dead", "retry_delay": 0, "capacity": 4}
    create("queue.create_tube", "jobs", "fifottl", retried)
    create("queue.create_tube", "held", "utube", {"capacity_bytes": 12})
    create("queue.create_tube", "narrow", "fifo", {"capacity": 1, "overflow": "wait"})
    create("queue.create_tube", "many", "fifottl")
    # keys, and a finished step
    assert call("jobs:put", "page", {"key": "order-1", "window": 600}) == [[0, "r", "page"]]
    call("jobs:take", 0)
    assert call("jobs:finish", 0, [["held", "next step", {"utube": "a"}]]) == [[0]]
    # attempts, headers
    with refused("Invalid header traceparent: 'nonsense'"):
        call("jobs:put", "poison", {"headers": {"traceparent": "nonsense"}})
    assert call("jobs:put", "poison", {"headers": TRACE}) == [[1, "r", "poison"]]
    for number in (1, 2):
        assert fail(call, f"reason {number}")[1] == "r"
    # pauses, room
    call("held:pause", "takes")
    call("dead:pause", "puts")
    assert call("narrow:put", "first") == [[0, "r", "first"]]
    # a task in hand; others to be changed in bulk
    call("many:put_many", [[n] for n in range(6)])
    worker = caller(member, None)  # session names are bytes
    session = worker.client.call("queue.identify").data[0]
    ((_, _, _, token),) = worker("many:take", 0, {"token": True})
    assert call("many:bury", 5) == [[5, "!", 5]]
    return session, token


def fail(call: Any, reason: str) -> Any:
    """Take the only task and give it back; what that answers."""
    (task,) = call("jobs:take", 0)
    return call("jobs:release", task[0], {"reason": reason})[0]


def check(member: Member) -> None:
    """Everything `prepare` left is known here, and works."""
    call = caller(member)
    assert call("jobs:put", "again", {"key": "order-1"}) == [[0, "-", None, True]]
    assert call("held:take", 0) == []
    with refused("Tube held is full: 1 tasks of 10 bytes"):
        call("held:put", "xx")
    with refused("Puts into tube dead are paused"):
        call("dead:put", "by hand")
    assert call("narrow:put", "second", {"timeout": 0}) in ([], [None])
    found = call("held:list", {"state": "ready", "utube": "a"})[0]
    assert found == {"tasks": [[0, "r", "next step"]], "cursor": None}
    assert call("held:bulk", "delete", {"dry_run": True})[0]["count"] == 1


def what_a_replica_answers(member: Member) -> None:
    replica = caller(member)
    assert replica("jobs:info", 1)[0]["attempts"] == 2, "it answers what only reads"
    assert len(replica("held:list")[0]["tasks"]) == 1
    for call in (("held:bulk", "delete"), ("held:resume",), ("dead:redrive",)):
        with refused("read-only instance"):
            replica(*call)


def after_the_switch_over(member: Member, session: Any, token: int) -> None:
    call = caller(member)
    known = call("jobs:info", 1)[0]
    assert (known["attempts"], known["reason"], known["max_attempts"]) == (2, "reason 2", 3)
    assert known["headers"] == TRACE
    # The third failure makes it a dead letter, into a tube whose puts are paused.
    assert fail(call, "reason 3")[1] == "-"
    # Whoever held a task finishes it here, by its token, into the tube it came from and another.
    worker = caller(member, None)
    worker.client.call("queue.identify", [session])
    step = [["many", "after"], ["jobs", "later", {"key": "order-2"}]]
    with refused("Task was not taken"):
        worker("many:finish", 0, step, {"token": token - 1})
    assert worker("many:finish", 0, step, {"token": token}) == [[6, 2]]
    assert call("many:bulk", "kick", {"limit": 1}) == [{"count": 1, "cursor": None}]
    call.client.call("box.snapshot")
    assert call("many:bulk", "move", {"to": "jobs", "limit": 1})[0]["count"] == 1


def after_the_kill(member: Member) -> None:
    call = caller(member)
    # In exactly one place: what moved before the snapshot and what moved behind it.
    letter = call("dead:info", 0)[0]
    assert (letter["from_tube"], letter["from_attempts"]) == ("jobs", 3)
    assert letter["headers"] == TRACE
    assert [task[2] for task in call("jobs:list")[0]["tasks"]] == ["later", 1]
    assert [task[2] for task in call("many:list")[0]["tasks"]] == [2, 3, 4, 5, "after"]
    assert call("many:list", {"state": "buried"})[0]["tasks"] == []
    assert call("jobs:put", "once more", {"key": "order-2"})[0][0] == 2
    assert call("dead:redrive") == [1]
    assert call("jobs:info", 4)[0]["attempts"] == 0
    assert call("jobs:bulk", "delete", {"limit": 2})[0]["count"] == 2
    assert call("jobs:take", 0)[0] == [4, "t", "poison"], "the usual reply has no headers"
    call("jobs:release", 4)
    assert call("jobs:take", 0, {"info": True})[0][3]["headers"] == TRACE
    assert call("many:bulk", "delete", {"older_than": 0})[0]["count"] == 5
    assert call("held:resume") == [{"puts": False, "takes": False}]
    assert call("held:take", 0)[0][2] == "next step"
    assert call("dead:resume", "puts") == [{"puts": False, "takes": False}]
    assert call("dead:put", "by hand")[0][1] == "r"
    # Who waits for room gets it when there is some.
    told: list[Any] = []
    waiting = caller(member)
    thread = threading.Thread(
        target=lambda: told.extend(waiting("narrow:put", "second", {"timeout": 30}))
    )
    thread.start()
    assert call("narrow:take", 0)[0][2] == "first"
    call("narrow:ack", 0)
    thread.join(30)
    assert told == [[1, "r", "second"]]


def test_what_tubes_can_do_survives_a_switch_over_and_a_kill(tmp_path: Path) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", "30") as nodes:
        session, token = prepare(nodes.a)
        nodes.in_step()
        what_a_replica_answers(nodes.b)
        nodes.a.switch_to(nodes.b)
        check(nodes.b)
        after_the_switch_over(nodes.b, session, token)
        check(nodes.b)
        nodes.b.end(signal.SIGKILL)
        nodes.b.start()
        check(nodes.b)
        after_the_kill(nodes.b)
