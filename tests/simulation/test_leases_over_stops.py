"""A master that stands still and is then told to stop: that time is no holder's fault."""

from __future__ import annotations

import pytest

from tests.simulation.sim_clients import Call, Client, Connect, Script
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import Two

pytestmark = pytest.mark.sim


def take_and_leave(two: Two) -> bytes:
    """A worker takes the only task, and its connection goes. Its session."""
    assert two.put(two.a, 1) == 1
    client = Client(two.world, two.network, two.machines, "w")
    session: list[bytes] = []

    def script() -> Script:
        yield Connect("a")
        outcome = yield Call("queue.identify", ())
        assert (yield Call("queue.tube.jobs:take", (0,))).ok
        session.append(outcome.ok[0])

    client.run(script())
    two.until(lambda: session)
    client.retire()
    two.until(two.in_step)
    return session[0]


def claimed(two: Two, node: SimNode, session: bytes) -> bool:
    return two.call(node, "queue.identify", session).ok is not None


#: Nobody serves for so many seconds after the stop: less, or more, than sockets are read.
BREAKS = pytest.mark.parametrize("seconds", [0.0, 0.3])


@BREAKS
@pytest.mark.parametrize("next_one", ["a", "b"])
@pytest.mark.parametrize("looks_first", [False, True])
def test_a_pause_that_ends_with_a_stop_is_given_back(
    next_one: str, looks_first: bool, seconds: float
) -> None:
    """The first thing it hears is that it must stop, or it has noticed the pause just before."""
    two = Two(1, ttr=2.0).start()
    session = take_and_leave(two)
    two.run(0.5)
    two.a.pause()
    if looks_first:
        two.a.deliver(two.a.pauses.look)
    stopped = two.request(two.a, True)
    two.run(3)
    two.a.resume()
    two.until(lambda: stopped)
    two.run(seconds)
    node = two.machines[next_one]
    assert two.promote(node).ok
    two.run(0.5)
    assert node.engine.tubes["jobs"].space.rows[0][1] == "t"
    assert claimed(two, node, session), "it has had less than two seconds to come back"
    node.engine.store.check()


@BREAKS
@pytest.mark.parametrize("next_one", ["a", "b"])
def test_a_pause_is_given_back_once(next_one: str, seconds: float) -> None:
    two = Two(2, ttr=2.0).start()
    session = take_and_leave(two)
    two.a.pause()
    stopped = two.request(two.a, True)
    two.run(3)
    two.a.resume()
    two.until(lambda: stopped)
    two.run(seconds)
    node = two.machines[next_one]
    assert two.promote(node).ok
    two.run(2.5)
    assert node.engine.tubes["jobs"].space.rows[0][1] == "r"
    assert not claimed(two, node, session)
