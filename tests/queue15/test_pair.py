"""queue15 over a change of masters, on two real processes: taken on a, acked or expired on b."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tests.cluster.cluster_nodes import Member, pair, until

#: Seconds that a session may stay away; enough for a slow machine to come back in.
TTR = 5


class Worker:
    """One connection and what it calls in the tube t of space 0; texts are bytes."""

    def __init__(self, member: Member, session: bytes | None = None) -> None:
        self.connection = member.connect(encoding=None)
        self.held = b""
        if session is not None:
            assert self.connection.call("queue.identify", [session]).data == [session]

    def identify(self) -> bytes:
        """The name of a session that may come back on another connection."""
        session: bytes = self.connection.call("queue.identify").data[0]
        return session

    def __call__(self, name: str, *args: Any) -> Any:
        found = self.connection.call(f"queue15.{name}", [0, *args]).data
        return found[0] if found else None

    def counters(self) -> dict[str, int]:
        flat = [part.decode() for part in self("statistics", "t")]
        names = [name.removeprefix("space0.t.") for name in flat[::2]]
        return dict(zip(names, map(int, flat[1::2]), strict=True))


def kill(old: Member, new: Member) -> None:
    """kill -9 of the one that serves; the other one is promoted."""
    old.end(signal.SIGKILL)
    until(lambda: new.role(read_only=False, force=True)[0] == 200)
    until(lambda: new.status()["state"] == "RUNNING")


def prepare(member: Member) -> list[Worker]:
    """Three workers; each of them holds the task of its number."""
    workers = [Worker(member) for _ in range(3)]
    workers[0]("create_space")
    for number, worker in enumerate(workers):
        worker.held = workers[0]("put", "t", 0, 0, 0, 0, number)[0]
        assert worker("take", "t", 0)[0] == worker.held
    return workers


def wait_for_a_task(worker: Worker, said: list[Any]) -> None:
    try:
        said.append(worker("take", "empty", 60))
    except tarantool.Error as error:
        said.append(error.args)


def refused(worker: Worker, name: str, *args: Any) -> tuple[int, str]:
    with pytest.raises(tarantool.DatabaseError) as caught:
        worker(name, *args)
    code, text = caught.value.args[:2]
    return code, text.decode() if isinstance(text, bytes) else text


def test_taken_on_one_node_acked_on_the_next_within_ttr_or_expired(tmp_path: Path) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", f"{TTR}s") as nodes:
        workers = prepare(nodes.a)
        held = [worker.held for worker in workers]
        sessions = [worker.identify() for worker in workers]
        waiting: list[Any] = []
        waiter = threading.Thread(target=wait_for_a_task, args=(Worker(nodes.a), waiting))
        waiter.start()
        nodes.in_step()
        assert refused(Worker(nodes.b), "ack", held[0])[0] == 7, "a replica"

        nodes.a.switch_to(nodes.b)
        until(lambda: nodes.b.status()["state"] == "RUNNING")
        first, second = (Worker(nodes.b, session) for session in sessions[:2])
        stranger = Worker(nodes.b)
        assert [first("peek", ident)[2] for ident in held] == [b"taken"] * 3
        assert refused(stranger, "ack", held[0])[1] == "Only consumer that took the task can it ack"
        assert first("ack", held[0]) == [held[0], b"t", b"taken", 0]
        assert refused(first, "ack", held[0])[1] == "Task not found"
        assert refused(second, "ack", held[0])[1] == "Task not found"
        waiter.join(15)
        assert waiting[0][0] == 7, "who waits is told, not left hanging"

        for worker in workers:
            worker.connection.close()
        until(lambda: nodes.a.caught_up_with(nodes.b))
        kill(nodes.b, nodes.a)
        second, stranger = Worker(nodes.a, sessions[1]), Worker(nodes.a)
        assert second("ack", held[1]) == [held[1], b"t", b"taken", 1]
        # The one that nobody came back for.
        assert stranger("take", "t", 60) == [held[2], b"t", b"taken", 2]
        assert stranger("meta", held[2])[11] == 2, "taken twice"
        assert stranger("ack", held[2])
        counters = stranger.counters()
        assert (counters["tasks.taken"], counters["tasks.total"]) == (0, 0)
