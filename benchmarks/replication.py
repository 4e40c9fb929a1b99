"""Two nodes: what a replica costs the master, how long flips and promotions take, catching up.

Here: the measurements of one section. Must not be here: the table, options, a node's flags.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.table import Row, at_least, at_most, rate
from benchmarks.target import Effort, Say, Target, tandem
from demo.crowd import connect, disconnect
from demo.history import History
from demo.pair import Member, cluster, in_step, until
from demo.team import Guide, Seat, Team, TeamPlan

SECTION = "two nodes"
FLIPS, FLIPS_FULL = 20, 100
TASKS, TASKS_FULL = 100_000, 1_000_000
TAKEN, TAKEN_FULL = 10_000, 100_000
#: Records a replica lacks while the master goes on: more than it can fetch meanwhile.
BACKLOG = 200_000
RATE = 2_000.0
_TUBE = "fifo"


async def run(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Every measurement of the section; rows and what they were made of."""
    rows, raw = await _cost(directory, effort, say)
    flips, times = await _flips(directory, effort, say)
    grown, more = await _promotions(directory, effort, say)
    caught, last = await _catch_up(directory, effort, say)
    return [*rows, *flips, *grown, *caught], {**raw, **times, **more, **last}


@asynccontextmanager
async def pair(
    directory: Path, effort: Effort, ack: str = "local"
) -> AsyncIterator[tuple[Member, Member, Target]]:
    """Both nodes, and the master with its connections and a fifo tube."""
    async with cluster(directory, ack=ack) as (a, b):
        connections = await connect("127.0.0.1", a.port, effort.connections)
        target = Target(a, effort, connections)
        try:
            await target.create(_TUBE, "fifo")
            yield a, b, target
        finally:
            await disconnect(connections)


# -- what a replica costs --------------------------------------------------------------------------


async def _cost(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """CPU per operation: alone, then with a replica in both modes, in turns in the same minute."""
    modes = {"local": 1.10, "pair": 1.20}
    replicas = dict.fromkeys(modes, 0.0)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(tandem(directory / "alone", effort, tubes=(_TUBE,)))
        pairs = {
            ack: await stack.enter_async_context(pair(directory / ack, effort, ack))
            for ack in modes
        }
        for turn in range(effort.runs):
            say(f"one node, then two in both modes, {turn + 1} of {effort.runs}")
            await one.put_then_drain(_TUBE)
            for ack, (_, b, both) in pairs.items():
                before = b.cpu_seconds()
                await both.put_then_drain(_TUBE)
                replicas[ack] += b.cpu_seconds() - before
        delays = await _delays(pairs["pair"][2], effort)
    rows, raw = [], {"alone": _seconds(one)}
    for ack, bound in modes.items():
        both = pairs[ack][2]
        raw[ack] = _seconds(both)
        rows += [
            _held(f"{ack}: {piece}", f"{_TUBE} {piece}", both, one, bound)
            for piece in ("put", "take+ack")
        ]
        share = replicas[ack] / sum(sum(seconds) for seconds in raw[ack].values())
        goals = [at_most(share, 0.5, "x")] if ack == "local" else []
        rows.append(Row(SECTION, f"{ack}: replica's CPU", f"{share:.2f}x", goals=goals))
    text = f"p50 {at(delays, 0.5):.2f} ms, p99 {at(delays, 0.99):.2f} ms"
    rows.append(Row(SECTION, "pair: a put by one producer", text))
    return rows, {"cost_cpu_seconds": raw}


def _held(title: str, name: str, both: Target, one: Target, bound: float) -> Row:
    """A master with a replica beside a node alone: the median of what each turn says."""
    mine, alone = both.median(name), one.median(name)
    turns = zip(both.taken[name], one.taken[name], strict=True)
    dearer = statistics.median([with_it.server_us / bare.server_us for with_it, bare in turns])
    return Row(
        SECTION,
        title,
        rate(mine.rate),
        mine.server_us,
        mine.client_us,
        f"alone {rate(alone.rate)}, {alone.server_us:.1f} us",
        [at_most(dearer, bound, "x")],
    )


def _seconds(target: Target) -> dict[str, list[float]]:
    """Server CPU seconds of each sample by name."""
    return {
        name: [sample.server_seconds for sample in samples]
        for name, samples in target.taken.items()
    }


async def _delays(target: Target, effort: Effort) -> list[float]:
    """Milliseconds of single puts, one after the other."""
    found = []
    for _ in range(min(effort.count, 2_000)):
        began = time.perf_counter()
        await target.connections[0].call(f"queue.tube.{_TUBE}:put", ["x"])
        found.append((time.perf_counter() - began) * 1_000)
    return found


def at(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


# -- flips -----------------------------------------------------------------------------------------


async def _flips(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    count = FLIPS_FULL if effort.full else FLIPS
    async with pair(directory / "flips", effort) as (a, b, _):
        say(f"{count} flips, idle")
        idle = [await idle_flip(*pair) for pair in _turns(a, b, count)]
        say(f"{count} flips at {RATE:,.0f} operations a second")
        busy, unknown = await _busy_flips(a, b, count)
    rows = []
    for name, times, share, bound in (("idle", idle, 0.5, 50), ("busy", busy, 0.99, 300)):
        figure = f"p50 {at(times, 0.5):.0f} ms, p99 {at(times, 0.99):.0f} ms"
        goal = at_most(at(times, share), bound, " ms")
        rows.append(Row(SECTION, f"switch-over, {name} ({count})", figure, goals=[goal]))
    rows[-1].goals.append(at_most(unknown, 0, " unknown"))
    say("forced promotion of a replica that has everything")
    forced = []
    for turn in range(min(effort.runs, 3)):
        async with pair(directory / f"forced{turn}", effort) as (a, b, _):
            await until("in step", lambda a=a, b=b: in_step(b, a), (a, b))
            await a.kill()
            forced.append(await _promote(b))
    figure = ", ".join(f"{value:.0f}" for value in forced) + " ms"
    rows.append(Row(SECTION, "forced promotion", figure, goals=[at_most(max(forced), 500, " ms")]))
    return rows, {"flips_ms": {"idle": idle, "busy": busy, "forced": forced}}


def _turns(a: Member, b: Member, count: int) -> list[tuple[Member, Member]]:
    return [(a, b) if turn % 2 == 0 else (b, a) for turn in range(count)]


async def idle_flip(old: Member, new: Member) -> float:
    """Milliseconds from the command to the first put the new node accepts."""
    await until("in step", lambda: in_step(new, old), (old, new))
    connection = (await connect("127.0.0.1", new.port, 1))[0]
    client = old.client()
    began = time.perf_counter()
    await asyncio.to_thread(client.switchover, new.name)
    await connection.call(f"queue.tube.{_TUBE}:put", ["x"])
    took = (time.perf_counter() - began) * 1_000
    await disconnect([connection])
    return took


async def _busy_flips(a: Member, b: Member, count: int) -> tuple[list[float], int]:
    """The same under puts, takes and acks; and how many calls had an unknown outcome."""
    history = History()
    guide = Guide({"a": a.port, "b": b.port}, 30.0)
    # Enough for a machine on which a flip with its pause takes three seconds.
    seconds = count * 3.0
    urls = [f"https://host{n % 997}.example/{n}" for n in range(int(RATE / 3 * seconds * 2))]
    plan = TeamPlan(tube="busy", rate=RATE / 3, put_seconds=seconds, fetch_seconds=0.0)
    team = Team(guide, history, plan)
    await team.create_tube()
    crowd = asyncio.create_task(team.run(urls))
    began = []
    await asyncio.sleep(0.6)
    for old, new in _turns(a, b, count):
        await until("in step", lambda old=old, new=new: in_step(new, old), (old, new))
        began.append((time.monotonic_ns(), new.name))
        await asyncio.to_thread(old.client().switchover, new.name)
        # Also the last one has a put that tells when the new node served.
        await asyncio.sleep(0.6)
    team.enough()
    await crowd
    await guide.close()
    found = []
    for moment, name in began:
        first = min(
            p.answered_ns for p in history.puts if p.node == name and p.answered_ns > moment
        )
        found.append((first - moment) / 1e6)
    unknown = sum(put.outcome == "unknown" for put in history.puts)
    return found, unknown + sum(hold.outcome == "unknown" for hold in history.holds)


async def _promote(node: Member) -> float:
    """Milliseconds of a forced promotion, as the client sees it."""
    client = node.client(60.0)
    began = time.perf_counter()
    await asyncio.to_thread(client.set_read_only, False, True)
    return (time.perf_counter() - began) * 1_000


# -- promotion by size, catching up ----------------------------------------------------------------


async def _promotions(
    directory: Path, effort: Effort, say: Say
) -> tuple[list[Row], dict[str, object]]:
    many, taken = (TASKS_FULL, TAKEN_FULL) if effort.full else (TASKS, TAKEN)
    times = {}
    for name, ready, held in (("few", 1_000, 0), ("many", many, 0), ("taken", 0, taken)):
        say(f"promotion with {ready:,} ready and {held:,} taken tasks")
        found = []
        for turn in range(min(effort.runs, 3)):
            async with pair(directory / f"{name}{turn}", effort) as (a, b, target):
                await target.put_batches(_TUBE, ready + held)
                seat = Seat(Guide({"a": a.port}, 10.0))
                for _ in range(held // 1_000):
                    await seat.call(f"queue.tube.{_TUBE}:take_many", [1_000])
                await until("in step", lambda a=a, b=b: _same(a, b), (a, b))
                # What was just written is synced in the background, also without a promotion.
                await asyncio.sleep(2.5)
                await a.kill()
                found.append(await _promote(b))
                await seat.close()
        times[name] = sorted(found)[len(found) // 2]
    grown = times["many"] / times["few"]
    rows = [
        Row(SECTION, "promotion, 1,000 ready", f"{times['few']:.0f} ms"),
        Row(
            SECTION,
            f"promotion, {many:,} ready",
            f"{times['many']:.0f} ms",
            goals=[at_most(grown, 1.5, "x")],
        ),
        Row(
            SECTION,
            f"promotion, {taken:,} taken",
            f"{times['taken']:.0f} ms",
            goals=[at_most(times["taken"], 2_000, " ms")],
        ),
    ]
    return rows, {"promotion_ms": times}


def _same(a: Member, b: Member) -> bool:
    return bool(in_step(b, a) and a.seen and b.seen and a.seen["lsn"] == b.seen["lsn"])


async def _catch_up(
    directory: Path, effort: Effort, say: Say
) -> tuple[list[Row], dict[str, object]]:
    """A replica that was away: records a second, beside the rate at which they were made.

    First alone, counted from the moment it is there; then, several times, while the master goes on
    producing, whose rate and CPU are held against those it had just before with the replica away.
    """
    count = TASKS_FULL if effort.full else 3 * TASKS
    alone, beside, behind = [], [], []
    async with pair(directory / "away", effort) as (a, b, target):
        say(f"catching up with {count:,} records")
        await b.stop()
        made = await target.measure("make", target.put(_TUBE, count))
        caught = await _caught_up(a, b)
        for turn in range(effort.runs):
            say(f"catching up while the master goes on, {turn + 1} of {effort.runs}")
            await b.stop()
            await target.put(_TUBE, BACKLOG)
            alone.append(await target.measure("alone", target.put(_TUBE, effort.count)))
            await b.start()
            await until("back", lambda: _lacks(a) is not None, (a,))
            # Nobody asks the nodes how far they are meanwhile: that takes time of all three.
            beside.append(await target.measure("beside", target.put(_TUBE, effort.count)))
            await a.look()
            behind.append(bool(_lacks(a)))
            await until("caught up", lambda: _lacks(a) == 0, (a,))
    slower = statistics.median(
        [one.rate / two.rate for one, two in zip(alone, beside, strict=True)]
    )
    dearer = statistics.median(
        [two.server_us / one.server_us for one, two in zip(alone, beside, strict=True)]
    )
    left, with_it = target.median("alone"), target.median("beside")
    text = f"made at {rate(made.rate)}"
    rows = [
        Row(
            SECTION,
            f"catch-up, {count:,} records",
            rate(caught),
            yardstick=text,
            goals=[at_least(caught / made.rate, 5)],
        ),
        Row(
            SECTION,
            "put while a replica catches up",
            rate(with_it.rate),
            with_it.server_us,
            with_it.client_us,
            f"replica away {rate(left.rate)}, {left.server_us:.1f} us ({dearer:.2f}x); "
            f"still behind {sum(behind)} of {len(behind)} times",
            [at_most(slower, 1.2, "x slower")],
        ),
    ]
    return rows, {"catch_up": {"made": made.rate, "caught": caught, "slower": slower}}


async def _caught_up(a: Member, b: Member) -> float:
    """Start a replica that lacks records; those it made durable a second, once it is there."""
    await b.start()
    await until("back", lambda: _lacks(a) is not None, (a,))
    lacks, began = _lacks(a), time.monotonic()
    await until("caught up", lambda: _lacks(a) == 0, (a,))
    return (lacks or 0) / (time.monotonic() - began)


def _lacks(master: Member) -> int | None:
    """Records that its downstream has not confirmed, None while there is none."""
    peers = master.seen["peers"] if master.seen is not None else ()
    lags = [peer["lag"] for peer in peers if peer["connected"] and peer["role"] == "downstream"]
    return lags[0]["records"] if lags and lags[0] else None
