"""A master and two followers under one seat: one is the partner, the other may become it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.arbiters.arbiter_servers import WitnessProcess
from tests.cluster.cluster_nodes import QUICK, Member, until
from tests.failover.seated_pair import Putter
from tests.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[dict[str, Member]]:
    """a serves, and one of b and c is its partner."""
    witness = WitnessProcess(tmp_path / "witness")
    witness.start()
    ports, admins = free_ports(6)[:3], free_ports(6)[3:]
    nodes = {}
    for number, name in enumerate("abc"):
        peers = [port for port in ports if port != ports[number]]
        nodes[name] = one = Member(tmp_path, name, ports[number], admins[number], peers)
        words = ["replication.ack=pair", "failover.arbiter=witness", "failover.cluster=three"]
        words += [f"failover.witness.url={witness.url}", "failover.per_minute=60"]
        one.flags = (*QUICK, *(part for word in words for part in ("--set", word)))
    try:
        for name, one in nodes.items():
            one.start(*(() if name == "a" else ("--read-only",)), wait=False)
        for one in nodes.values():
            ready(one)
        until(lambda: seat(nodes["a"])["stand"] == "paired", 30)
        yield nodes
    finally:
        for one in nodes.values():
            for client in one.clients:
                client.close()
            if one.process is not None:
                one.end()
        witness.end()


def ready(one: Member) -> None:
    assert one.process is not None
    assert one.process.stdout is not None
    assert one.process.stdout.readline().startswith(b"ready"), one.text()


def seat(one: Member) -> dict[str, Any]:
    found: dict[str, Any] = one.status()["failover"] or {"stand": "", "partner": None}
    return found


def goes_on(putter: Putter) -> None:
    """Somebody serves."""
    known = len(putter.accepted)
    until(lambda: len(putter.accepted) > known + 10)


def test_one_after_the_other_dies_and_nothing_is_lost(three: dict[str, Member]) -> None:
    left = dict(three)
    three["a"].connect().call("queue.create_tube", ["jobs", "fifo"])
    putter = Putter(*three.values())
    putter.start()
    try:
        for _ in range(2):
            goes_on(putter)
            (master,) = [name for name, one in left.items() if one.status()["writable"]]
            until(lambda master=master: seat(left[master])["stand"] == "paired", 30)
            partner = seat(left[master])["partner"]
            assert partner in left
            left.pop(master).end(signal.SIGKILL)
            until(lambda partner=partner: left[partner].status()["writable"], 15)
        goes_on(putter)
    finally:
        putter.end()
    (last,) = left.values()
    accepted = {number for _, number, _ in putter.accepted}
    assert len(accepted) > 20
    for name, one in three.items():
        if name not in left:
            one.start()
    until(lambda: all(one.caught_up_with(last) for one in three.values() if one is not last), 30)
    client = last.connect()
    there = set()
    while task := client.call("queue.tube.jobs:take", [0]).data:
        there.add(task[0][2])
    assert accepted <= there
