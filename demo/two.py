"""The demonstration on two nodes: load, a flip, a kill, a takeover, the verdict.

Here: the order of steps. Must not be here: judging (verdict.py), calls (team.py), flips
(script.py).
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from rich.console import Console

from demo import audit
from demo.history import History
from demo.outcome import EXIT_FAILED, EXIT_OK, show
from demo.pair import Member, cluster, watch
from demo.screen import Screen
from demo.script import Deed, Script
from demo.team import Guide, Team, TeamPlan
from demo.verdict import Verdict, judge

#: However slow the machine is: putting ends after this many times what was asked for.
_SLOW_FACTOR = 2.0


def _plan(options: argparse.Namespace, urls: int) -> TeamPlan:
    return TeamPlan(
        producers=options.workers,
        workers=options.workers,
        rate=urls / options.seconds,
        put_seconds=min(options.seconds * _SLOW_FACTOR, 90.0),
        fetch_seconds=options.fetch_ms / 1_000,
    )


async def demonstrate_two(
    console: Console, options: argparse.Namespace, urls: list[str], directory: Path
) -> int:
    """Run it; the exit code. Raises what `outcome.CAUSES` lists, alone or in a group."""
    history, plan = History(), _plan(options, len(urls))
    async with cluster(
        directory, wal_mode=options.wal_mode, ack=options.ack, witness=options.witness
    ) as (a, b):
        console.print(
            f"{len(urls):,} URLs, {options.workers} producers and as many workers; "
            f"node a on {a.address} (admin {a.admin}), b on {b.address} (admin {b.admin}), "
            f"wal.mode {options.wal_mode}, replication.ack {options.ack}",
            highlight=False,
            soft_wrap=True,
        )
        screen = Screen(console, history, len(urls), [a.address, b.address])
        screen.add_members((a, b))
        drawing = [asyncio.create_task(screen.run()), asyncio.create_task(watch((a, b)))]
        try:
            left, deeds = await _crawl(
                console, screen, history, (a, b), plan, urls, options.witness
            )
        finally:
            for task in drawing:
                task.cancel()
            await asyncio.gather(*drawing, return_exceptions=True)
            if options.keep:
                history.write(directory)
    verdict = judge(history.puts, history.holds, left_in_tube=left, interrupted=True)
    told = directory / "clients.jsonl"
    audit.write_clients(told, history.puts, plan.tube)
    sound = await _audit(console, (a, b), told) if options.audit else True
    _conclude(console, verdict, history, deeds, len(urls))
    if verdict.ok and not sound:
        console.print("verdict: FAILED: the logs do not bear it out, see above", highlight=False)
    return EXIT_OK if verdict.ok and sound else EXIT_FAILED


async def _audit(console: Console, members: tuple[Member, Member], told: Path) -> bool:
    """What the nodes' own logs say, where Spark is there to read them; else one line why not."""
    if (reason := audit.missing()) is not None:
        console.print(f"audit of the logs: not done, {reason}", highlight=False, soft_wrap=True)
        return True
    console.print(">> both logs are audited with Spark", highlight=False, soft_wrap=True)
    sound, text = await audit.judge([member.data for member in members], told)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return sound


async def _crawl(
    console: Console,
    screen: Screen,
    history: History,
    members: tuple[Member, Member],
    plan: TeamPlan,
    urls: list[str],
    witness: bool,
) -> tuple[int, list[Deed]]:
    """Load and operator at the same time; what the server says is left, and what was done."""

    def say(text: str) -> None:
        screen.phase = text.split(":")[0].split(",")[0]
        console.print(f">> {text}", highlight=False, markup=False, soft_wrap=True)

    guide = Guide({member.name: member.port for member in members}, plan.patience_seconds)
    team = Team(guide, history, plan)
    over = asyncio.Event()
    script = Script(
        *members, lambda: 1.0 if over.is_set() else history.processed / len(urls), say, witness
    )
    try:
        await team.create_tube()
        screen.phase = "crawling"
        async with asyncio.TaskGroup() as group:
            group.create_task(script.run())
            await team.run(urls)
            over.set()
        return await team.left_in_tube(), script.deeds
    finally:
        await guide.close()


def _conclude(
    console: Console, verdict: Verdict, history: History, deeds: list[Deed], urls: int
) -> None:
    rows = [("turned away, sent again", f"{history.turned_away:,}")]
    if len(history.puts) < urls:
        rows.append(("not put, time was up", f"{urls - len(history.puts):,}"))
    for deed in deeds:
        pause = deed.pause(history.puts)
        accepted = "" if pause is None else f", first put accepted after {pause * 1_000:.0f} ms"
        rows.append((deed.name, f"{deed.seconds * 1_000:.0f} ms{accepted}"))
    show(console, verdict, history, rows)
