"""Two real nodes and a witness, each a process; puts that never stop, and when they were taken."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import tarantool

from tests.arbiters.arbiter_servers import EtcdCluster, WitnessProcess
from tests.cluster.cluster_nodes import Member, Pair, until


class SeatedPair(Pair):
    """a and b in pair mode; a serves, b is its partner. etcd: keeps the seat, not a witness."""

    def __init__(self, home: Path, *flags: str, etcd: bool = False) -> None:
        super().__init__(home, "--set", "replication.ack=pair", *flags)
        self.witness = WitnessProcess(home / "witness")
        self.etcd = EtcdCluster(home / "etcd", 1) if etcd else None
        seat = {"arbiter": "witness", "cluster": "test", "witness.url": self.witness.url}
        if self.etcd is not None:
            seat = {"arbiter": "etcd", "cluster": "test", "etcd.endpoints": self.etcd.urls[0]}
        for member in (self.a, self.b):
            for key, value in seat.items():
                member.flags += ("--set", f"failover.{key}={value}")

    def start(self) -> SeatedPair:
        (self.etcd or self.witness).start()
        super().start()
        # Both have heard it: b reads the seat after a has written it.
        until(lambda: all(self.seat(member)["partner"] for member in (self.a, self.b)))
        return self

    @staticmethod
    def seat(member: Member) -> dict[str, Any]:
        found: dict[str, Any] = member.status()["failover"]
        return found

    def paired(self, master: Member) -> bool:
        seat = self.seat(master)
        return bool(seat["master"] == master.name and seat["partner"] and seat["stand"] == "paired")

    def stop(self) -> None:
        super().stop()
        if self.etcd is not None:
            self.etcd.__exit__()
        if self.witness.process is not None:
            self.witness.end()


class Putter(threading.Thread):
    """Puts one number after the other at whichever node takes it.

    accepted: (moment, number, node).
    """

    def __init__(self, *members: Member) -> None:
        super().__init__(daemon=True)
        self.members = list(members)
        self.accepted: list[tuple[float, int, str]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            member = self.members[0]
            try:
                client = tarantool.Connection(
                    "127.0.0.1",
                    member.port,
                    fetch_schema=False,
                    socket_timeout=0.5,
                    reconnect_max_attempts=1,
                    reconnect_delay=0.0,
                    connection_timeout=0.5,
                )
            except (tarantool.Error, OSError, Warning):
                # Also the connector's warning that it tries again, which the tests make an error.
                self.members.append(self.members.pop(0))
                time.sleep(0.01)
                continue
            try:
                while not self.ending.is_set():
                    number += 1
                    client.call("queue.tube.jobs:put", [number])
                    self.accepted.append((time.monotonic(), number, member.name))
                    self.ending.wait(0.002)
            except (tarantool.Error, OSError, Warning):
                self.members.append(self.members.pop(0))
            finally:
                client.close()

    def end(self) -> None:
        self.ending.set()
        self.join(5)

    def first_after(self, moment: float, member: Member, seconds: float = 15.0) -> float:
        """How long after a moment that node accepted a put, for the first time since."""

        def found() -> float | None:
            later = [
                at for at, _, name in self.accepted[-9000:] if at > moment and name == member.name
            ]
            return min(later) - moment if later else None

        until(found, seconds)
        took = found()
        assert took is not None
        return took
