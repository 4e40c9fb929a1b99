"""Rights given by calls: exactly what was asked for, gone with their tube, taken back by name."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.engine import admin, grants
from tests.engine.engine_bench import Bench, text


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.start()
    return made


def rights(bench: Bench, who: str) -> set[str]:
    return {call for name, call in bench.engine.grants.rows if name == who}


def test_grants_go_with_their_tube_and_nothing_else(bench: Bench) -> None:
    jobs, other = bench.create("jobs", "fifo"), bench.create("x.jobs", "fifo")
    for tube in (jobs, other):
        bench.call(grants.grant, bench.engine, tube, "ann", {"call": True, "truncate": True})
    bench.call(grants.grant, bench.engine, jobs, "bob", {"call": True})
    bench.call(grants.grant, bench.engine, jobs, "bob", {"call": True, "prefix": "mine"})
    bench.call(admin.drop_tube, bench.engine, jobs)
    assert rights(bench, "bob") == set(), "with the last tube goes what came with it"
    left = rights(bench, "ann")
    assert "queue.identify" in left
    assert "queue.tube.x.jobs:put" in left
    assert not any(call.startswith("queue.tube.jobs:") or call == "space:jobs" for call in left)
    bench.create("jobs", "fifo")
    assert "queue.tube.jobs:put" not in rights(bench, "ann")


def test_what_was_granted_is_revoked(bench: Bench) -> None:
    jobs = bench.create("jobs", "fifo")
    bench.call(grants.grant, bench.engine, jobs, "ann", {"call": True, "truncate": True})
    assert bench.call(grants.revoke, bench.engine, jobs, "ann", {"truncate": True}) == 1
    assert "queue.tube.jobs:truncate" not in rights(bench, "ann")
    assert "queue.tube.jobs:put" in rights(bench, "ann")
    assert bench.call(grants.revoke, bench.engine, jobs, "ann", {"truncate": True}) == 0
    assert bench.call(grants.revoke, bench.engine, jobs, "ann", None) > 0
    assert rights(bench, "ann") == set()


def test_a_role_and_a_user_of_one_name_are_two(bench: Bench) -> None:
    jobs = bench.create("jobs", "fifo")
    bench.call(grants.grant, bench.engine, jobs, "ops", {"call": True}, True)
    assert rights(bench, "ops") == set()
    assert "queue.tube.jobs:put" in rights(bench, "role:ops")
    bench.call(grants.grant, bench.engine, jobs, "ops", {})
    bench.call(grants.revoke, bench.engine, jobs, "ops", None, True)
    assert rights(bench, "role:ops") == set()
    assert rights(bench, "ops") == {"space:jobs", "space:_queue"}
    assert "expected a name" in text(bench.call(grants.grant, bench.engine, jobs, "role:ops", {}))


@pytest.mark.parametrize("prefix", ["queue.tube.x", "queue15", "box", "box.space", "_G.x", "a b"])
def test_no_prefix_reaches_another_tube(bench: Bench, prefix: str) -> None:
    jobs = bench.create("jobs", "fifo")
    bench.create("x.jobs", "fifo")
    args: dict[str, Any] = {"call": True, "prefix": prefix}
    assert "Invalid value of prefix" in text(
        bench.call(grants.grant, bench.engine, jobs, "ann", args)
    )
    assert rights(bench, "ann") == set()
