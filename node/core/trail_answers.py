"""What is told of the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tandemq_server.node.core.trail import Noted


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """One line of the trail. `id`: its number since the process started, not in the file.

    by: iproto, admin, signal or node. outcome: done, refused, failed, or under way. repeated: how
    often the same was refused since it was last written.
    """

    id: int
    time: str
    node: str
    by: str
    user: str
    address: str
    action: str
    target: str
    details: Any
    outcome: str
    error: str
    repeated: int


@dataclass(frozen=True, slots=True)
class TrailPage:
    """Newest first. lost: lines that could not be written; problem: why, while that lasts."""

    path: str | None
    lost: int
    problem: str
    entries: tuple[TrailEntry, ...]


class Trail(Protocol):
    """What the admin API asks of it. lost: lines that could not be written; problem: why, now."""

    lost: int
    problem: str

    def note(self, noted: Noted) -> None: ...

    def page(self, limit: int, before: int) -> TrailPage: ...


class NoTrail:
    """Of a node that keeps none."""

    lost = 0
    problem = ""

    def note(self, noted: Noted) -> None:
        return

    def page(self, limit: int, before: int) -> TrailPage:
        return TrailPage(None, 0, "", ())
