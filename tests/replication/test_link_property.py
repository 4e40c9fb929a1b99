"""Any weather on any links: a follower equals the winner in all that it shares with it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemq_server.replication.messages import CODE_NAMES
from tests.replication.replication_twins import Link, Node, check_prefix, same, settle

NODES = st.sampled_from([0, 1, 2])


class Weather(RuleBasedStateMachine):
    """Three nodes, of which any may be promoted by force at any time; up to six links at once."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(name) for name in "abc"]
        self.links: list[Link] = []
        self.rng = Random(0)
        self.everything: dict[tuple[bytes, int], object] = {}
        self.numbers = self.serial = 0

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.rng = Random(seed)
        self.promote(0)

    @rule(at=NODES, solo=st.booleans())
    def promote(self, at: int, solo: bool = True) -> None:
        """The loser of the flip is not told; a node knows no number it has not seen itself.

        So two nodes may well open the same number.
        """
        node = self.nodes[at]
        self.serial += 1
        node.promote(number=node.lineage.number + 1, solo=solo, salt=self.serial)
        self.numbers = max(self.numbers, node.lineage.number)

    @rule(at=NODES, records=st.integers(1, 4), times=st.integers(1, 6))
    def write(self, at: int, records: int, times: int) -> None:
        for _ in range(times):
            node = self.nodes[at]
            if node.writable:
                if times > 2:
                    node.sync()
                # In `local` mode: committed as soon as it is durable here.
                node.log.commit_lsn = node.log.durable_lsn
                node.log.acked_mark = max(node.log.acked_mark, node.log.durable_lsn)
                self.nodes[at].write(records)

    @rule(at=NODES)
    def step_down(self, at: int) -> None:
        self.nodes[at].writable = False

    @rule(at=NODES)
    def sync(self, at: int) -> None:
        self.nodes[at].sync()

    @rule(at=NODES, keep=st.integers(0, 200))
    def power_cut(self, at: int, keep: int) -> None:
        self.remember()
        self.nodes[at].restart(keep)

    @rule(at=NODES, keep=st.integers(0, 60))
    def trim(self, at: int, keep: int) -> None:
        node = self.nodes[at]
        node.trim(node.last_lsn - keep)

    @rule(up=NODES, down=NODES, window=st.sampled_from([512, 4096]))
    def connect(self, up: int, down: int, window: int) -> None:
        """A second connection between the same two is allowed, too: both may feed."""
        upstream, downstream = self.nodes[up], self.nodes[down]
        if up != down and len(self.links) < 6:
            self.links.append(
                Link(upstream, downstream, self.rng, window_bytes=window, read_bytes=window)
            )

    @rule(pick=st.integers(0, 5))
    def cut(self, pick: int) -> None:
        if self.links:
            self.links[pick % len(self.links)].cut()

    @rule(times=st.integers(20, 300))
    def deliver(self, times: int) -> None:
        """Links proceed in any order; within one connection bytes keep theirs."""
        for _ in range(times):
            alive = [link for link in self.links if link.alive]
            if not alive:
                break
            link = self.rng.choice(alive)
            # A node that is writable follows nobody.
            if link.down.writable:
                link.cut()
                continue
            link.work()
            link.deliver(self.rng.random() < 0.6)

    def remember(self) -> None:
        for node in self.nodes:
            for lsn, (term, record) in node.history.items():
                known = self.everything.setdefault((term, lsn), record)
                assert known == record, f"LSN {lsn} of one term stands for two records"

    @invariant()
    def equal_copies(self) -> None:
        self.links = [link for link in self.links if link.alive]
        self.remember()
        for one in self.nodes:
            assert sorted(one.history) == list(range(1, one.last_lsn + 1))
            for lsn, (term, _) in one.history.items():
                holder = one.lineage.term_at(lsn)
                assert holder is not None
                assert holder.id == term
            for other in self.nodes:
                if one is not other:
                    check_prefix(one, other)

    def teardown(self) -> None:
        """Heal: one node is promoted for good; the others become its copies.

        Every record they held is in its log or in their rescue files.
        """
        if not self.numbers:
            return
        for node in self.nodes:
            node.cut_links()
            node.writable = False
        self.serial += 1
        lead = max(self.nodes, key=lambda node: (node.lineage.number, node.last_lsn))
        lead.promote(number=self.numbers + 1, solo=True, salt=self.serial)
        lead.write(3)
        lead.accept_loss = True
        for node in self.nodes:
            if node is lead:
                continue
            before = dict(node.history)
            rescued = len(node.rescued)
            settle(lead, node, self.rng)
            assert same(lead, node)
            kept = {(lsn, term) for lsn, term, _ in node.rescued[rescued:]}
            for lsn, (term, record) in before.items():
                assert node.history.get(lsn) == (term, record) or (lsn, term) in kept


#: What a seed draws from, with weights: mostly quiet, promotions and power cuts now and then.
RULES = {"deliver": 30, "connect": 14, "write": 14, "sync": 6, "step_down": 5}
RULES |= {"cut": 4, "promote": 4, "power_cut": 2, "trim": 2}


def drive(seed: int, steps: int = 80) -> Weather:
    """The same weather from one seed: `drive(17)` replays number 17."""
    weather = Weather()
    weather.begin(seed)
    rng = weather.rng
    for name in rng.choices(list(RULES), list(RULES.values()), k=steps):
        at = rng.randrange(3)
        match name:
            case "deliver":
                weather.deliver(rng.randint(20, 300))
            case "connect":
                weather.connect(at, rng.randrange(3), rng.choice([512, 4096]))
            case "write":
                weather.write(at, rng.randint(1, 4), rng.randint(1, 6))
            case "cut":
                weather.cut(rng.randrange(6))
            case "promote":
                weather.promote(at, rng.random() < 0.6)
            case "power_cut":
                weather.power_cut(at, rng.randrange(100))
            case "trim":
                weather.trim(at, rng.randrange(60))
            case _:
                getattr(weather, name)(at)
        weather.equal_copies()
    weather.teardown()
    return weather


@pytest.mark.slow
def test_many_seeds_and_that_they_were_worth_it() -> None:
    """Every kind of answer and decision must have come up, else the weather proves nothing."""
    met: Counter[str] = Counter()
    for seed in range(250):
        try:
            weather = drive(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: drive({seed}) replays it") from error
        for node in weather.nodes:
            met["alarms"] += len(node.alarms)
            met["rescued"] += len(node.rescued)
            met["installs"] += node.installs
            met["repeated"] += node.log.repeated
            met.update(CODE_NAMES[code] for code, _ in node.refusals)
            met.update(node.met)
    wanted = {
        "rescued",
        "installs",
        "repeated",
        "newer_term",
        "conflict",
        "lost_acknowledged",
        "Append",
        "Rewind",
    }
    wanted |= {"Resubscribe", "Idle", "WriteSnapshot", "InstallSnapshot"}
    assert all(met[name] for name in wanted), met


TestWeather = Weather.TestCase
TestWeather.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
