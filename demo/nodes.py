"""A node as a child process: started on a free loopback port, awaited until ready, stopped.

Here: the process's life and its counters in /proc. Must not be here: what is done with the node.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 8.0
_POLL_SECONDS = 0.005
_LOG_LINES_SHOWN = 8


class NodeFailed(Exception):
    """The node did not come up or went away; the text names the log and shows its last lines."""


def free_port() -> int:
    """A loopback TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve_command() -> list[str]:
    """The words that start a node from this very installation."""
    script = Path(sys.executable).with_name("tandemq")
    found = str(script) if script.exists() else shutil.which("tandemq")
    return (
        [found, "serve"] if found else [sys.executable, "-m", "tandemq_server.node.main", "serve"]
    )


class NodeProcess:
    """One node of Tandem in a process of its own.

    `directory` (made if missing) holds the data directory and both output files, and outlives the
    process, so that `start` after `stop` or `kill` is a restart. An async context manager.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "node",
        wal_mode: str = "write",
        extra: Sequence[str] = (),
        command: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._words = [
            *(command or serve_command()),
            *("--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data)),
            *("--wal-mode", wal_mode, "--guest", "all", *extra),
        ]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id of the running node. Raises NodeFailed when it does not run."""
        if self._process is None or self._process.returncode is not None:
            raise NodeFailed(f"{self.name} is not running{self._tail()}")
        return self._process.pid

    async def start(self) -> float:
        """Start and wait for the line `ready`; returns the seconds that took.

        Raises NodeFailed when the process ends first or takes longer than READY_SECONDS_MAX.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        out_path, err_path = self.directory / "stdout.log", self.directory / "node.log"
        with out_path.open("wb") as out, err_path.open("ab") as err:
            self._process = await asyncio.create_subprocess_exec(
                *self._words, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err
            )
        while not _is_ready(out_path):
            if self._process.returncode is not None:
                code = self._process.returncode
                raise NodeFailed(f"{self.name} ended with exit code {code}{self._tail()}")
            if time.monotonic() - started > READY_SECONDS_MAX:
                await self.kill()
                raise NodeFailed(
                    f"{self.name} was not ready within {READY_SECONDS_MAX:g} s{self._tail()}"
                )
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    async def stop(self) -> float:
        """Ask the node to end (SIGTERM); returns the seconds it took, kills it when it hangs."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> float:
        """End the node without warning (SIGKILL)."""
        return await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> float:
        process, started = self._process, time.monotonic()
        if process is not None and process.returncode is None:
            process.send_signal(how)
            try:
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        return time.monotonic() - started

    async def __aenter__(self) -> NodeProcess:
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

    def _tail(self) -> str:
        """The last lines of the node's log, as a suffix for an error's text."""
        path = self.directory / "node.log"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        shown = lines[-_LOG_LINES_SHOWN:]
        return f"; {path} ends:\n  " + "\n  ".join(shown) if shown else f"; {path} is empty"


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of any process, from /proc/PID/stat."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_ready(path: Path) -> bool:
    data = path.read_bytes()
    return any(line.startswith(b"ready") for line in data.split(b"\n")[:-1])
