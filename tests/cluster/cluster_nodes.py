"""Two real nodes on loopback with ports that stay theirs over restarts."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tarantool

from demo.node_process import TANDEMQ as TANDEMQ
from demo.node_process import NodeProcess
from tests.ports import free_ports

#: Heartbeats and leases short enough for a test, long enough for a busy machine.
#: How the nodes of a test log in at each other; the variable is set by `Member.start`.
LINK = ("--set", "replication.user=replicator", "--set", "replication.password_env=LINK_PASSWORD")
LINK_ENV = {"LINK_PASSWORD": "the password of the links"}
QUICK = ("--set", "replication.heartbeat=0.2", "--set", "replication.lease=1.5")


def until(what: Callable[[], Any], seconds: float = 15.0, every: float = 0.02) -> Any:
    """The first true value of `what`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        if found := what():
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(every)


class Member(NodeProcess):
    """One node of the cluster; started, killed and started again in the same directory."""

    def __init__(self, home: Path, name: str, port: int, admin: int, peers: list[int]) -> None:
        self.name = name
        self.port = port
        self.admin_port = admin
        #: Where `ask` asks; another one when a proxy stands before the admin port.
        self.ask_port = admin
        self.data = home / name
        self.peers = peers
        super().__init__(home / f"{name}.log")
        self.flags: tuple[str, ...] = ()
        self.clients: list[tarantool.Connection] = []

    def start(self, *flags: str, wait: bool = True) -> Member:
        # Put together anew each time: whom it dials may have changed, a proxy for instance.
        own = ["--name", self.name, "--listen", f"127.0.0.1:{self.port}"]
        own += ["--admin", f"127.0.0.1:{self.admin_port}"]
        own += ["--data-dir", str(self.data), "--guest", "all"]
        for peer in self.peers:
            own += ["--peer", f"127.0.0.1:{peer}"]
        own += LINK if self.peers else ()
        self.env = LINK_ENV | self.env
        return super().start(*own, *self.flags, *flags, wait=wait)

    def connect(self, **options: Any) -> tarantool.Connection:
        """A stock connector; closed with the cluster."""
        options = {"fetch_schema": False, "encoding": None, **options}
        client = tarantool.Connection("127.0.0.1", self.port, **options)
        self.clients.append(client)
        return client

    def ask(self, path: str, body: Any = None, timeout: float = 30.0) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ask_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="GET" if body is None else "PUT" if "read_only" in path else "POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("/v1/status")[1]
        return found

    def role(self, read_only: bool, force: bool = False) -> tuple[int, Any]:
        return self.ask("/v1/read_only", {"read_only": read_only, "force": force})

    def switch_to(self, other: Member) -> dict[str, Any]:
        code, report = self.ask("/v1/switchover", {"to": other.name, "dry_run": False})
        assert code == 200, report
        return dict(report)

    def caught_up_with(self, other: Member) -> bool:
        mine, theirs = self.status(), other.status()
        same = mine["lsn"] == theirs["lsn"] and mine["term"] == theirs["term"]
        return bool(same and mine["durable_lsn"] == mine["lsn"])


class Pair:
    """Nodes a (writable at first) and b."""

    def __init__(self, home: Path, *flags: str) -> None:
        ports = free_ports(4)
        self.a = Member(home, "a", ports[0], ports[2], [ports[1]])
        self.b = Member(home, "b", ports[1], ports[3], [ports[0]])
        for member in (self.a, self.b):
            member.flags = ("--wal-mode", "write", *QUICK, *flags)

    def start(self) -> Pair:
        self.a.start(wait=False)
        self.b.start("--read-only")
        assert self.a.process is not None
        assert self.a.process.stdout is not None
        assert self.a.process.stdout.readline().startswith(b"ready"), self.a.text()
        self.in_step()
        return self

    def in_step(self) -> None:
        until(lambda: self.b.caught_up_with(self.a))

    def stop(self) -> None:
        for member in (self.a, self.b):
            for client in member.clients:
                client.close()
            if member.process is not None:
                member.end()


@contextlib.contextmanager
def pair(home: Path, *flags: str, start: bool = True) -> Iterator[Pair]:
    nodes = Pair(home, *flags)
    try:
        yield nodes.start() if start else nodes
    finally:
        nodes.stop()
