"""Every story of chaos_scenarios on real processes, judged at its end.

`make test` runs the short ones once; `make chaos` all of them, CHAOS_SEEDS times each. A failure
prints the plan as it unfolded and the command that replays it. Timing is the machine's own, so a
replay repeats the plan, not every interleaving. A red run is not run again until green: it becomes
a test of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.audit.faults import FAULTS
from tests.audit.rewrite import Edited, read
from tests.chaos import chaos_audit, chaos_export
from tests.chaos.chaos_cluster import HEAL_SECONDS, Cluster
from tests.chaos.chaos_disks import lacks
from tests.chaos.chaos_scenarios import SCENARIOS, Scenario, promote
from tests.chaos.chaos_toxi import serving

ALL = os.environ.get("CHAOS") == "all"
ROUNDS = int(os.environ.get("CHAOS_SEEDS", "1"))
CHOSEN = [
    pytest.param(name, number, id=name if ROUNDS == 1 else f"{name}-{number}")
    for number in range(ROUNDS)
    for name, one in SCENARIOS.items()
    if ALL or one.short
]


#: Of the stories that came to their end: data directories, and what clients were told.
KEPT: dict[str, tuple[list[Path], list[dict[str, Any]]]] = {}


#: Where histories go for the outside judge, if anywhere.
HISTORIES = os.environ.get("CHAOS_HISTORY")


def keep_history(name: str, cluster: Cluster) -> None:
    if HISTORIES:
        home = cluster.pair.a.data.parent
        said = chaos_export.lines(
            f"chaos-{name}",
            cluster.load.history,
            cluster.local,
            [home / node for node in "ab"],
            f"make chaos ARGS=\"-k '{name}'\"",
        )
        chaos_export.write(Path(HISTORIES), f"chaos-{name}", said)


async def run(home: Path, seed: int, scenario: Scenario, name: str = "") -> Cluster:
    with serving(home) as server:
        cluster = Cluster(home, server, seed, *scenario.flags)
        try:
            await cluster.start()
            cluster.load.start()
            await cluster.served()
            await scenario.story(cluster)
            await cluster.finish()
            keep_history(f"{name}-{seed}", cluster)
            return cluster
        except BaseException:
            cluster.load.history.write(home / "history.jsonl")
            for member in cluster.nodes.values():
                print(f"--- last lines of {member.name}\n" + member.text()[-3000:])
            print(f"history: {home / 'history.jsonl'}")
            for job in cluster.load.jobs:
                job.cancel()
            raise
        finally:
            cluster.clean_up()


@pytest.fixture
def chaos_seed(request: pytest.FixtureRequest, name: str) -> int:
    """`--seed` wins, then TEST_SEED; otherwise chance."""
    given = request.config.getoption("--seed") or os.environ.get("TEST_SEED")
    seed = random.SystemRandom().randrange(1 << 32) if given is None else int(given)
    print(f"replay: make chaos ARGS=\"-k 'test_scenario and {name}' --seed {seed}\"")
    return seed


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "number"), CHOSEN)
def test_scenario(tmp_path: Path, name: str, number: int, chaos_seed: int) -> None:
    if reason := lacks(name):
        pytest.skip(f"{name}: {reason}")
    cluster = asyncio.run(run(tmp_path, chaos_seed, SCENARIOS[name], f"{name}-{number}"))
    directories = [tmp_path / node for node in "ab"]
    clients = list(chaos_audit.told(cluster.load.history))
    verdict = chaos_audit.judged(directories, clients)
    assert verdict.findings == []
    assert verdict.records > len(clients) > 0
    KEPT[f"{name}-{number}"] = directories, clients


def whole(directories: list[Path]) -> list[Edited]:
    """The records of both nodes; none where the older ones are trimmed."""
    first = f"{1:020d}.wal"
    return [read(one) for one in directories if (one / first).exists()]


@pytest.mark.slow
@pytest.mark.integration
def test_the_audit_sees_what_is_planted_into_a_storys_logs(tmp_path: Path) -> None:
    """The same eyes on logs that they found sound, written anew with a fault."""
    if not KEPT:
        pytest.skip("no story was asked for")
    most = sorted(KEPT.values(), key=lambda kept: -len(kept[1]))
    clients, (one, other) = next(
        (clients, logs) for paths, clients in most if len(logs := whole(paths)) == 2
    )
    numbers = count()

    def found(a: Edited, b: Edited, *more: dict[str, Any]) -> set[str]:
        home = tmp_path / str(next(numbers))
        return chaos_audit.judged(
            [a.write(home / "a"), b.write(home / "b")], [*clients, *more]
        ).rules

    def both(name: str) -> set[str]:
        bad = one.copy(), other.copy()
        for log in bad:
            FAULTS[name].edit(log)
        return found(*bad)

    assert found(one, other) == set(), "who writes logs anew adds no fault"
    assert "double_ack" in both("an_ack_stands_twice")
    assert "two_holders" in both("a_task_is_handed_out_twice")
    assert "id_hole" in both("a_task_is_gone_without_a_trace")
    assert found(one, other, clients[0] | {"task_id": 10**9}) == {"lost_put"}
    assert found(one, other, clients[0] | {"digest": "00" * 32}) == {"other_payload"}
    bad = other.copy()
    bad.one("put").record[0] += 1
    assert "nodes_differ" in found(one, bad)


async def lose(c: Cluster) -> None:
    """A master acknowledges alone, dies, and its disk is gone: local mode does not cover that."""
    await c.partition()
    # So many that workers do not keep up with them.
    for number in range(3):
        c.load.add_producer(f"more{number}")
    since, history = time.monotonic(), c.load.history

    async def alone() -> bool:
        got = {one.value for one in history.deliveries}
        mine = [put for put in history.puts if put.outcome == "ok" and put.sent > since]
        # More than all workers can still be handed before the kill.
        return sum(put.value not in got for put in mine) > 2 * len(c.load.workers)

    await c.until(alone, HEAL_SECONDS, "tasks that a alone knows")
    c.signal("a", signal.SIGKILL)
    await c.kill("a")
    shutil.rmtree(c.nodes["a"].data)
    await promote(c, "b")
    # No client may come to a before it has the tubes again: there it would be told of none.
    await c.on("client_a", "cut")
    for link in ("a_from_b", "b_from_a"):
        await c.on(link, "heal")
    await c.restart("a")
    await c.until(c.alike_nearly, HEAL_SECONDS, "a knows what b knows")
    await c.heal()
    await c.served()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(180)
def test_a_real_loss_is_seen(tmp_path: Path, seed: int) -> None:
    with pytest.raises(AssertionError, match=r"lost: \d+, acknowledged by a"):
        asyncio.run(run(tmp_path, seed, Scenario(lose, (), True)))
