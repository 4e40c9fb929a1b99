"""What every arbiter does alike, and how each of them fails: one suite over all of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from tandemq_server.arbiters.base import Arbiter, ArbiterRefused, SwapLost, Unreachable
from tandemq_server.statemachine.seat import Seat, SeatReading
from tests.arbiters.arbiter_worlds import SLACK_S, World, a_seat

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def within(seconds: float, answers: AsyncIterator[SeatReading]) -> SeatReading:
    async with asyncio.timeout(seconds):
        return await anext(answers)


async def eventually(what: str, arbiter: Arbiter, nodes: set[str], seconds: float) -> float:
    began = time.monotonic()
    while await arbiter.alive() != nodes:
        assert time.monotonic() - began < seconds, what
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def test_a_register_nobody_wrote_is_taken_once(world: World) -> None:
    async with world:
        one, other = world.client(), world.client()
        assert await one.read() == SeatReading(None, 0)
        seat = a_seat()
        won = await one.swap(0, seat)
        assert won.seat == seat
        assert won.revision > 0
        assert await other.read() == won
        with pytest.raises(SwapLost) as lost:
            await other.swap(0, a_seat(master="b", partner=None))
        assert lost.value.reading == won
        assert await one.read() == won


async def test_the_same_seat_again_is_another_revision(world: World) -> None:
    """What keeps a late request from being carried out: null to null moves the revision."""
    async with world:
        one = world.client()
        seat = a_seat(partner=None)
        first = await one.swap(0, seat)
        second = await one.swap(first.revision, seat)
        assert second.revision > first.revision
        with pytest.raises(SwapLost) as lost:
            await one.swap(first.revision, seat)
        assert lost.value.reading == second


async def test_of_many_who_swap_at_once_one_wins(world: World) -> None:
    async with world:
        clients = [world.client(timeout_s=5.0) for _ in range(6)]
        revision = 0
        for no in range(1, 16):
            seats = [a_seat(no, f"n{number}", None) for number in range(len(clients))]
            answers = await asyncio.gather(
                *(one.swap(revision, seat) for one, seat in zip(clients, seats, strict=True)),
                return_exceptions=True,
            )
            (won,) = [answer for answer in answers if isinstance(answer, SeatReading)]
            assert won.seat in seats
            assert won.revision > revision
            for answer in answers:
                if answer is not won:
                    assert isinstance(answer, SwapLost), repr(answer)
                    assert answer.reading == won
            revision = won.revision


async def test_no_swap_is_lost_and_none_is_made_twice(world: World) -> None:
    """Everybody counts the number up for a while: each number was won by one."""
    async with world:
        end = time.monotonic() + 30.0
        won: list[int] = []

        async def count(client: Arbiter, name: str) -> None:
            while len(won) <= 40 and time.monotonic() < end:
                found = await client.read()
                no = found.seat.no + 1 if found.seat is not None else 1
                with contextlib.suppress(SwapLost):
                    await client.swap(found.revision, a_seat(no, name, None))
                    won.append(no)
                await asyncio.sleep(0)

        await asyncio.gather(
            *(count(world.client(timeout_s=5.0), f"n{number}") for number in range(4))
        )
        found = await world.client().read()
        assert found.seat is not None
        assert sorted(won) == list(range(1, found.seat.no + 1))
        assert len(won) > 20


async def test_clusters_do_not_see_each_other(world: World) -> None:
    async with world:
        one, other = world.client(), world.client(cluster=world.cluster + "-other")
        await one.swap(0, a_seat())
        await one.keep_alive("a")
        assert await other.read() == SeatReading(None, 0)
        assert await other.alive() == frozenset()


async def test_a_key_lives_as_long_as_it_is_kept(world: World) -> None:
    async with world:
        one, other = world.client(ttl_s=2.0), world.client(ttl_s=2.0)
        assert await other.alive() == frozenset()
        await asyncio.gather(one.keep_alive("a"), other.keep_alive("b"))
        assert await one.alive() == {"a", "b"}
        began = time.monotonic()
        while time.monotonic() - began < 4.0:
            await one.keep_alive("a")
            assert "a" in await other.alive()
            await asyncio.sleep(0.5)
        assert await other.alive() == {"a"}
        took = await eventually("a's key is gone", other, set(), 8.0)
        assert took > 1.0


async def test_a_node_that_was_gone_lives_again(world: World) -> None:
    async with world:
        one, other = world.client(ttl_s=1.0), world.client(ttl_s=1.0)
        await one.keep_alive("a")
        await eventually("a's key is gone", other, set(), 8.0)
        await one.keep_alive("a")
        assert await other.alive() == {"a"}


async def test_a_watch_shows_each_step_at_once_and_nothing_older(world: World) -> None:
    async with world:
        one, other = world.client(), world.client()
        first = await one.swap(0, a_seat(1))
        async with contextlib.aclosing(other.watch(0)) as watch:
            assert await within(5.0, watch) == first
            revision, seen = first.revision, [first]
            for no in range(2, 12):
                swapped = await one.swap(revision, a_seat(no))
                began = time.monotonic()
                seen.append(await within(5.0, watch))
                assert seen[-1] == swapped
                assert time.monotonic() - began < SLACK_S
                revision = swapped.revision
        revisions = [reading.revision for reading in seen]
        assert revisions == sorted(set(revisions))


async def test_a_watch_from_now_on_waits(world: World) -> None:
    async with world:
        one, other = world.client(), world.client()
        first = await one.swap(0, a_seat(1))
        async with contextlib.aclosing(other.watch(first.revision)) as watch:
            waiting = asyncio.create_task(anext(watch))
            # Longer than any adapter asks by the way.
            await asyncio.sleep(2.5)
            assert not waiting.done()
            second = await one.swap(first.revision, a_seat(2))
            async with asyncio.timeout(5.0):
                assert await waiting == second


async def test_long_texts_and_strange_ones_come_back(world: World) -> None:
    async with world:
        one = world.client()
        seat = a_seat(2**53, "A-1.b_c", None, "b: nahm den Sitz, « ü » 座 " + "x" * 400)
        assert (await one.swap(0, seat)).seat == seat
        assert (await world.client().read()).seat == seat


async def test_what_is_for_people_is_made_to_fit_and_what_is_no_seat_refused(world: World) -> None:
    async with world:
        one = world.client()
        won = await one.swap(0, a_seat(by="two\nlines \x1b " + "x" * 1000))
        assert won.seat is not None
        assert won.seat.by.startswith("two lines")
        assert await one.read() == won
        for bad in (a_seat(master="a b"), a_seat(partner="a"), a_seat(-1)):
            with pytest.raises(ArbiterRefused):
                await one.swap(won.revision, bad)
        assert await one.read() == won


# -- the way there ---------------------------------------------------------------------------------


async def outcome(client: Arbiter, revision: int, seat: Seat) -> SeatReading | Exception:
    """What a swap ends with, and that it does so within its bound of a second."""
    began = time.monotonic()
    try:
        return await client.swap(revision, seat)
    except (SwapLost, Unreachable) as error:
        return error
    finally:
        assert time.monotonic() - began < 1.0 + SLACK_S


async def test_nobody_there_is_said_within_the_bound(remote: World) -> None:
    async with remote:
        links = remote.links()
        client = remote.client(links=links)
        await client.read()
        for link in links:
            link.cut()
        for call in (client.read, client.alive, lambda: client.keep_alive("a")):
            began = time.monotonic()
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                await call()
            assert time.monotonic() - began < 1.0 + SLACK_S
        assert isinstance(await outcome(client, 0, a_seat()), Unreachable)
        with pytest.raises(Unreachable):
            await within(1.0 + SLACK_S, client.watch(0))


async def test_a_silent_way_is_said_within_the_bound(remote: World) -> None:
    async with remote:
        links = remote.links()
        client = remote.client(links=links)
        await client.read()
        for link in links:
            link.add("timeout", "downstream", timeout=0)
        for call in (client.read, client.alive, lambda: client.keep_alive("a")):
            began = time.monotonic()
            with pytest.raises(Unreachable, match="no answer within"):
                await call()
            assert time.monotonic() - began < 1.0 + SLACK_S


async def test_a_request_that_is_lost_changes_nothing(remote: World) -> None:
    async with remote:
        links, straight = remote.links(), remote.client()
        client = remote.client(links=links)
        first = await client.swap(0, a_seat())
        for link in links:
            link.add("timeout", "upstream", timeout=0)
        assert isinstance(await outcome(client, first.revision, a_seat(2)), Unreachable)
        assert await straight.read() == first


async def test_a_reply_that_is_lost_leaves_the_outcome_open(remote: World) -> None:
    """It was carried out, and whoever asked is not told so: nothing is claimed either way."""
    async with remote:
        links, straight = remote.links(), remote.client()
        client = remote.client(links=links)
        first = await client.swap(0, a_seat())
        for link in links:
            link.add("timeout", "downstream", timeout=0)
        seat = a_seat(2)
        assert isinstance(await outcome(client, first.revision, seat), Unreachable)
        found = await straight.read()
        assert found.seat == seat
        for link in links:
            link.heal()
        again = await outcome(client, first.revision, a_seat(2, "b", None))
        assert isinstance(again, SwapLost)
        assert again.reading == found


async def test_a_swap_that_is_asked_twice_is_made_once(remote: World) -> None:
    """The first reply is cut off, the second way is free: won, and by one step."""
    async with remote:
        links, straight = remote.links(), remote.client()
        client = remote.client(links=links[:1], timeout_s=3.0)
        first = await client.swap(0, a_seat())
        # The request gets through whole, of the reply not a byte, and then the connection ends.
        name = links[0].add("limit_data", "downstream", bytes=1)
        seat = a_seat(2)
        asking = asyncio.create_task(client.swap(first.revision, seat))
        while (found := await straight.read()) == first:
            await asyncio.sleep(0.01)
        assert found.seat == seat
        assert not asking.done()
        await asyncio.to_thread(links[0].release, name)
        assert await asking == found
        assert await straight.read() == found


async def test_a_late_request_dies_when_somebody_else_swapped(remote: World) -> None:
    async with remote:
        links, straight = remote.links(), remote.client()
        client = remote.client(links=links)
        first = await client.swap(0, a_seat())
        for link in links:
            link.add("latency", "upstream", latency=1500)
        late = a_seat(2, by="late")
        assert isinstance(await outcome(client, first.revision, late), Unreachable)
        second = await straight.swap(first.revision, a_seat(2, "b", None))
        await asyncio.sleep(1.5)
        assert await straight.read() == second


async def test_a_watch_outlives_a_break(remote: World) -> None:
    async with remote:
        links, straight = remote.links(), remote.client()
        first = await straight.swap(0, a_seat(1))
        client = remote.client(links=links, timeout_s=3.0)
        async with contextlib.aclosing(client.watch(0)) as watch:
            assert await within(5.0, watch) == first
            waiting = asyncio.create_task(anext(watch))
            await asyncio.sleep(0.3)
            for link in links:
                await asyncio.to_thread(link.cut)
            second = await straight.swap(first.revision, a_seat(2))
            third = await straight.swap(second.revision, a_seat(3))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            for link in links:
                await asyncio.to_thread(link.heal)
            async with asyncio.timeout(8.0):
                assert await waiting == third


async def test_a_watch_whose_way_is_silent_ends(remote: World) -> None:
    async with remote:
        links, straight = remote.links(), remote.client()
        first = await straight.swap(0, a_seat(1))
        client = remote.client(links=links)
        async with contextlib.aclosing(client.watch(0)) as watch:
            assert await within(5.0, watch) == first
            for link in links:
                await asyncio.to_thread(link.add, "timeout", "downstream", timeout=0)
            with pytest.raises(Unreachable):
                # Silence is noticed when the next look is due, and then a bound passes.
                await within(6.0, watch)
