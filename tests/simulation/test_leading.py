"""Who may lead when nobody forces it: scripted schedules of two nodes, each once a fault.

The numbers in the names of the sections are those of the table in docs/failover.md.
"""

from __future__ import annotations

import pytest

from tandemq.model.terms import Claim, Term
from tandemq_server.replication.known import Mark
from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_clients import Call, Client, Connect, Script, Sleep
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import MS, SECOND, Two

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
    two.request(two.a, True)
    two.until(lambda: not two.serving())
    two.run(1)
    two.a.end()
    two.run(1)
    settled = two.promote(two.b)
    assert settled.ok, two.story()
    assert two.put(two.b, 1) == 1


def test_the_survivor_of_a_killed_replica_or_master_needs_force() -> None:
    two = Two(4).start()
    two.request(two.a, True)
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
    two.request(two.a, True)
    two.until(lambda: not two.serving())
    assert two.promote(two.a).ok


# -- numbers are no claims -------------------------------------------------------------------------


def test_attempts_that_acknowledge_nothing_do_not_depose_who_serves() -> None:
    """A node that nobody ordered opened a term per attempt, and each had a higher number."""
    two = Two(6, replication={"ack": "pair", "solo_after": None}).start()
    two.request(two.a, True)
    two.until(lambda: not two.serving())
    two.run(1)
    # a is told to serve; its first term is ordered, b is away, nothing can be acknowledged.
    two.a.kill()
    two.run(1)
    assert two.promote(two.b, force=True).ok
    assert two.put(two.b, 5) == 5
    two.a.read_only = False
    two.cut()
    two.a.start()
    # What a restart alone may not do any more, done by hand: terms with high numbers.
    for _ in range(5):
        _empty_term(two.a)
        two.run(0.1)
    assert two.a.engine.store.lineage[-1].number > two.b.engine.store.lineage[-1].number
    two.network.heal()
    two.until(two.in_step, 30)
    assert two.serving() == ["b"]
    assert two.tasks(two.b) == 5
    assert two.b.role.fiber.state.counts.total() == 2, "b went on without a break"


def _empty_term(node: SimNode) -> None:
    """A term that nobody ordered and in which nothing is acknowledged, in the log."""
    engine, storage = node.engine, node.storage
    last = engine.store.lineage[-1]
    chosen, claim = node.world.chance.randbytes(16), int(Claim.ITSELF)
    term = Term(last.number + 1, chosen, last.id, engine.lsn + 1, node.name, False, claim)
    storage.open_term(term)
    node.core.term, node.core.term_id = term.number, term.id
    engine.open_term(term)
    node.flush()


def test_a_returning_old_master_follows_whom_the_operator_chose() -> None:
    two = Two(7, **PAIR).start()
    assert two.put(two.a, 3) == 3
    two.until(two.in_step)
    two.a.kill()
    two.run(2)
    assert two.promote(two.b, force=True).ok
    assert two.put(two.b, 5) == 5
    two.cut()
    two.a.start()
    two.run(10)
    assert two.serving() == ["b"]
    two.network.heal()
    two.until(two.in_step, 30)
    assert two.serving() == ["b"]
    assert two.tasks(two.b) == 8


def test_force_outranks_a_master_that_goes_alone_in_a_partition() -> None:
    two = Two(8, **PAIR).start()
    two.cut()
    two.run(0.2)
    assert two.promote(two.b, force=True).ok
    assert two.put(two.b, 4) == 4
    # a opens one term after the other, alone, and its number gets past that of b.
    for _ in range(4):
        two.run(1.5)
        two.a.role.reopen(True)
    assert two.put(two.a, 2) == 2
    assert two.a.engine.store.lineage[-1].number > two.b.engine.store.lineage[-1].number
    two.network.heal()
    two.until(two.in_step, 30)
    assert two.serving() == ["b"]
    assert two.tasks(two.b) == 4, "what the chosen node acknowledged is there"
    assert two.a.peering.replica.rewinds == 1
    assert not two.b.peering.replica.rewinds


def test_a_paused_master_does_not_outrank_the_promoted_one_on_waking() -> None:
    for seed in range(20):
        two = Two(seed, **PAIR).start()
        assert two.put(two.a, 2) == 2
        two.until(two.in_step)
        two.a.pause()
        two.run(3)
        assert two.promote(two.b, force=True).ok
        assert two.put(two.b, 3) == 3
        two.run(2)
        two.a.resume()
        two.until(two.in_step, 30)
        assert two.serving() == ["b"], two.story()
        assert two.tasks(two.b) == 5
        assert "going on alone" not in two.story().split("* ")[-1].split("a: resumed")[-1]


# -- what is known to be acknowledged is not forgotten ---------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_known_to_be_acknowledged_is_asked_for_again_and_again(restart: bool) -> None:
    two = Two(9).start()
    two.until(two.in_step)
    # b hears how far a is, and gets nothing of it.
    lagging = two.b.engine.lsn
    two.b.peering.replica.log.frames = lambda *_args: ([], 0)  # type: ignore[method-assign]
    two.put(two.a, 30)
    two.run(2)
    assert two.b.engine.lsn == lagging
    two.a.kill()
    two.run(1)
    if restart:
        two.b.kill()
        two.b.start()
        two.run(1)
    for _ in range(3):
        settled = two.promote(two.b)
        assert not settled.ok
        assert f"records {lagging + 1}.." in settled.reason, settled.reason
        assert "were acknowledged and are not here" in settled.reason
    two.run(60)
    assert two.serving() == []
    assert two.promote(two.b, force=True).ok
    two.request(two.b, True)
    two.until(lambda: not two.serving())
    assert two.promote(two.b).ok, "the operator has decided: it is no reason any more"


def test_a_master_that_came_back_shorter_learns_it_from_its_replica() -> None:
    two = Two(10, wal_mode="write").start()
    two.put(two.a, 10)
    two.until(two.in_step)
    two.request(two.a, True)
    two.until(lambda: not two.serving())
    short = two.b.engine.lsn - 4
    mark = Mark(two.b.engine.lsn + 6, *two.b.engine.store.lineage[-1][:2])
    two.b.peering.replica.log.learn(mark)
    two.b.peering.replica.remember()
    two.b.kill()
    two.b.start()
    two.run(3)
    assert short < mark.lsn
    settled = two.promote(two.a)
    assert not settled.ok
    assert f"..{mark.lsn} were acknowledged and are not here" in settled.reason


# -- force stops who serves first ------------------------------------------------------------------


@MODES
def test_a_forced_promotion_stops_a_reachable_master_first(options: dict[str, object]) -> None:
    two = Two(11, **options).start()
    assert two.put(two.a, 5) == 5
    # Load goes on while b is forced.
    acknowledged: list[str] = []
    client = Client(two.world, two.network, two.machines, "p")
    client.run(_putting(two, acknowledged, 40))
    two.run(0.1)
    assert two.promote(two.b, force=True).ok
    two.until(lambda: client.stopped and two.in_step(), 30)
    assert two.serving() == ["b"]
    assert len(acknowledged) == 40
    assert set(acknowledged) == {"a", "b"}
    assert two.tasks(two.b) >= 45
    assert not two.a.peering.replica.rewinds, "nothing was cut"
    assert not two.a.storage.rescue_files
    assert "b: a serves: asking it to stop first" in two.story()


def _putting(two: Two, acknowledged: list[str], count: int) -> Script:
    """So many puts, each at the node that serves, again until it is acknowledged."""
    while len(acknowledged) < count:
        node = (two.serving() or ["a"])[0]
        if (yield Connect(node)):
            outcome = yield Call("queue.tube.jobs:put", (len(acknowledged),))
            if outcome.ok is not None:
                acknowledged.append(node)
        yield Sleep(10 * MS)


def test_a_master_that_hears_nothing_is_outranked_after_a_moment() -> None:
    two = Two(12).start()
    two.cut("b", "a")
    began = two.world.now
    assert two.promote(two.b, force=True).ok
    assert (two.world.now - began) / SECOND < 4
    two.network.heal()
    two.until(lambda: two.serving() == ["b"] and two.in_step())


# -- two that begin at one time --------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("blank", [True, False])
def test_two_nodes_configured_writable_settle_who_serves(
    options: dict[str, object], blank: bool
) -> None:
    for seed in range(20):
        two = Two(seed, **options)
        if not blank:
            two.start()
            two.put(two.a, 3)
            two.until(two.in_step)
            two.a.kill()
            two.b.kill()
        two.a.read_only = two.b.read_only = False
        two.b.start()
        two.a.start()
        two.until(lambda two=two: len(two.serving()) == 1, 10)
        two.run(5)
        assert len(two.serving()) == 1, two.story()
        two.until(two.in_step)
        conflicts = [line for line in two.world.lines if "conflict" in line or "rewinding" in line]
        assert not conflicts, two.story()


# -- orders on links that carry one way ------------------------------------------------------------


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_over_a_half_cut_link_the_old_master_takes_the_lead_back(way: tuple[str, str]) -> None:
    for seed in range(10):
        two = Two(seed).start()
        assert two.put(two.a, 2) == 2
        two.until(two.in_step)
        two.cut(*way)
        # What a switch-over does: a stops, b is ordered; again, until it is given up.
        two.request(two.a, True)
        for _ in range(7):
            two.a.deliver(lambda two=two: two.a.peering.asking.order("b", False, "switch-over"))
            two.run(0.2)
        assert two.serving() == []
        assert two.promote(two.a, seconds=1.0).ok, two.story()
        assert two.put(two.a, 3) == 3
        # The orders arrive late: whoever gave them serves again, and says so.
        two.network.heal()
        two.run(8)
        assert two.serving() == ["a"], two.story()
        two.until(two.in_step)
        assert two.tasks(two.a) == 5


def test_who_was_asked_to_stop_takes_the_lead_back_when_nobody_took_it() -> None:
    two = Two(13).start()
    two.b.deliver(lambda: two.b.peering.asking.order("a", True, "switch-over to b"))
    two.until(lambda: not two.serving())
    two.b.kill()
    two.until(lambda: two.serving() == ["a"], 2.0)


# -- an empty directory ----------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
def test_an_empty_node_whose_peer_is_away_founds_nothing(force: bool) -> None:
    two = Two(14)
    two.a.start()
    two.run(30)
    assert two.a.core.state != "RUNNING"
    assert "only the first node of a new cluster is started with --init" in (
        two.a.role.fiber.ro_reason
    )
    settled = two.promote(two.a, force=force)
    assert not settled.ok
    assert "this node is empty and b:1 cannot be reached" in settled.reason
    # Its peer, empty too, comes: then there is no cluster that it could miss.
    two.a.kill()
    two.a.start()
    two.b.start()
    two.until(lambda: two.serving() == ["a"])


def test_an_empty_node_founds_a_cluster_where_it_is_told_to() -> None:
    two = Two(15, init=True)
    two.a.start()
    two.until(lambda: two.serving() == ["a"])


def test_a_lost_volume_joins_again_and_founds_nothing() -> None:
    two = Two(16).start()
    two.put(two.a, 5)
    two.until(two.in_step)
    cluster = two.a.peering.cluster_id
    two.b.kill()
    two.a.kill()
    two.a.disk = MemoryDisk(where="a")
    two.a.start()
    two.run(20)
    assert two.serving() == []
    two.b.start()
    two.until(lambda: two.serving() == ["a"] and two.in_step())
    assert two.a.peering.cluster_id == two.b.peering.cluster_id == cluster
    assert two.tasks(two.a) == 5, "it serves once it has been given everything"


def test_the_same_order_right_after_the_way_back_is_no_repetition() -> None:
    """Orders are sent again until answered; one that comes a second time soon may still be new."""
    two = Two(17).start()
    for _ in range(3):
        for old, new in ((two.a, two.b), (two.b, two.a)):
            two.until(two.in_step)
            two.request(old, True)
            two.until(lambda old=old: old.core.state == "WAITING")
            asked = two.world.now
            while new.core.state != "RUNNING":
                assert two.world.now - asked < 500 * MS, two.story()
                old.peering.asking.order(new.name, False, "switch-over")
                two.run(0.05)
