"""Two nodes of one cluster on loopback, each a process with an admin port.

Here: their flags, their lives, what their admin ports tell. Must not be here: what is done to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from demo.node_process import NodeFailed, NodeProcess
from demo.nodes import AsyncNodeProcess, free_ports
from tandemq_server.admin.client import AdminClient, AdminError, AdminUnreachable

_LOOK_SECONDS = 0.25
_STEP_SECONDS_MAX = 60.0
#: With ack local: how far behind the other node may be when it takes over automatically.
MAX_LOSS_RECORDS = 1000


class Member(AsyncNodeProcess):
    """One node. `seen` is its status when last looked at, None when it did not answer."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        wal_mode: str = "write",
        port: int | None = None,
        admin_port: int | None = None,
    ) -> None:
        super().__init__(directory / name, name=name, wal_mode=wal_mode, port=port)
        self.admin_port = admin_port or free_ports(1)[0]
        self.add_flags("--name", name, "--admin", self.admin)
        self.seen: dict[str, Any] | None = None

    @property
    def admin(self) -> str:
        return f"127.0.0.1:{self.admin_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self.process.alive

    @property
    def leads(self) -> bool:
        """Whether it served when last looked at."""
        return bool(self.seen and self.seen["writable"])

    @property
    def again(self) -> str:
        """The command that starts it once more, for a shell."""
        process = self.process
        return shlex.join([*process.command, process.verb, *process.words])

    def add_flags(self, *words: str) -> None:
        """For the next start."""
        self.process.words += words

    def client(self, timeout_s: float = 30.0) -> AdminClient:
        return AdminClient(self.admin, timeout_s=timeout_s)

    async def look(self) -> dict[str, Any] | None:
        """Its status now."""
        try:
            self.seen = await asyncio.to_thread(self.client(1.0).status)
        except (AdminUnreachable, AdminError):
            self.seen = None
        return self.seen


class Witness(AsyncNodeProcess):
    """The third party: says who may lead, so that nobody has to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "witness", name="the witness")
        words = ("--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data))
        self.process = NodeProcess(directory / "witness" / "node.log", *words, verb="witness")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def flags(self, ack: str) -> list[str]:
        """What its nodes are started with."""
        words = ["failover.arbiter=witness", "failover.cluster=demo"]
        words.append(f"failover.witness.url={self.url}")
        if ack == "local":
            words.append(f"failover.max_loss_records={MAX_LOSS_RECORDS}")
        return [part for word in words for part in ("--set", word)]


async def watch(members: Sequence[Member]) -> None:
    """Keep `seen` fresh, for ever."""
    while True:
        await asyncio.gather(*(member.look() for member in members))
        await asyncio.sleep(_LOOK_SECONDS)


async def until(what: str, reached: Callable[[], bool], members: Sequence[Member]) -> float:
    """Look until `reached()`; the seconds it took. Raises NodeFailed."""
    started = time.monotonic()
    while True:
        await asyncio.gather(*(member.look() for member in members))
        seconds = time.monotonic() - started
        if reached():
            return seconds
        if seconds > _STEP_SECONDS_MAX:
            raise NodeFailed(f"{what}: not within {_STEP_SECONDS_MAX:g} s")
        await asyncio.sleep(0.02)


def in_step(follower: Member, master: Member) -> bool:
    """Whether the follower is fed, in the master's term, and its copy counts for the promise."""
    one, other = follower.seen, master.seen
    if one is None or other is None or not one["term"] or not other["term"]:
        return False
    fed = any(
        peer["connected"] and peer["role"] == "downstream" and peer["lag"]["seconds"] < 1.0
        for peer in other["peers"]
    )
    alone = other["ack"] == "pair" and other["solo"]
    return bool(one["term"]["id"] == other["term"]["id"] and fed and not alone)


def _shared_secret(directory: Path) -> Path:
    """The file both nodes read the password of their links from."""
    directory.mkdir(parents=True, exist_ok=True)
    secret = directory / "link.secret"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(16))
    return secret


def may_take_over(follower: Member, master: Member) -> bool:
    """Whether the register names the follower as the one that may be promoted."""
    told = (master.seen or {}).get("failover") or {}
    return bool(told.get("master") == master.name and told.get("partner") == follower.name)


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    *,
    wal_mode: str = "write",
    ack: str = "pair",
    ttr: float = 15.0,
    ports: Sequence[int | None] = (None, None, None, None),
    witness: bool = False,
) -> AsyncIterator[tuple[Member, Member]]:
    """Nodes a (writable) and b (read-only), started and in step; stopped at the end.

    ports: of a and b for clients, then for their admin APIs; None for any free one. witness:
    with one beside them, so that each takes over from the other by itself; then b may lead in a
    directory that was used before, as the seat says.
    """
    secret = _shared_secret(directory)
    third = Witness(directory) if witness else None
    a = Member(directory, "a", wal_mode=wal_mode, port=ports[0], admin_port=ports[2])
    b = Member(directory, "b", wal_mode=wal_mode, port=ports[1], admin_port=ports[3])
    for one, other in ((a, b), (b, a)):
        one.add_flags("--peer", other.address, "--in-replicaset", "--ttr", f"{ttr:g}")
        one.add_flags("--set", f"replication.ack={ack}", "--set", "replication.user=replicator")
        one.add_flags("--set", f"replication.password_file={secret}")
    b.add_flags("--read-only")
    try:
        if third is not None:
            await third.start()
            a.add_flags(*third.flags(ack))
            b.add_flags(*third.flags(ack))
        await asyncio.gather(a.start(), b.start())
        await until("one follows the other", lambda: in_step(b, a) or in_step(a, b), (a, b))
        if third is not None:
            paired = "whoever leads names the other its partner"
            await until(paired, lambda: may_take_over(b, a) or may_take_over(a, b), (a, b))
        yield a, b
    finally:
        # Whoever leads last: a leader that ends in good order hands over to who is still there.
        await asyncio.gather(a.look(), b.look())
        for member in sorted((a, b), key=lambda member: member.leads):
            await member.stop()
        if third is not None:
            await third.stop()
