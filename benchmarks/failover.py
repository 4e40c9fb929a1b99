"""A pair whose seat a witness keeps, beside one without: CPU of the master, planned switch-overs.

Here: the measurements of one section. Must not be here: how long a takeover takes after a kill
(tests/failover, with KILLS=100), the table, options.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.replication import at, idle_flip
from benchmarks.table import Row, at_most, rate
from benchmarks.target import Effort, Say, Target
from demo.crowd import connect, disconnect
from demo.pair import Member, cluster, until

SECTION = "failover"
FLIPS, FLIPS_FULL = 20, 300
READY = 1_000_000
#: One turn beside another differs by a tenth either way, and a fiftieth is looked for: so there are
#: many turns, of so many operations at most.
TURNS_A_RUN, TURN_COUNT = 15, 20_000
#: "No slower" with many ready tasks: two turns of the same pair differ by as much.
SLOWER_MAX = 1.2
#: Seconds after a million puts until the pair is as quiet as the others.
SETTLE_SECONDS = 2.5
_TUBE = "fifo"
_KINDS = ("without the seat", "with the seat", f"with the seat, {READY:,} ready")


async def run(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Every measurement of the section; rows and what they were made of."""
    rows, raw = await _cost(directory, effort, say)
    flips, times = await _flips(directory, effort, say)
    return [*rows, *flips], {**raw, **times}


@asynccontextmanager
async def _pair(
    directory: Path, effort: Effort, witness: bool
) -> AsyncIterator[tuple[Member, Member, Target]]:
    async with cluster(directory, ack="pair", witness=witness) as (a, b):
        connections = await connect("127.0.0.1", a.port, effort.connections)
        target = Target(a, effort, connections)
        try:
            await target.create(_TUBE, "fifo")
            if witness:
                await until("paired", _partner_of(a), (a,))
            yield a, b, target
        finally:
            await disconnect(connections)


def _partner_of(master: Member) -> Callable[[], bool]:
    def named() -> bool:
        seat = (master.seen or {}).get("failover") or {}
        return bool(seat.get("master") == master.name and seat.get("partner"))

    return named


async def _cost(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """CPU per operation of the master in pair mode, without and with the seat, in turns."""
    effort = replace(effort, count=min(effort.count, TURN_COUNT))
    async with AsyncExitStack() as stack:
        *_, bare = await stack.enter_async_context(_pair(directory / "bare", effort, False))
        *_, seated = await stack.enter_async_context(_pair(directory / "seated", effort, True))
        count = TURNS_A_RUN * effort.runs
        for turn in range(count):
            say(f"pair mode, without and with the seat, {turn + 1} of {count}")
            # Who goes first in a turn changes: the second one finds a warmer machine.
            for target in (bare, seated) if turn % 2 else (seated, bare):
                await target.put_then_drain(_TUBE)
    rows = []
    for piece in ("put", "take+ack"):
        name = f"{_TUBE} {piece}"
        mine, other = seated.median(name), bare.median(name)
        turns = zip(seated.taken[name], bare.taken[name], strict=True)
        ratios = [one.server_us / two.server_us for one, two in turns]
        low, dearer, high = statistics.quantiles(ratios, n=4)
        rows.append(
            Row(
                SECTION,
                f"{piece} with the seat",
                rate(mine.rate),
                mine.server_us,
                mine.client_us,
                f"without {rate(other.rate)}, {other.server_us:.1f} us; of {count} turns the "
                f"middle half {low:.2f}x to {high:.2f}x",
                [at_most(dearer, 1.02, "x")],
            )
        )
    return rows, {"seat_cost_us": {row.name: row.server_us for row in rows}}


async def _flips(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Planned switch-overs, idle: without the seat, with it, and with it and many ready tasks.

    All three pairs stand side by side and are switched over in turns, so that whatever else the
    machine does meets each of them alike.
    """
    count = FLIPS_FULL if effort.full else FLIPS
    names = bare, seated, full = _KINDS
    async with AsyncExitStack() as stack:
        pairs = {}
        for name in names:
            place = directory / name.replace(" ", "_")
            pairs[name] = await stack.enter_async_context(_pair(place, effort, name != bare))
        say(f"{READY:,} tasks to switch over with")
        await pairs[full][2].put_batches(_TUBE, READY)
        await asyncio.sleep(SETTLE_SECONDS)
        say(f"{count} switch-overs of each pair, in turns")
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(count):
            for name in names[turn % 3 :] + names[: turn % 3]:
                a, b, _ = pairs[name]
                old, new = (a, b) if turn % 2 == 0 else (b, a)
                if name != bare:
                    await until("paired", _partner_of(old), (old, new))
                times[name].append(await idle_flip(old, new))
    rows = []
    for name, found in times.items():
        figure = f"p50 {at(found, 0.5):.0f} ms, p99 {at(found, 0.99):.0f} ms"
        goals = [at_most(at(found, 0.99), 50, " ms")]
        if name == full:
            goals = [
                at_most(
                    at(found, point) / at(times[seated], point),
                    SLOWER_MAX,
                    f"x of p{point * 100:.0f}",
                )
                for point in (0.5, 0.99)
            ]
        rows.append(Row(SECTION, f"switch-over {name} ({count})", figure, goals=goals))
    return rows, {"seat_flips_ms": times}
