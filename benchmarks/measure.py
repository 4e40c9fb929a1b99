"""Reading clocks and counters: one timed piece of load, medians, the disk's own speed.

Here: numbers and how they are taken. Must not be here: sockets, servers, goals.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One piece of load: operations done, wall seconds, CPU seconds of server and of client."""

    operations: int
    seconds: float
    server_seconds: float
    client_seconds: float

    @property
    def rate(self) -> float:
        """Operations per second of wall time."""
        return self.operations / self.seconds

    @property
    def server_us(self) -> float:
        """Microseconds of the server's CPU per operation."""
        return 1e6 * self.server_seconds / self.operations

    @property
    def client_us(self) -> float:
        """Microseconds of this process's CPU per operation."""
        return 1e6 * self.client_seconds / self.operations


class Stopwatch:
    """Times what runs between `start` and `stop`, with the server's CPU read by `server_cpu`."""

    def __init__(self, server_cpu: Callable[[], float]) -> None:
        self._server_cpu = server_cpu
        self.start()

    def start(self) -> None:
        """Begin (again) from here."""
        self._server = self._server_cpu()
        self._client = time.process_time()
        self._wall = time.perf_counter()

    def stop(self, operations: int) -> Sample:
        """The time since `start`, spread over this many operations."""
        wall = time.perf_counter() - self._wall
        client = time.process_time() - self._client
        return Sample(operations, wall, self._server_cpu() - self._server, client)


@dataclass(frozen=True, slots=True)
class Median:
    """Medians of several samples of one thing, each figure for itself."""

    rate: float
    server_us: float
    client_us: float
    samples: int


def median(samples: Sequence[Sample]) -> Median:
    """Medians over the runs."""
    return Median(
        statistics.median(sample.rate for sample in samples),
        statistics.median(sample.server_us for sample in samples),
        statistics.median(sample.client_us for sample in samples),
        len(samples),
    )


def fdatasync_seconds(directory: Path, size: int, times: int = 200) -> float:
    """Median seconds of one fdatasync after appending `size` bytes to a file in `directory`."""
    path, block, taken = directory / "fdatasync.probe", os.urandom(size), []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(times):
            os.write(descriptor, block)
            started = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(taken)


class Neighbours:
    """How much of the machine other programs used since this was made: they spoil figures."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def share(self) -> float:
        """Part of all cores' time, 0 to 1. Ask when our own servers have ended."""
        wall = (time.perf_counter() - self._wall) * (os.cpu_count() or 1)
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return min(max(others / wall, 0.0), 1.0)


def _busy_seconds() -> float:
    """CPU seconds of the whole machine since boot, waiting not counted."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def environment() -> dict[str, object]:
    """What a reader needs to know about where the figures come from."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "commit": commit,
        "python": platform.python_version(),
        "kernel": platform.release().partition("-")[0],
        "cpu": model,
        "cores": os.cpu_count(),
    }
