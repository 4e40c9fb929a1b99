"""A node as a child process: started on a free loopback port, awaited until ready, stopped.

Here: the process's life and its counters in /proc. Must not be here: what is done with the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from demo.node_process import NodeFailed, NodeProcess

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 8.0
_POLL_SECONDS = 0.002


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class AsyncNodeProcess:
    """One node of Tandem in a process of its own, for programs with an event loop.

    `directory` (made if missing) holds the data directory and the node's log, and outlives the
    process, so that `start` after `stop` or `kill` is a restart. An async context manager.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "node",
        wal_mode: str = "write",
        port: int | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.data = directory / "data"
        self.port = port or free_ports(1)[0]
        self.process = NodeProcess(
            directory / "node.log",
            *("--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data)),
            *("--wal-mode", wal_mode, "--guest", "all"),
            command=command,
        )

    @property
    def pid(self) -> int:
        """Process id of the running node. Raises NodeFailed when it does not run."""
        process = self.process.process
        if process is None or not self.process.alive:
            raise NodeFailed(f"{self.name} is not running{self.process.tail()}")
        return process.pid

    async def start(self) -> float:
        """Start and wait for the line `ready`; returns the seconds that took.

        Raises NodeFailed when the process ends first or takes longer than READY_SECONDS_MAX.
        """
        started = time.monotonic()
        self.process.start(wait=False)
        while not self.process.came(0):
            if time.monotonic() - started > READY_SECONDS_MAX:
                self.process.ready(0)
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    async def stop(self) -> float:
        """Ask the node to end (SIGTERM); returns the seconds it took, kills it when it hangs."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> float:
        """End the node without warning (SIGKILL)."""
        return await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> float:
        process, started = self.process.process, time.monotonic()
        if process is not None:
            if self.process.alive:
                process.send_signal(how)
            late = started + STOP_SECONDS_MAX
            while self.process.alive and time.monotonic() < late:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
            self.process.kill()
        return time.monotonic() - started

    async def __aenter__(self) -> AsyncNodeProcess:
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def cpu_seconds(self) -> float:
        """CPU time (user and system, all threads) the node has used since its start."""
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Resident memory of the node."""
        words = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of any process, from /proc/PID/stat."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
