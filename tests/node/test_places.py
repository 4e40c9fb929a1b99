"""Places for connections: of the port, of one address, and those kept for peers and operators."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemq_server.node.loop import shell as shell_module
from tandemq_server.node.loop.places import Places, network_of
from tests.node.harness import Bench, Wire, node
from tests.node.test_doors import closed, logged_in, login

HERE, THERE = "127.0.0.1", "127.0.0.2"


class Guest:
    """A connection: told to go, it goes at once or a little later, as sockets do."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.late = False
        self.told = False

    def make_room(self) -> None:
        assert not self.told
        self.told = True


def enter(places: Places, address: str) -> Guest | None:
    """One that has not logged in yet."""
    one = Guest(address)
    if not places.enter(one):
        return None
    places.stranger(one)
    return one


def user(places: Places, address: str) -> Guest | None:
    """One that logs in, and goes when its place is for peers only."""
    one = enter(places, address)
    if one is not None and not one.late:
        places.proved(one)
    return one


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_what_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_one_address_does_not_take_the_places_of_others() -> None:
    said: list[str] = []
    places = Places(10, 1, 4, said.append)
    mine = [user(places, "a") for _ in range(5)]
    assert [one is not None and one.late for one in mine] == [False] * 4 + [True]
    assert mine[4] is not None
    # The place beyond is for a peer: who comes next gets it, until somebody is one.
    peer = enter(places, "a")
    assert peer is not None
    assert peer.late
    assert mine[4].told
    places.leave(mine[4])
    places.proved(peer)
    assert enter(places, "a") is None
    assert [line for line in said if line.startswith("a: connection limit of one address")] == said
    assert len(said) == 1
    others = [user(places, "b") for _ in range(4)]
    assert not any(one is None or one.late for one in others)


def test_a_stranger_of_the_address_makes_room_first() -> None:
    places = Places(10, 0, 2, lambda _: None)
    stranger, first = enter(places, "a"), user(places, "a")
    elsewhere = enter(places, "b")
    second = user(places, "a")
    assert stranger is not None
    assert stranger.told
    assert elsewhere is not None
    assert not elsewhere.told
    assert first is not None
    assert second is not None
    assert not second.late
    places.leave(stranger)
    assert enter(places, "a") is None


def test_a_place_for_peers_stays_one_when_its_stranger_goes() -> None:
    places = Places(2, 1, 2, lambda _: None)
    assert user(places, "a") is not None
    late = [enter(places, "b"), enter(places, "c")]
    assert all(one is not None and one.late for one in late)
    assert late[0] is not None
    assert late[0].told


STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "login", "peer", "leave"]), st.integers(0, 30)),
    max_size=120,
)


@given(STEPS, st.integers(1, 12), st.integers(0, 3), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_whatever_comes_and_goes(
    steps: list[tuple[str, int]], most: int, reserved: int, of_one: int
) -> None:
    reserved = min(reserved, most // 2)
    places = Places(most, reserved, of_one, lambda _: None)
    here: list[Guest] = []
    users: list[Guest] = []
    for what, number in steps:
        if what == "enter":
            address = "abc"[number % 3]
            free = len(here) < most - reserved
            free = free and sum(one.address == address for one in here) < of_one
            one = enter(places, address)
            if free:
                assert one is not None
                assert not one.late
            if one is not None:
                here.append(one)
        elif here:
            one = here[number % len(here)]
            if one.told or what == "leave":
                places.leave(one)
                here.remove(one)
                users = [other for other in users if other is not one]
            elif what == "peer" or not one.late:
                places.proved(one)
                users += [one] if not one.late and one not in users else []
        staying = [one for one in here if not one.told]
        assert len(staying) <= most
        assert len(users) <= max(most - reserved, 0)
        for address in "abc":
            assert sum(one.address == address for one in staying) <= of_one + reserved
            assert sum(one.address == address for one in users) <= of_one
    for one in here:
        places.leave(one)
    fresh = Places(most, reserved, of_one, lambda _: None)
    for name in ("_taken", "_total", "_unproved", "_unproved_of", "_full_of"):
        assert getattr(places, name) == getattr(fresh, name), name


# -- on sockets ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "SWEEP_SECONDS", 0.02)


async def from_there(bench: Bench) -> Wire:
    """A connection of another address."""
    return await bench.dial(local=THERE)


@pytest.mark.asyncio
async def test_guests_of_one_address_leave_room_for_other_addresses() -> None:
    async with node(connections_max=10, per_address=3) as bench:
        greedy = [await bench.dial() for _ in range(3)]
        for one in greedy:
            assert await one.ping()
        refused = await bench.dial(greeted=False)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await refused.reader.readexactly(128)
        assert await (await from_there(bench)).ping()
        assert any(f"{HERE}: connection limit of one address reached: 3" in x for x in bench.lines)
        greedy[0].close()
        while HERE in bench.shell.places._full_of:
            await asyncio.sleep(0.01)
        assert await (await bench.dial()).ping()


@pytest.mark.asyncio
async def test_a_peer_gets_in_from_an_address_that_is_full() -> None:
    async with closed(connections_max=20, per_address=2, reserved=2) as bench:
        users = [await logged_in(bench) for _ in range(2)]
        late = await bench.dial()
        late.writer.write(login(late))
        assert (await late.receive())[1] == 0
        assert await asyncio.wait_for(late.closed(), 5)
        peer = await logged_in(bench, "peer")
        assert await peer.ping()
        assert [await one.ping() for one in users] == [True, True]
