"""What producers were told and what workers saw: the two logs the verdict is drawn from.

Here: plain values, a running tally and a JSON-lines dump. Must not be here: the network, judging.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a request ended for the one who sent it; UNKNOWN means it may or may not have counted."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Put:
    """One attempt to put one URL. `position` is the order of sending, counted over all hosts.

    Attempts of one host all travel on one connection at a time, so positions order them.
    `task_id` is what the server answered, None unless the outcome is OK. `answered_ns` is a reading
    of the monotonic clock, 0 where nobody needs it.
    """

    position: int
    url: str
    host: str
    outcome: Outcome
    task_id: int | None = None
    node: str = ""
    error: str = ""
    answered_ns: int = 0


@dataclass(slots=True)
class Hold:
    """One task in one worker's hands, from the reply to `take` until it lets go.

    `taken_ns` and `ended_ns` are readings of one monotonic clock. `ended_ns` is taken just before
    the ack is sent, or when the worker learned that it holds the task no longer.
    """

    url: str
    host: str
    task_id: int
    worker: int
    taken_ns: int
    ended_ns: int
    outcome: Outcome
    node: str = ""
    error: str = ""


@dataclass(slots=True)
class History:
    """Both logs of one run, appended to as things happen.

    `turned_away` counts calls that a node refused because it does not serve: certainly nothing was
    changed, and the same call was sent again to the node that does.
    """

    puts: list[Put] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    accepted: int = 0
    processed: int = 0
    in_hand: int = 0
    waiting: int = 0
    turned_away: int = 0

    def record_put(self, put: Put) -> None:
        """Add one attempt to the producers' log."""
        self.puts.append(put)
        self.accepted += put.outcome is Outcome.OK

    def record_hold(self, hold: Hold) -> None:
        """Add one finished hold to the workers' log."""
        self.holds.append(hold)
        self.processed += hold.outcome is Outcome.OK

    def errors(self, most: int = 3) -> list[str]:
        """The first few different error texts of both logs."""
        texts = [put.error for put in self.puts] + [hold.error for hold in self.holds]
        return list(dict.fromkeys(text for text in texts if text))[:most]

    def write(self, directory: Path) -> None:
        """Leave both logs as `puts.jsonl` and `holds.jsonl` in a directory that exists."""
        _write_lines(directory / "puts.jsonl", (asdict(put) for put in self.puts))
        _write_lines(directory / "holds.jsonl", (asdict(hold) for hold in self.holds))


def _write_lines(path: Path, rows: Iterable[dict[str, object]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
