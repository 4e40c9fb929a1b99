"""Who may lead when nobody forces it: scripted schedules of two nodes, each once a fault.

The numbers in the names of the sections are those of the table in docs/failover.md.
"""

from __future__ import annotations

import pytest
from sim_two import Two

PAIR = {"replication": {"ack": "pair", "solo_after": 1.0}}
MODES = pytest.mark.parametrize("options", [{}, PAIR], ids=["local", "pair"])

# -- without force only who can prove it -----------------------------------------------------------


@MODES
@pytest.mark.parametrize("waits", [0.3, 4.0])
def test_a_cut_link_and_an_operator_do_not_make_two_masters(
    options: dict[str, object], waits: float
) -> None:
    two = Two(1, **options).start()
    two.cut()
    two.run(waits)
    settled = two.promote(two.b)
    assert not settled.ok
    assert "a cannot be reached, and nothing shows that it does not serve" in settled.reason
    assert f"tandemq role rw --force --at-lsn {two.b.engine.lsn}" in settled.reason
    two.run(5)
    assert two.serving() == ["a"]
    assert two.put(two.a, 3) == 3
    two.network.heal()
    two.until(two.in_step)
    assert two.serving() == ["a"]
    assert not two.a.peering.replica.rewinds


def test_the_original_leads_after_twice_the_lag_and_says_so() -> None:
    two = Two(1, compat={"promotion": "original"}).start()
    two.cut()
    two.run(0.3)
    assert two.promote(two.b).ok
    assert two.serving() == ["a", "b"], "that is what it means"
    assert "b: compat.promotion is original: serving without proof that a does not" in two.story()


@MODES
def test_a_restarted_master_waits_for_its_peers_word(options: dict[str, object]) -> None:
    two = Two(2, **options).start()
    two.cut()
    two.a.kill()
    two.a.start()
    two.run(30)
    assert two.serving() == []
    assert "cannot be reached" in two.a.role.fiber.ro_reason
    assert f"--force --at-lsn {two.a.engine.lsn}" in two.a.role.fiber.ro_reason
    two.network.heal()
    two.until(lambda: two.serving() == ["a"], 40)


def test_the_survivor_of_a_planned_end_serves_without_force() -> None:
    two = Two(3).start()
    assert two.put(two.a, 5) == 5
    two.until(two.in_step)
    two.wish(two.a, True)
    two.until(lambda: not two.serving())
    two.run(1)
    two.a.end()
    two.run(1)
    settled = two.promote(two.b)
    assert settled.ok, two.story()
    assert two.put(two.b, 1) == 1


def test_the_survivor_of_a_killed_replica_or_master_needs_force() -> None:
    two = Two(4).start()
    two.wish(two.a, True)
    two.until(lambda: not two.serving())
    two.run(1)
    two.a.kill()
    two.run(1)
    assert not two.promote(two.b).ok
    assert two.promote(two.b, force=True).ok


def test_who_let_nobody_lead_goes_on_though_its_replica_is_away() -> None:
    two = Two(5).start()
    two.b.kill()
    two.run(3)
    two.wish(two.a, True)
    two.until(lambda: not two.serving())
    assert two.promote(two.a).ok
