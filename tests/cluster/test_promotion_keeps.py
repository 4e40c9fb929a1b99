"""Keys, attempts, dead letters, pauses, room and finished steps: after a promotion and a kill."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import tarantool
from cluster_nodes import Member, pair


def caller(member: Member) -> Any:
    """`call("jobs:put", ...)`: what a stock connector gets from this node, texts decoded."""
    client = member.connect(encoding="utf-8")

    def call(name: str, *args: Any) -> Any:
        return client.call(f"queue.tube.{name}", *args).data

    call.client = client  # type: ignore[attr-defined]
    return call


def prepare(member: Member) -> None:
    call = caller(member)
    create = call.client.call
    create("queue.create_tube", "dead", "fifo")
    retried = {"max_attempts": 3, "dead_letter": "dead", "retry_delay": 0, "capacity": 4}
    create("queue.create_tube", "jobs", "fifottl", retried)
    create("queue.create_tube", "held", "utube", {"capacity_bytes": 12})
    assert call("jobs:put", "page", {"key": "order-1", "window": 600}) == [[0, "r", "page"]]
    call("jobs:take", 0)
    assert call("jobs:finish", 0, [["held", "next step", {"utube": "a"}]]) == [[0]]
    assert call("jobs:put", "poison") == [[1, "r", "poison"]]
    for number in (1, 2):
        assert fail(call, f"reason {number}")[1] == "r"
    call("held:pause", "takes")


def fail(call: Any, reason: str) -> Any:
    """Take the only task and give it back; what that answers."""
    (task,) = call("jobs:take", 0)
    return call("jobs:release", task[0], {"reason": reason})[0]


def check(member: Member) -> None:
    """Everything `prepare` left is known here, and works."""
    call = caller(member)
    assert call("jobs:put", "again", {"key": "order-1"}) == [[0, "-", None, True]]
    known = call("jobs:info", 1)[0]
    assert (known["attempts"], known["reason"], known["max_attempts"]) == (2, "reason 2", 3)
    assert call("held:take", 0) == []
    with pytest.raises(tarantool.DatabaseError, match="Tube held is full: 1 tasks of 10 bytes"):
        call("held:put", "xx")
    found = call("held:list", {"state": "ready", "utube": "a"})[0]
    assert found == {"tasks": [[0, "r", "next step"]], "cursor": None}
    assert call("held:bulk", "delete", {"dry_run": True})[0]["count"] == 1


@pytest.mark.parametrize("how", ["switch-over", "killed"])
def test_what_tubes_can_do_survives(tmp_path: Path, how: str) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", "30") as nodes:
        prepare(nodes.a)
        if how == "switch-over":
            nodes.in_step()
            replica = caller(nodes.b)
            assert replica("jobs:info", 1)[0]["attempts"] == 2, "a replica answers what only reads"
            assert len(replica("held:list")[0]["tasks"]) == 1
            with pytest.raises(tarantool.DatabaseError, match="read-only instance"):
                replica("held:bulk", "delete")
            nodes.a.switch_to(nodes.b)
            leader = nodes.b
        else:
            # Part of it in a snapshot, the rest in the log behind it.
            caller(nodes.a).client.call("box.snapshot")
            call = caller(nodes.a)
            call("dead:put", "later", {"key": "order-2"})
            nodes.a.end(signal.SIGKILL)
            nodes.a.start()
            leader = nodes.a
            assert caller(leader)("dead:put", "x", {"key": "order-2"})[0][3] is True
            caller(leader)("dead:truncate")
        check(leader)
        call = caller(leader)
        assert fail(call, "reason 3")[1] == "-"
        letter = call("dead:info", 0)[0]
        assert (letter["from_tube"], letter["from_attempts"]) == ("jobs", 3)
        assert call("dead:redrive") == [1]
        assert call("held:resume") == [{"puts": False, "takes": False}]
        assert call("held:take", 0)[0][2] == "next step"
