"""Real processes: the master is killed, nobody is asked, the other one serves."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_nodes import TANDEMQ, Member, until
from tests.failover.seated_pair import Putter, SeatedPair

pytestmark = pytest.mark.integration
#: `KILLS=100` for the figures in docs/failover.md.
KILLS = int(os.environ.get("KILLS", "3"))


#: CUTS_ARBITER=etcd: takes the witness's place where it is killed so often.
ETCD = os.environ.get("CUTS_ARBITER") == "etcd"
OFTEN = ("--set", "failover.per_minute=60", "--set", "failover.per_hour=999")


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SeatedPair]:
    made = SeatedPair(tmp_path, *OFTEN, etcd=bool(getattr(request, "param", False)))
    try:
        yield made.start()
    finally:
        made.stop()


def tandemq(member: Member, *words: str) -> subprocess.CompletedProcess[str]:
    command = [TANDEMQ, *words, f"--admin=127.0.0.1:{member.admin_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def tasks(member: Member) -> set[int]:
    """The payloads of all tasks there are."""
    client = member.connect()
    found: set[int] = set()
    while task := client.call("queue.tube.jobs:take", [0]).data:
        found.add(task[0][2])
    return found


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("pair", [ETCD], indirect=True, ids=["etcd" if ETCD else "witness"])
def test_the_other_node_takes_over_by_itself(pair: SeatedPair, tell: Callable[[str], None]) -> None:
    pair.a.connect().call("queue.create_tube", ["jobs", "fifo"])
    putter = Putter(pair.a, pair.b)
    putter.start()
    master, other, took = pair.a, pair.b, []
    try:
        for _ in range(KILLS):
            until(lambda: putter.accepted, 10)
            until(lambda master=master: pair.paired(master), 60)
            moment = time.monotonic()
            master.end(signal.SIGKILL)
            took.append(putter.first_after(moment, other))
            master.start(wait=False)
            master, other = other, master
    finally:
        putter.end()
    took.sort()
    tell(
        f"takeover without an operator: first accepted put p50 {statistics.median(took):.3f} s, "
        f"p99 {took[int(0.99 * KILLS)]:.3f} s, max {took[-1]:.3f} s of {KILLS} kills"
    )
    assert took[-1] < 10.0
    accepted = {number for _, number, _ in putter.accepted}
    assert len(accepted) > 10 * KILLS
    assert accepted <= tasks(master), "everything acknowledged is there"
    assert "failover: took the seat as term" in master.text()


def test_what_the_commands_say(pair: SeatedPair) -> None:
    # What the arbiter tells b of who lives comes a moment after the seat itself.
    until(lambda: "would serve" in pair.seat(pair.b)["outlook"])
    shown = tandemq(pair.b, "failover", "status")
    assert shown.returncode == 0
    assert re.search("if the master died +b would serve within 1 s, nothing lost", shown.stdout)
    told = json.loads(tandemq(pair.a, "failover", "pause", "--json").stdout)
    assert (told["master"], told["partner"], told["paused"]) == ("a", "b", "an operator said so")
    assert tandemq(pair.a, "failover", "resume").returncode == 0
    refused = tandemq(pair.a, "failover", "seed")
    assert refused.returncode == 1
    assert "is not older than the log here" in refused.stderr
    # A planned switch-over is a swap, and stays as quick as it was.
    done = tandemq(pair.a, "switchover", "b")
    assert done.returncode == 0, done.stderr
    until(lambda: pair.paired(pair.b))
    # Without the arbiter it is refused with its name, before anybody stops.
    pair.witness.end(signal.SIGKILL)
    until(lambda: pair.seat(pair.b)["problem"])
    refused = tandemq(pair.b, "switchover", "a")
    assert refused.returncode == 1
    assert "does not answer" in refused.stderr
    assert pair.b.status()["writable"]
    pair.witness.start()
    until(lambda: not pair.seat(pair.b)["problem"])
    assert tandemq(pair.b, "switchover", "a").returncode == 0


def test_sigterm_hands_over(pair: SeatedPair) -> None:
    pair.a.end(signal.SIGTERM)
    until(lambda: pair.b.status()["writable"], 3)
    assert "a ends" in pair.b.text()
    pair.a.start(wait=False)
    until(lambda: pair.paired(pair.b), 15)
