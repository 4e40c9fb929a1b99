"""What happened to a task, as the admin API tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastWanted:
    """Which task's past: one of the three is given. field: NAME=VALUE."""

    task: int | None = None
    find: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class PastStep:
    """One step of a task. at: seconds since the epoch; state: after it, "gone" at its end; session:
    hex; node: who was the master; moved: where the task went, or came from.
    """

    id: int
    lsn: int
    at: float
    call: str
    state: str
    session: str | None
    node: str
    reason: str
    moved: str


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """The steps of one task, oldest first, or of tasks found by payload (task is null then); none
    where the log, as far as it goes back, has none.
    """

    tube: str
    task: int | None
    steps: tuple[PastStep, ...]
