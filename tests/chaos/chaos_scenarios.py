"""What is done to the cluster while clients work, one coroutine a story.

Each begins with a loaded cluster in step, a writable, and ends with faults possibly still there:
`Cluster.finish` heals, settles, drains and judges. Chance comes from `cluster.rng` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.chaos_client import Client
from tests.chaos.chaos_cluster import STRICT, Cluster

Story = Callable[[Cluster], Awaitable[None]]
#: Longer than the lease of a link (tests/cluster: 1.5 s).
SILENT_SECONDS = 2.5
#: Within which the nodes come to what they are waited for; a bound, not a pace.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """flags: of both nodes. short: part of the run that every commit gets."""

    story: Story
    flags: tuple[str, ...]
    short: bool


SCENARIOS: dict[str, Scenario] = {}


def scenario(*modes: str, short: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> object:
    """Register a story under each acknowledgement mode it is told in: local, pair."""

    def register(story: Story) -> Story:
        for mode in modes:
            name = f"{story.__name__}-{mode}"
            both = (*flags, *(STRICT if mode == "pair" else ()))
            SCENARIOS[name] = Scenario(story, both, mode in short)
        return story

    return register


async def pause(cluster: Cluster, low: float, high: float) -> None:
    await asyncio.sleep(cluster.rng.uniform(low, high))


# -- the link between the nodes --------------------------------------------------------------------


@scenario("local", "pair", short=("pair",))
async def replication_cut_and_heal(c: Cluster) -> None:
    for _ in range(2):
        await c.partition()
        await pause(c, 0.3, SILENT_SECONDS)
        await c.heal()
        await c.served()


@scenario("local", "pair")
async def held_back_and_released(c: Cluster) -> None:
    """The partition of real networks: nothing arrives, nothing is closed, later all of it does."""
    for seconds in (0.3, 0.8, SILENT_SECONDS):
        streams = ("upstream", "downstream")
        names = [await c.on("b_from_a", "add", "bandwidth", at, rate=0) for at in streams]
        await asyncio.sleep(seconds)
        if seconds == SILENT_SECONDS:
            # Both ends have given the link up meanwhile.
            await c.heal()
            names = []
        for name in names:
            await c.on("b_from_a", "release", name)
        await c.served()


@scenario("local", "pair", short=("local",))
async def one_way_data_lost(c: Cluster) -> None:
    await c.on("b_from_a", "add", "timeout", "downstream", timeout=0)
    await asyncio.sleep(SILENT_SECONDS)
    await c.heal()
    await c.served()


@scenario("local", "pair", short=("pair",))
async def one_way_confirmations_lost(c: Cluster) -> None:
    await c.on("b_from_a", "add", "timeout", "upstream", timeout=0)
    await asyncio.sleep(SILENT_SECONDS)
    await c.heal()
    await c.served()


async def switch_over(c: Cluster, to: str) -> None:
    """Refused as long as the nodes do not know each other's new role, which takes a round trip."""

    async def done() -> bool:
        code, report = await c.switch(to)
        assert code == 200 or report["type"].endswith(":refused"), report
        return code == 200

    await c.until(done, PATIENCE, f"a switch-over to {to}")


@scenario("local", "pair", short=("pair",))
async def latency_and_jitter_during_flips(c: Cluster) -> None:
    for link in ("a_from_b", "b_from_a"):
        for stream in ("upstream", "downstream"):
            await c.on(link, "add", "latency", stream, latency=80, jitter=60)
    for to in ("b", "a", "b"):
        await switch_over(c, to)
        await c.served()
        await pause(c, 0.1, 0.6)


@scenario("local", "pair", short=("local",))
async def frames_in_slices(c: Cluster) -> None:
    for link in ("a_from_b", "b_from_a"):
        for stream in ("upstream", "downstream"):
            attributes = {"average_size": 7, "size_variation": 6, "delay": 50}
            await c.on(link, "add", "slicer", stream, **attributes)
    await asyncio.sleep(2)
    await switch_over(c, "b")
    await c.served()


@scenario("local", "pair", short=("pair",))
async def frames_torn(c: Cluster) -> None:
    """Every connection between the nodes ends after a number of bytes, mostly in mid-frame."""
    for _ in range(12):
        stream = c.rng.choice(["upstream", "downstream"])
        size = c.rng.randint(1, 3000)
        await c.on("b_from_a", "add", "limit_data", stream, bytes=size)
        await pause(c, 0.1, 0.4)
        await c.heal()
    await c.served()


@scenario("local", short=("local",))
async def starved_with_a_backlog(c: Cluster) -> None:
    before = rss_kib(c, "a")
    await c.on("b_from_a", "add", "bandwidth", "downstream", rate=8)

    async def backlog(client: Client) -> None:
        for _ in range(200):
            await c.load.put(client, "c_fifo", padding=100_000)

    await c.do(backlog)
    status = await c.status("b")
    assert not status["writable"]
    grown = rss_kib(c, "a") - before
    # 20 MB of tasks stay in memory; what waits for the replica must not be there once more.
    c.note(f"a grew by {grown} KiB over a backlog of 20 MB")
    assert grown < 60_000
    await c.heal()
    await c.until(c.alike_nearly, PATIENCE, "the replica catches up")


def rss_kib(c: Cluster, node: str) -> int:
    process = c.nodes[node].process
    assert process is not None
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


# -- clients ---------------------------------------------------------------------------------------


@scenario("local", "pair", short=("local",))
async def clients_cut_in_mid_reply(c: Cluster) -> None:
    for _ in range(12):
        size = c.rng.randint(129, 900)
        await c.on("client_a", "add", "limit_data", "downstream", bytes=size)
        await pause(c, 0.1, 0.3)
        await c.heal()
    await c.served()


@scenario("local", "pair")
async def clients_lose_replies(c: Cluster) -> None:
    """The node does what it is told and nobody hears of it."""
    await c.on("client_a", "add", "timeout", "downstream", timeout=0)
    await asyncio.sleep(3.5)
    await c.heal()
    await c.served()


# -- nodes that die, stop, lead together ----------------------------------------------------------


@scenario("local", "pair", short=("local", "pair"))
async def kill_the_master_and_promote(c: Cluster) -> None:
    await pause(c, 0.2, 0.8)
    since = await c.in_step("a")
    await c.kill("a")
    await promote(c, "b")
    await c.served()
    await pause(c, 0.2, 0.8)
    if c.local:
        c.lost_by("a", since)
    await c.restart("a")
    await c.served()


async def promote(c: Cluster, node: str) -> None:
    """As an operator would who knows that the other is gone: by force where the node wants that,
    and at once in pair mode, where nothing is acknowledged alone without it.
    """
    code, answer = await c.role(node, read_only=False, force=not c.local)
    if code == 409:
        code, answer = await c.role(node, read_only=False, force=True)
    assert code == 200, answer
    status = await c.status(node)
    if status["ack"] == "pair" and not status["solo"]:
        code, answer = await c.ask(node, "/v1/solo", {})
        assert code == 200, answer


@scenario("local", "pair")
async def kill_the_replica(c: Cluster) -> None:
    await c.kill("b")
    await pause(c, 0.2, 1.0)
    await c.restart("b", "--read-only")
    await c.served()


@scenario("local", "pair")
async def stop_the_replica(c: Cluster) -> None:
    c.signal("b", signal.SIGSTOP)
    await asyncio.sleep(SILENT_SECONDS)
    c.signal("b", signal.SIGCONT)
    await c.served()


@scenario("local", "pair")
async def killed_in_mid_flip(c: Cluster) -> None:
    """Either node dies some time during a planned switch-over and is started as configured."""
    for _ in range(3):
        master = await c.until(c.master, PATIENCE, "one writable node")
        since = await c.in_step(master)
        flip = asyncio.create_task(c.switch("b" if master == "a" else "a"))
        await pause(c, 0, 0.12)
        victim = c.rng.choice("ab")
        await c.kill(victim)
        with contextlib.suppress(OSError, http.client.HTTPException):
            await flip
        if c.local:
            c.lost_by(victim, since)
        await c.restart(victim, *(["--read-only"] if victim == "b" else []))
        try:
            await c.until(c.master, 5, "one writable node by itself")
        except AssertionError:
            await promote(c, "b" if victim == "a" else "a")
        await c.served()


@scenario("local", "pair")
async def kill_both(c: Cluster) -> None:
    await asyncio.gather(c.kill("a"), c.kill("b"))
    await c.restart("b", "--read-only")
    await c.restart("a")
    await c.served()


@scenario("local", "pair", short=("pair",))
async def stop_the_master_across_a_promotion(c: Cluster) -> None:
    since = await c.in_step("a")
    c.signal("a", signal.SIGSTOP)
    await pause(c, 0.1, 2.0)
    await promote(c, "b")
    await c.served()
    c.signal("a", signal.SIGCONT)
    await c.until(c.master, PATIENCE, "the old master steps down")
    if c.local:
        c.lost_by("a", since)


@scenario("local", "pair", short=("local",))
async def both_writable_then_heal(c: Cluster) -> None:
    c.load.add_producer("pa", node="a")
    c.load.add_producer("pb", node="b")
    since = await c.in_step("a")
    await c.partition()
    await pause(c, 0.1, SILENT_SECONDS)
    await promote(c, "b")
    await pause(c, 0.5, 1.5)
    await c.heal()
    # Until it hears of the newer term it acknowledges alone, and all of that is rescued.
    await c.until(c.master, PATIENCE, "the old master steps down")
    if c.local:
        c.lost_by("a", since)
    await c.served()


@scenario("local", "pair", short=("local",))
async def flip_storm(c: Cluster) -> None:
    before = {name: files_open(c, name) for name in c.nodes}
    for _ in range(15):
        to = c.rng.choice("ab")
        storm = [c.switch(to)]
        if c.rng.random() < 0.3:
            storm.append(c.role(c.rng.choice("ab"), read_only=True))
        await asyncio.gather(*storm)
        await pause(c, 0, 0.1)
    if await c.master() is None:
        code, answer = await c.switch("a")
        if code != 200:
            code, answer = await c.role("a", read_only=False)
        assert code == 200, answer
    await c.served()
    for name, count in before.items():
        assert files_open(c, name) < count + 40, f"{name}: {count} files, then more"


def files_open(c: Cluster, node: str) -> int:
    process = c.nodes[node].process
    assert process is not None
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


SMALL = ("--set", "wal.segment_bytes=256KiB", "--set", "replication.retain_bytes=1MiB")


@scenario("local", short=("local",), flags=SMALL)
async def bootstrap_interrupted(c: Cluster) -> None:
    """A new disk for b, a snapshot of some megabytes, and a link that breaks all the time."""

    async def fill(client: Client) -> None:
        for _ in range(60):
            await c.load.put(client, "c_fifo", padding=100_000)
        await client.call("box.snapshot", seconds=20)

    await c.do(fill)
    # A client that lost patience with a would find no tubes at b.
    await c.on("client_b", "cut")
    await c.kill("b")
    shutil.rmtree(c.nodes["b"].data)
    for number in range(15):
        size = c.rng.randint(1, 600_000)
        await c.on("b_from_a", "add", "limit_data", "downstream", bytes=size)
        if not number:
            await c.restart("b", "--read-only")
        await pause(c, 0.1, 0.5)
        if c.rng.random() < 0.2:
            await c.kill("b")
            await c.restart("b", "--read-only")
        status = await c.status("b")
        assert not status["writable"], "a node that is not whole serves"
        await c.on("b_from_a", "heal")
    await c.until(c.alike_nearly, PATIENCE, "the new disk has everything")
