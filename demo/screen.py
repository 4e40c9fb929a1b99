"""What a person sees while the frontier runs: a live table, or plain lines without a terminal.

Here: drawing figures of the history and of the nodes. Must not be here: deciding anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from demo.history import History
from demo.pair import Member

_LIVE_SECONDS = 0.25
_LINE_SECONDS = 2.0


class Screen:
    """Shows one run. `run` draws until cancelled; `phase` may be set at any time."""

    def __init__(self, console: Console, history: History, urls: int, nodes: Sequence[str]) -> None:
        self._console = console
        self._members: Sequence[Member] = ()
        self._history = history
        self._urls = urls
        self._nodes = nodes
        self._started = time.monotonic()
        self._last = (self._started, 0, 0)
        self._rates = (0.0, 0.0)
        self.phase = "starting"

    def add_members(self, members: Sequence[Member]) -> None:
        """Show the state and the term of each of them, too."""
        self._members = members

    async def run(self) -> None:
        """Draw for ever: four times a second on a terminal, a line every two seconds elsewhere."""
        if not self._console.is_terminal:
            while True:
                await asyncio.sleep(_LINE_SECONDS)
                self._measure()
                self._console.print(self._line(), highlight=False, soft_wrap=True)
        with Live(self._table(), console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    await asyncio.sleep(_LIVE_SECONDS)
                    self._measure()
                    live.update(self._table(), refresh=True)
            finally:
                live.update(self._table(), refresh=True)

    def _measure(self) -> None:
        now, history = time.monotonic(), self._history
        then, puts, processed = self._last
        self._last = (now, len(history.puts), history.processed)
        seconds = max(now - then, 1e-9)
        self._rates = (
            (len(history.puts) - puts) / seconds,
            (history.processed - processed) / seconds,
        )

    def _line(self) -> str:
        history = self._history
        return (
            f"{time.monotonic() - self._started:5.0f} s  {self.phase}: "
            f"put {history.accepted:,} of {self._urls:,} ({self._rates[0]:,.0f}/s), "
            f"processed {history.processed:,} ({self._rates[1]:,.0f}/s), "
            f"in hand {history.in_hand}, waiting {history.waiting}"
            + "".join(f", {' '.join(_state(member)[:3])}" for member in self._members)
        )

    def _table(self) -> Group | Table:
        if not self._members:
            return self._progress()
        table = Table(title_justify="left", min_width=72)
        for heading in ("node", "state", "term", "LSN", "where"):
            table.add_column(heading, justify="right" if heading == "LSN" else "left")
        for member in self._members:
            table.add_row(*_state(member))
        return Group(self._progress(), table)

    def _progress(self) -> Table:
        history = self._history
        table = Table(title="Polite crawl frontier", title_justify="left", min_width=72)
        for heading in ("", "so far", "now", "progress"):
            table.add_column(heading, justify="left" if heading in {"", "progress"} else "right")
        for label, number, rate in (
            ("put", history.accepted, self._rates[0]),
            ("processed", history.processed, self._rates[1]),
        ):
            bar = ProgressBar(total=max(self._urls, 1), completed=number, width=32)
            table.add_row(label, f"{number:,}", f"{rate:,.0f}/s", bar)
        table.add_row("in hand", f"{history.in_hand}", "", f"{history.waiting} workers waiting")
        elapsed = f"{time.monotonic() - self._started:.1f} s"
        table.add_row("node", ", ".join(self._nodes), elapsed, self.phase)
        return table


def _state(member: Member) -> tuple[str, str, str, str, str]:
    """Name, state, term, LSN and addresses, as last looked at."""
    where = f"{member.address}, admin {member.admin}"
    seen = member.seen
    if seen is None:
        return member.name, "down", "", "", where
    term = f"term {seen['term']['number']}" if seen["term"] else "no term"
    solo = ", alone" if seen["writable"] and seen["solo"] else ""
    return member.name, seen["state"] + solo, term, f"{seen['lsn']:,}", where
