"""A third node follows two that were not told of it: its word is not that of their peer."""

from __future__ import annotations

from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import Two


class AndOneMore(Two):
    """c knows a and b, and follows; they know each other."""

    def joined(self) -> AndOneMore:
        self.start()
        c = SimNode(self.world, self.network, "c", ["a", "b"])
        c.machines, c.options, c.read_only = self.machines, dict(self.a.options), True
        self.machines["c"] = c
        c.start()
        self.until(lambda: c.engine.lsn == self.a.engine.lsn)
        self.run(1)
        return self

    def isolate(self, name: str, cut: bool = True) -> None:
        for other in self.machines:
            if other != name:
                self.network.set_cut(name, other, cut)
                self.network.set_cut(other, name, cut)


def test_what_a_stranger_confirms_is_not_acknowledged_in_pair_mode() -> None:
    """b takes it that a acknowledges nothing without it, and leads without force."""
    three = AndOneMore(5, replication={"ack": "pair", "solo_after": None}).joined()
    assert three.put(three.a, 3) == 3
    three.isolate("b")
    three.run(4)
    assert three.put(three.a, 2) == 0
    three.request(three.b, False)
    three.run(2)
    three.isolate("b", False)
    three.until(lambda: three.serving() == ["b"])
    assert three.put(three.b, 1) == 1
    three.until(lambda: three.machines["c"].engine.lsn == three.b.engine.lsn)


def test_a_stranger_that_can_be_reached_is_no_peer_that_can() -> None:
    """a comes back after b was promoted by force; c has not heard of that."""
    three = AndOneMore(5).joined()
    assert three.put(three.a, 3) == 3
    three.isolate("b")
    three.a.kill()
    assert three.promote(three.b, force=True).ok
    three.a.start()
    three.run(8)
    assert three.serving() == ["b"]
    refused = three.promote(three.a, seconds=30)
    assert not refused.ok
    assert "b" in refused.reason
    assert three.serving() == ["b"]
