"""Every combination of cut ways between two nodes and their arbiter, under load.

Six ways: from a to b and back, from each node to the arbiter and back. A way that is cut swallows
what is sent on it, and its sender hears nothing of it. `CUTS=all` runs all 64, else a few that
differ most; CUTS_ARBITER is witness, etcd or etcd3, of three members. What must hold: no
acknowledged task lost or doubled, nothing in two hands, both logs the same at the end, and nobody
but time to put it right.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.arbiters.arbiter_servers import EtcdCluster, WitnessProcess
from tests.chaos.chaos_cluster import HEAL_SECONDS, Cluster
from tests.chaos.chaos_toxi import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.integration]

#: Of each way: the proxies and the streams on which its bytes travel. `a_from_b`: a dialled.
WAYS = {
    "a>b": (("a_from_b", "upstream"), ("b_from_a", "downstream")),
    "b>a": (("a_from_b", "downstream"), ("b_from_a", "upstream")),
    "a>s": (("a_arbiter", "upstream"),),
    "s>a": (("a_arbiter", "downstream"),),
    "b>s": (("b_arbiter", "upstream"),),
    "s>b": (("b_arbiter", "downstream"),),
}
ALL = [cut for size in range(len(WAYS) + 1) for cut in combinations(WAYS, size)]
FEW = [("a>b", "b>a"), ("a>b", "b>a", "a>s", "s>a"), ("b>a",), ("a>s", "s>a", "b>s", "s>b")]
#: The same with proxies that hang up and refuse, as a machine does that is up without its process.
LINKS = {
    "a-b": ("a_from_b", "b_from_a"),
    "a-s": ("a_arbiter",),
    "b-s": ("b_arbiter",),
}
REFUSED = [cut for size in range(1, 4) for cut in combinations(LINKS, size)]
#: Longer than a master that hears nobody goes on.
CUT_SECONDS = 6.5
GROUPS = 4
CHOSEN = (
    [ALL[number::GROUPS] for number in range(GROUPS)] if os.environ.get("CUTS") == "all" else [FEW]
)
ARBITER = os.environ.get("CUTS_ARBITER", "witness")


@contextlib.contextmanager
def arbiter(home: Path) -> Iterator[list[int]]:
    """The ports of its members."""
    if ARBITER.startswith("etcd"):
        with EtcdCluster(home, 3 if ARBITER == "etcd3" else 1) as etcd:
            yield etcd.ports
    else:
        with WitnessProcess(home) as witness:
            yield [witness.port]


def seated(home: Path, server: Server, ports: list[int]) -> Cluster:
    """A pair whose seat the arbiter keeps; each node asks its members on ways of its own."""
    kind = ARBITER.removesuffix("3")
    section = kind + (".endpoints" if kind == "etcd" else ".url")
    words = ["replication.ack=pair", f"failover.arbiter={kind}", "failover.cluster=cuts"]
    # So that one combination after the other finds a node that may take over.
    words += ["failover.per_minute=60", "failover.per_hour=3600"]
    cluster = Cluster(home, server, 16, *(part for word in words for part in ("--set", word)))
    for name, member in cluster.nodes.items():
        urls = []
        for number, port in enumerate(ports):
            called = f"{name}_arbiter" + (f"_{number}" if number else "")
            link = cluster.links[called] = server.link(called, port)
            urls.append(f"http://127.0.0.1:{link.port}")
        member.flags += ("--set", f"failover.{section}={','.join(urls)}")
    return cluster


def members(cluster: Cluster, link: str) -> list[str]:
    """That link, or those to every member of the arbiter."""
    return [name for name in cluster.links if name == link or name.startswith(link + "_")]


async def paired(cluster: Cluster) -> str:
    """The master, once the seat names the other one its partner and both have the same log."""

    async def reached() -> str | None:
        told = {name: await cluster.status(name) for name in cluster.nodes}
        masters = [name for name, status in told.items() if status["writable"]]
        if len(masters) != 1 or not all(status["failover"] for status in told.values()):
            return None
        (master,) = masters
        other = "b" if master == "a" else "a"
        seat = told[master]["failover"]
        ready = seat["master"] == master and seat["partner"] == other and not seat["problem"]
        same = told["a"]["term"] == told["b"]["term"]
        return master if ready and same and not told[other]["failover"]["problem"] else None

    return str(await cluster.until(reached, HEAL_SECONDS, "a pair again"))


async def cut(cluster: Cluster, ways: tuple[str, ...]) -> dict[str, Any]:
    """One combination, healed again; who served while it lasted, and how long healing took."""
    master = await paired(cluster)
    cluster.note(f"CUT {' '.join(ways) or 'nothing'}; {master} leads")
    began = time.monotonic()
    for way in ways:
        for link, stream in WAYS.get(way, ()):
            for name in members(cluster, link):
                await asyncio.to_thread(cluster.links[name].add, "timeout", stream, timeout=0)
        for link in LINKS.get(way, ()):
            for name in members(cluster, link):
                await asyncio.to_thread(cluster.links[name].cut)
    await asyncio.sleep(CUT_SECONDS)
    ended = time.monotonic()
    puts = [put for put in cluster.load.history.puts if put.outcome == "ok" and put.done]
    served = Counter(put.node for put in puts if ended - 1.5 < put.done < ended)
    gap = max(
        (
            later - earlier
            for earlier, later in zip(
                [began, *sorted(put.done for put in puts if put.done > began)],
                [*sorted(put.done for put in puts if put.done > began), ended],
                strict=True,
            )
        ),
        default=0.0,
    )
    await cluster.heal()
    healed = time.monotonic()
    await cluster.served()
    row = {
        "cut": " ".join(ways) or "nothing",
        "led": master,
        "served": "+".join(sorted(served)) or "nobody",
        "silence_s": round(gap, 2),
        "served again_s": round(time.monotonic() - healed, 2),
    }
    await paired(cluster)
    row["pair again_s"] = round(time.monotonic() - healed, 2)
    cluster.note(f"ROW {row}")
    return row


async def story(home: Path, server: Server, ports: list[int], cuts: list[tuple[str, ...]]) -> None:
    cluster = seated(home, server, ports)
    try:
        await cluster.start()
        await paired(cluster)
        cluster.load.start()
        # Leases of those who have no session to share end with any takeover.
        with cluster.load.promotion():
            for ways in cuts:
                await cut(cluster, ways)
        await cluster.finish()
    finally:
        for name, member in cluster.nodes.items():
            for line in member.text().splitlines():
                if any(word in line for word in ("seat", "term", "failover", "arbiter", "solo")):
                    print(f"{name}| {line}")
        cluster.clean_up()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "cuts",
    [*CHOSEN, REFUSED if os.environ.get("CUTS") == "all" else REFUSED[:1] + REFUSED[3:4]],
    ids=lambda cuts: f"{len(cuts)} cuts of {'links' if '-' in cuts[-1][-1] else 'ways'}",
)
def test_no_cut_loses_or_doubles_anything(tmp_path: Path, cuts: list[tuple[str, ...]]) -> None:
    with serving(tmp_path) as server, arbiter(tmp_path / "arbiter") as ports:
        asyncio.run(story(tmp_path, server, ports, cuts))
