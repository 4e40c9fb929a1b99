"""What clients were told, and when: the only thing the checkers see besides the nodes' own rows.

Moments are seconds of this process' monotonic clock. An outcome is one of four: "ok", "refused"
(an error came back: nothing was done), "unknown" (sent, and no answer), or None (not asked).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.chaos_client import READ_ONLY, NotSent, Refused

Key = tuple[str, int]


def result_of(error: Refused) -> str:
    """The judge's word for a refusal."""
    if error.code == READ_ONLY:
        return "read_only"
    for word in ("not taken", "not found"):
        if word in str(error):
            return word.replace(" ", "_")
    return "other"


@dataclass(slots=True)
class Put:
    """One task put; with a key, all attempts to put it. node: of the last one. padded: its payload
    is more than its value."""

    value: int
    tube: str
    node: str
    sent: float
    done: float | None = None
    outcome: str | None = None
    task: int | None = None
    key: str | None = None
    utube: str | None = None
    padded: bool = False

    def arguments(self) -> tuple[int, dict[str, Any]]:
        """Data and options of the call."""
        given = {"key": self.key, "utube": self.utube}
        return self.value, {name: value for name, value in given.items() if value is not None}


@dataclass(slots=True)
class Delivery:
    """A task in a worker's hand. asked, got: of the take. sent, tried: of the first and the last
    attempt to ack; done: when it ended.

    ended: from when on the worker may not count on its lease any more (connection gone, another
    node promoted); None while nothing of the kind happened.
    """

    value: int
    tube: str
    task: int
    token: int | None
    worker: str
    node: str
    asked: float
    got: float
    ended: float | None = None
    sent: float | None = None
    tried: float | None = None
    done: float | None = None
    outcome: str | None = None
    ack_node: str | None = None

    def held_until(self) -> float:
        """The end of the time in which it was certainly this worker's."""
        ends = [end for end in (self.ended, self.sent) if end is not None]
        return min(ends, default=float("inf"))


@dataclass(slots=True)
class Loss:
    """What `node` acknowledged between two moments may be undone: a forced promotion elsewhere."""

    node: str
    since: float
    until: float

    def covers(self, node: str | None, moment: float | None) -> bool:
        return node == self.node and moment is not None and self.since <= moment <= self.until


@dataclass(slots=True)
class Forgotten:
    """A session's UUID was refused: when its connection went, when it was named again."""

    worker: str
    lost: float
    asked: float


@dataclass(slots=True)
class Attempt:
    """One call about one task, as the outside judge wants it. outcome: as in the module's head."""

    kind: str
    client: str
    session: str
    node: str
    tube: str
    began: float
    ended: float = 0.0
    outcome: str = "unknown"
    task: int | None = None
    value: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """Everything one run recorded.

    left: what the final drain found, as (tube, task, value). rescued: values in rescue files.
    attempts, leases: every call, and (session, from, to) of leases that may have ended.
    """

    puts: list[Put] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)
    left: list[tuple[str, int, int]] = field(default_factory=list)
    rescued: set[int] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    leases: list[tuple[str, float, float]] = field(default_factory=list)
    drained: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def attempt(
        self, kind: str, client: str, session: str, node: str, **more: Any
    ) -> Iterator[Attempt]:
        """A call under way: without a word from whoever makes it, nobody knows what it did."""
        made = Attempt(kind, client, session, node, began=time.monotonic(), **more)
        self.attempts.append(made)
        try:
            yield made
        except NotSent:
            self.attempts.remove(made)
            raise
        except Refused as error:
            made.outcome, made.more["result"] = "refused", result_of(error)
            raise
        finally:
            made.ended = time.monotonic()

    def may_be_undone(self, node: str | None, moment: float | None) -> bool:
        return any(loss.covers(node, moment) for loss in self.losses)

    def counts(self) -> dict[str, int]:
        def of(outcomes: Iterable[str | None], what: str) -> int:
            return sum(outcome == what for outcome in outcomes)

        puts = [put.outcome for put in self.puts]
        acks = [one.outcome for one in self.deliveries]
        return {
            "puts": of(puts, "ok"),
            "puts unknown": of(puts, "unknown"),
            "puts with keys": sum(put.key is not None for put in self.puts),
            "puts refused": of(puts, "refused"),
            "deliveries": len(self.deliveries),
            "acks": of(acks, "ok"),
            "acks unknown": of(acks, "unknown"),
            "acks refused": of(acks, "refused"),
            "left": len(self.left),
            "rescued": len(self.rescued),
        }

    def write(self, path: Path) -> None:
        """As JSON lines, for whoever looks at a failure."""
        rows: list[dict[str, Any]] = []
        for name in ("puts", "deliveries", "losses", "forgotten"):
            rows += [{"what": name, **asdict(row)} for row in getattr(self, name)]
        rows += [{"what": "left", "task": task} for task in self.left]
        rows.append({"what": "rescued", "values": sorted(self.rescued)})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
