"""The node under attack: started fresh for each one, watched from outside while it lasts.

Others' p99 is taken by the clock, of a client in a process of its own. The attacker has one core to
itself, node and client the others. What the scheduler of a busy machine takes is told beside it:
where nodes waited for a processor for more than BUSY_SHARE of the time, the clock less these waits
is judged, as somebody else's load is not the stranger's. Waits of any other kind count in full.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

from demo.node_process import TANDEMQ, NodeProcess
from tests.attack.wire import Wire
from tests.ports import free_ports

PASSWORD = "a password of this attack"
READY_SECONDS, END_SECONDS = 60.0, 20.0
#: The goal: others' p99 and the memory, beside what they were before.
P99_MS, MEMORY_TIMES = 50.0, 2.0
#: Where nodes waited for a processor for more than this share of the time, others keep the machine
#: busy: then the clock less what nodes and client waited for one is judged.
BUSY_SHARE = 0.05
CORES = sorted(os.sched_getaffinity(0))
#: The stranger's core, and those of everybody else; with one core all share it.
STRANGER_CORE, OTHER_CORES = CORES[-1], set(CORES[:-1] or CORES)
USERS = {
    "boss": ["*"],
    "ann": ["queue.tube.jobs:*", "queue.create_tube", "queue.identify", "queue15.space1:*"],
    "bob": ["queue.tube.other:*", "queue.identify"],
    "witness": ["queue.tube.witness:*"],
}


def configuration(**more: Any) -> dict[str, Any]:
    h2 = hashlib.sha1(hashlib.sha1(PASSWORD.encode()).digest()).hexdigest()
    people = [
        {"name": name, "password_hash": {"chap_sha1": h2}, "grants": rights}
        for name, rights in USERS.items()
    ]
    tubes = [{"name": name, "type": "fifo"} for name in ("witness", "jobs", "jobs:secret", "other")]
    return {"users": people, "tubes": tubes, "wal": {"mode": "write"}, "guest": "none", **more}


class Node(NodeProcess):
    """One process of the product. program: what starts it."""

    program: ClassVar[list[str]] = [TANDEMQ]

    def __init__(self, home: Path, name: str = "a", **more: Any) -> None:
        self.home = home / name
        self.home.mkdir(parents=True)
        self.port, self.admin = free_ports(2)
        self.data = self.home / "data"
        file = self.home / "node.yaml"
        own = {
            "name": name,
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin}",
            "data_dir": str(self.data),
        }
        file.write_text(yaml.safe_dump({**configuration(), **own, **more}))
        super().__init__(
            self.home / "log",
            *("--config", str(file)),
            command=self.program,
            env={"LINK_PASSWORD": PASSWORD},
            cwd=self.home,
        )
        #: Of its certificate, where it speaks TLS.
        self.authority: Path | None = None

    def start(self, *flags: str, wait: bool = True) -> Node:
        super().start(*flags, wait=False)
        assert self.process is not None
        os.sched_setaffinity(self.process.pid, OTHER_CORES)
        return self.ready() if wait else self

    def stop(self) -> None:
        """In good order, or else by force."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.end(seconds=END_SECONDS)

    def wire(self, user: str | None = None, wait: float = 10.0, local: str = "") -> Wire:
        return Wire(self.port, user, PASSWORD, wait, local=local)

    def resident(self) -> int:
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def ask(self, path: str, wait: float = 10.0) -> Any:
        where, context = f"http://127.0.0.1:{self.admin}{path}", None
        if self.authority is not None:
            where = where.replace("http", "https", 1)
            context = ssl.create_default_context(cafile=self.authority)
        with urllib.request.urlopen(where, timeout=wait, context=context) as answer:
            return json.loads(answer.read())

    def role(self) -> tuple[Any, ...]:
        status = self.ask("/v1/status", 60.0)
        return status["state"], status["term"], status["solo"], status["writable"]


@dataclass
class Toll:
    """What an attack cost the others."""

    p99_ms: float = 0.0
    #: Of the clock less the waits for a processor.
    net_p99_ms: float = 0.0
    waited: float = 0.0
    calls: int = 0
    samples: int = 0
    memory_before: int = 0
    memory_most: int = 0
    same_role: bool = True
    errors: list[str] = field(default_factory=list)

    @property
    def memory_times(self) -> float:
        return self.memory_most / self.memory_before

    @property
    def judged_ms(self) -> float:
        return self.net_p99_ms if self.waited > BUSY_SHARE else self.p99_ms

    def broken(self) -> list[str]:
        found = list(self.errors)
        if not self.calls:
            found.append("another client was never answered")
        if self.judged_ms > P99_MS:
            found.append(f"others' p99 is {self.judged_ms:.0f} ms")
        if self.memory_most > MEMORY_TIMES * self.memory_before:
            found.append(f"memory grew {self.memory_times:.1f} times")
        if not self.same_role:
            found.append("its role changed")
        return found

    def line(self) -> str:
        mib = 1 << 20
        return (
            f"p99 {self.p99_ms:.1f} ms by the clock, {self.net_p99_ms:.1f} less waits for a "
            f"processor ({self.waited:.0%} of the time), of {self.calls} calls; memory "
            f"{self.memory_before / mib:.0f} to {self.memory_most / mib:.0f} MiB "
            f"({self.memory_times:.1f}x)"
        )


class Witness:
    """See witness.py. `nodes`: those a call waits for, the one that is asked first."""

    def __init__(self, *nodes: Node) -> None:
        pids = ",".join(str(one.process.pid) for one in nodes if one.process is not None)
        words = [sys.executable, "-m", "tests.attack.witness", str(nodes[0].port)]
        self.process = subprocess.Popen(
            [*words, pids, "witness", PASSWORD, str(nodes[0].authority or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.sched_setaffinity(self.process.pid, OTHER_CORES)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate(b"\n", timeout=120)
        told: dict[str, Any] = json.loads(out)
        return told


@contextlib.contextmanager
def watched(node: Node, quiet_seconds: float, *behind: Node) -> Iterator[Toll]:
    """What happens inside is measured, after a quiet while, so that memory has settled.

    behind: nodes that a call of `node` waits for, too.
    """
    toll = Toll()
    before = Witness(node)
    time.sleep(quiet_seconds)
    before.end()
    role = node.role()
    toll.memory_before = toll.memory_most = node.resident()
    witness, over = Witness(node, *behind), threading.Event()

    def look() -> None:
        while not over.wait(0.02) and node.alive:
            with contextlib.suppress(OSError, IndexError):
                toll.memory_most = max(toll.memory_most, node.resident())

    looker = threading.Thread(target=look)
    looker.start()
    os.sched_setaffinity(0, {STRANGER_CORE})
    try:
        yield toll
    finally:
        os.sched_setaffinity(0, CORES)
        over.set()
        looker.join()
        told = witness.end()
        toll.p99_ms, toll.calls = told["p99"], told["count"]
        toll.net_p99_ms, toll.waited = told["net_p99"], told["waited"]
        toll.errors += [f"another client: {error}" for error in told["errors"][:1]]
    if not node.alive:
        toll.errors.append("the node ended")
    elif node.role() != role:
        toll.same_role = False
