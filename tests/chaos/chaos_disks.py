"""Stories of disks that fail: system calls of a real node made to fail through strace."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time

from tests.chaos.chaos_cluster import Cluster
from tests.chaos.chaos_scenarios import pause, promote, scenario

WRITES = "write,pwrite64,writev,pwritev,pwritev2"
SYNCS = "fdatasync,fsync"
FSYNC = ("--wal-mode", "fsync")


async def fail_disk(c: Cluster, node: str, calls: str, error: str) -> int:
    """Make those system calls of the node fail on its newest segment; its exit code."""
    strace = shutil.which("strace")
    process = c.nodes[node].process
    assert strace is not None
    assert process is not None
    segment = max((c.nodes[node].data).glob("*.wal"))
    c.note(f"{node}: {error} from {calls} on {segment.name}")
    command = [strace, "-f", "-qq", "-o", "/dev/null", "-p", str(process.pid), "-P", str(segment)]
    command += ["-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    tracer = await asyncio.create_subprocess_exec(*command)
    try:
        return await c.ended(node)
    finally:
        if tracer.returncode is None:
            tracer.terminate()
        await tracer.wait()


async def disk_fails_at_the_master(c: Cluster, calls: str, error: str) -> None:
    since = time.monotonic() - 1
    assert await fail_disk(c, "a", calls, error) == 5
    if c.local:
        c.lost_by("a", since)
    await promote(c, "b")
    await c.served()
    await c.restart("a")
    await c.served()


async def disk_fails_at_the_replica(c: Cluster, calls: str, error: str) -> None:
    assert await fail_disk(c, "b", calls, error) == 5
    await pause(c, 0.2, 0.8)
    await c.restart("b", "--read-only")
    await c.served()


@scenario("local", "pair", short=("local",))
async def disk_full_at_the_master(c: Cluster) -> None:
    await disk_fails_at_the_master(c, WRITES, "ENOSPC")


@scenario("local", "pair")
async def disk_full_at_the_replica(c: Cluster) -> None:
    await disk_fails_at_the_replica(c, WRITES, "ENOSPC")


@scenario("local", "pair", short=("pair",), flags=FSYNC)
async def fsync_error_at_the_master(c: Cluster) -> None:
    await disk_fails_at_the_master(c, SYNCS, "EIO")


@scenario("local", "pair", flags=FSYNC)
async def fsync_error_at_the_replica(c: Cluster) -> None:
    await disk_fails_at_the_replica(c, SYNCS, "EIO")


def lacks(name: str) -> str | None:
    """What a scenario needs and this machine does not have."""
    if not name.startswith(("disk_", "fsync_")):
        return None
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run([strace, "-qq", "-o", "/dev/null", "true"], check=False)
    return None if tried.returncode == 0 else "strace may not trace here"
