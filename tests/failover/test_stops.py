"""Processes that stand still, die and come back, one after the other, under load.

Nodes and arbiter alike (CUTS_ARBITER: witness or etcd); what must hold is what
tests/failover/test_cuts.py asks for.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.arbiters.arbiter_servers import EtcdCluster, Process, WitnessProcess
from tests.chaos.chaos_cluster import Cluster
from tests.chaos.chaos_toxi import serving
from tests.failover.test_cuts import ARBITER, paired, seated

pytestmark = [pytest.mark.slow, pytest.mark.integration]
#: Longer than silence, liveness_ttl and step_down_after.
STILL_SECONDS = 6.0
ROUNDS = int(os.environ.get("STOPS", "1"))


async def still(cluster: Cluster, *names: str) -> None:
    """These nodes stand still for a while, at the same time."""
    for name in names:
        cluster.signal(name, signal.SIGSTOP)
    await asyncio.sleep(STILL_SECONDS)
    for name in names:
        cluster.signal(name, signal.SIGCONT)


async def under_load(home: Path, witness: Process, port: int) -> None:
    with serving(home) as server:
        cluster = seated(home, server, [port])
        try:
            await cluster.start()
            await paired(cluster)
            cluster.load.start()
            with cluster.load.promotion():
                for _ in range(ROUNDS):
                    await every_stop(cluster, witness)
            await cluster.finish()
        finally:
            cluster.clean_up()


async def every_stop(cluster: Cluster, witness: Process) -> None:
    master = await paired(cluster)
    await still(cluster, master)
    other = await paired(cluster)
    assert other != master, "who does not stand still takes over"
    await still(cluster, master)
    assert await paired(cluster) == other, "a replica that stands still moves nobody"
    await still(cluster, "a", "b")
    assert await paired(cluster) == other, "two that slept are no evidence about each other"
    witness.pause()
    await asyncio.sleep(STILL_SECONDS)
    await cluster.served()
    witness.go_on()
    assert await paired(cluster) == other, "an arbiter that stands still moves nobody"
    await asyncio.to_thread(witness.end, signal.SIGKILL)
    await asyncio.sleep(2.0)
    await cluster.served()
    await asyncio.to_thread(witness.start)
    assert await paired(cluster) == other, "an arbiter that was killed moves nobody"
    await cluster.kill(other)
    await cluster.served()
    await cluster.restart(other)
    assert await paired(cluster) == master, "who comes back follows"


@pytest.mark.timeout(900)
def test_nothing_that_stands_still_or_dies_loses_anything(tmp_path: Path) -> None:
    if ARBITER == "etcd":
        with EtcdCluster(tmp_path / "etcd", 1) as etcd:
            asyncio.run(under_load(tmp_path, etcd.members[0], etcd.ports[0]))
        return
    with WitnessProcess(tmp_path / "witness") as witness:
        asyncio.run(under_load(tmp_path, witness, witness.port))


def test_an_arbiter_that_forgot_promotes_nobody_who_lacks_anything(tmp_path: Path) -> None:
    """The register is gone, the master too: the one who lacks its last tasks waits for people."""
    with WitnessProcess(tmp_path / "witness") as witness:
        asyncio.run(emptied(tmp_path, witness))


async def emptied(home: Path, witness: WitnessProcess) -> None:
    with serving(home) as server:
        cluster = seated(home, server, [witness.port])
        try:
            await cluster.start()
            assert await paired(cluster) == "a"
            await cluster.kill("b")
            await cluster.until(lambda: alone(cluster), 20.0, "a is alone")
            await cluster.do(lambda client: client.call("queue.tube.c_fifo:put", 4711))
            await cluster.kill("a")
            await asyncio.to_thread(witness.end)
            (witness.data / "witness").unlink()
            await asyncio.to_thread(witness.start)
            # Configured writable, as a is: a request is no proof.
            await cluster.restart("b", "--writable")
            for _ in range(40):
                told = await cluster.status("b")
                assert not told["writable"], told
                await asyncio.sleep(0.2)
            # Together they have everything, whoever of them leads.
            await cluster.restart("a")
            master = await paired(cluster)
            told = await cluster.do(
                lambda client: client.call("queue.statistics", "c_fifo"), master
            )
            assert told[0]["tasks"]["ready"] == 1
        finally:
            for name, member in cluster.nodes.items():
                print("\n".join(f"{name}| {line}" for line in member.text().splitlines()))
            cluster.clean_up()


async def alone(cluster: Cluster) -> bool:
    told = await cluster.status("a")
    return bool(told["writable"] and told["solo"] and not told["failover"]["partner"])
