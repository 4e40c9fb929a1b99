"""The node under attack: started fresh for each one, watched from outside while it lasts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.attack.wire import Wire
from tests.ports import free_ports

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))
PASSWORD = "a password of this attack"
READY_SECONDS, END_SECONDS = 60.0, 20.0
#: The goal: others' p99 and the memory, beside what they were before.
P99_MS, MEMORY_TIMES = 50.0, 2.0
#: Where the node waited for a processor for more than this share of the time, others keep the
#: machine busy: then what its loop ran during a call is judged, not what the clock says.
BUSY_SHARE = 0.05
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


class Node:
    """One process of the product."""

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
        self.words = [TANDEMQ, "serve", "--config", str(file)]
        self.log = self.home / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Node:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMQ_")}
        environment["LINK_PASSWORD"] = PASSWORD
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.words, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=self.home
            )
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith(b"ready"):
            raise RuntimeError(f"the node did not start: {self.log.read_text()[-2000:]}")
        return self

    def end(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wire(self, user: str | None = None, wait: float = 10.0) -> Wire:
        return Wire(self.port, user, PASSWORD, wait)

    def resident(self) -> int:
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    def ask(self, path: str, wait: float = 10.0) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=wait) as answer:
            return json.loads(answer.read())

    def role(self) -> tuple[Any, ...]:
        status = self.ask("/v1/status", 60.0)
        return status["state"], status["term"], status["solo"], status["writable"]


@dataclass
class Toll:
    """What an attack cost the others."""

    p99_ms: float = 0.0
    own_p99_ms: float = 0.0
    waited: float = 0.0
    samples: int = 0
    memory_before: int = 0
    memory_most: int = 0
    same_role: bool = True
    errors: list[str] = field(default_factory=list)
    memory_extra: int = 0

    @property
    def memory_times(self) -> float:
        return self.memory_most / self.memory_before

    def broken(self) -> list[str]:
        found = list(self.errors)
        judged = self.own_p99_ms if self.waited > BUSY_SHARE else self.p99_ms
        if judged > P99_MS:
            found.append(f"others' p99 is {judged:.0f} ms")
        if self.memory_most > MEMORY_TIMES * self.memory_before + self.memory_extra:
            found.append(f"memory grew {self.memory_times:.1f} times")
        if not self.same_role:
            found.append("its role changed")
        return found

    def line(self) -> str:
        mib = 1 << 20
        return (
            f"p99 {self.own_p99_ms:.1f} ms of the node's time, {self.p99_ms:.1f} by the clock "
            f"(no processor {self.waited:.0%} of it), memory "
            f"{self.memory_before / mib:.0f} to {self.memory_most / mib:.0f} MiB "
            f"({self.memory_times:.1f}x)"
        )


class Witness:
    """See witness.py."""

    def __init__(self, node: Node) -> None:
        assert node.process is not None
        words = [sys.executable, "-m", "tests.attack.witness", str(node.port)]
        self.process = subprocess.Popen(
            [*words, str(node.process.pid), "witness", PASSWORD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate(b"\n", timeout=120)
        told: dict[str, Any] = json.loads(out)
        return told


@contextlib.contextmanager
def watched(node: Node, quiet_seconds: float, extra_bytes: int = 0) -> Iterator[Toll]:
    """What happens inside is measured, after a quiet while, so that memory has settled."""
    toll = Toll(memory_extra=extra_bytes)
    before = Witness(node)
    time.sleep(quiet_seconds)
    before.end()
    role = node.role()
    toll.memory_before = toll.memory_most = node.resident()
    witness, over = Witness(node), threading.Event()

    def look() -> None:
        while not over.wait(0.02) and node.alive:
            with contextlib.suppress(OSError, IndexError):
                toll.memory_most = max(toll.memory_most, node.resident())

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield toll
    finally:
        over.set()
        looker.join()
        told = witness.end()
        toll.p99_ms, toll.samples = told["p99"], told["count"]
        toll.own_p99_ms, toll.waited = told["own_p99"], told["waited"]
        toll.errors += [f"another client: {error}" for error in told["errors"][:1]]
    if not node.alive:
        toll.errors.append("the node ended")
    elif node.role() != role:
        toll.same_role = False
