"""Two nodes of one cluster on loopback, each a process with an admin port.

Here: their flags, their lives, what their admin ports tell. Must not be here: what is done to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from node.admin.client import AdminClient, AdminError, AdminUnreachable
from node.demo.nodes import NodeFailed, NodeProcess, free_port

_LOOK_SECONDS = 0.25
_STEP_SECONDS_MAX = 60.0


class Member(NodeProcess):
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
        super().__init__(directory / name, name=name, wal_mode=wal_mode)
        self.admin_port = admin_port or free_port()
        if port is not None:
            self.port = port
            self._words[self._words.index("--listen") + 1] = f"127.0.0.1:{port}"
        self._words += ["--name", name, "--admin", self.admin]
        self.seen: dict[str, Any] | None = None

    @property
    def admin(self) -> str:
        return f"127.0.0.1:{self.admin_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def again(self) -> str:
        """The command that starts it once more, for a shell."""
        return shlex.join(self._words)

    def add_flags(self, *words: str) -> None:
        """For the next start."""
        self._words += words

    def client(self, timeout_s: float = 30.0) -> AdminClient:
        return AdminClient(self.admin, timeout_s=timeout_s)

    async def look(self) -> dict[str, Any] | None:
        """Its status now."""
        try:
            self.seen = await asyncio.to_thread(self.client(1.0).status)
        except (AdminUnreachable, AdminError):
            self.seen = None
        return self.seen


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


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    *,
    wal_mode: str = "write",
    ack: str = "pair",
    ttr: float = 15.0,
    ports: Sequence[int | None] = (None, None, None, None),
) -> AsyncIterator[tuple[Member, Member]]:
    """Nodes a (writable) and b (read-only), started and in step; stopped at the end.

    ports: of a and b for clients, then for their admin APIs; None for any free one.
    """
    a = Member(directory, "a", wal_mode=wal_mode, port=ports[0], admin_port=ports[2])
    b = Member(directory, "b", wal_mode=wal_mode, port=ports[1], admin_port=ports[3])
    for one, other in ((a, b), (b, a)):
        one.add_flags("--peer", other.address, "--in-replicaset", "--ttr", f"{ttr:g}")
        one.add_flags("--set", f"replication.ack={ack}")
    b.add_flags("--read-only")
    try:
        await asyncio.gather(a.start(), b.start())
        await until("b follows a", lambda: in_step(b, a), (a, b))
        yield a, b
    finally:
        await asyncio.gather(a.stop(), b.stop())
