"""The five states of a node and every legal way between them.

All about transitions is in TRANSITIONS; the picture in docs/replication.md is drawn from it. What
is done in a state is the fiber's business.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

HISTORY_MAX = 256


class Role(StrEnum):
    """`queue.state()`. Only RUNNING serves; INIT lasts until the node is first made writable."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"


class Event(StrEnum):
    """Why a state is left; the value is what the picture says."""

    GO_WRITABLE = "ro -> rw"
    SERVING = "in step, term open"
    TIMED_OUT = "timed out"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    WITHDRAWN = "withdrawn after the term began"
    GO_READ_ONLY = "rw -> ro"
    FENCED = "newer term"
    DRAINED = "drained"
    OVERDUE = "deadline"


TRANSITIONS: dict[Role, dict[Event, Role]] = {
    Role.INIT: {Event.GO_WRITABLE: Role.STARTUP},
    Role.STARTUP: {
        Event.SERVING: Role.RUNNING,
        Event.TIMED_OUT: Role.WAITING,
        Event.SUPERSEDED: Role.WAITING,
        Event.FAILED: Role.WAITING,
        Event.WITHDRAWN: Role.ENDING,
    },
    Role.RUNNING: {
        Event.GO_READ_ONLY: Role.ENDING,
        Event.FENCED: Role.ENDING,
        Event.FAILED: Role.ENDING,
    },
    Role.ENDING: {
        Event.DRAINED: Role.WAITING,
        Event.OVERDUE: Role.WAITING,
        Event.FAILED: Role.WAITING,
    },
    Role.WAITING: {Event.GO_WRITABLE: Role.STARTUP},
}


class IllegalTransition(Exception):
    """The event means nothing in the present state, which stays as it was."""

    def __init__(self, role: Role, event: Event) -> None:
        super().__init__(f"{event.name} in state {role}")
        self.role = role
        self.event = event


@dataclass(frozen=True, slots=True)
class Transition:
    """One step. at_us: when it was made; duration_us: how long the state left had lasted."""

    origin: Role
    target: Role
    event: Event
    reason: str
    at_us: int
    duration_us: int


class RoleState:
    """The present state, how it came about, and how often each transition was made."""

    __slots__ = ("counts", "entered_us", "history", "role")

    def __init__(self, now_us: int) -> None:
        self.role = Role.INIT
        self.entered_us = now_us
        self.history: deque[Transition] = deque(maxlen=HISTORY_MAX)
        self.counts: Counter[tuple[Role, Role]] = Counter()

    def fire(self, event: Event, reason: str, now_us: int) -> Transition:
        """Make the transition. Raises `IllegalTransition` and then has changed nothing."""
        target = TRANSITIONS[self.role].get(event)
        if target is None:
            raise IllegalTransition(self.role, event)
        made = Transition(self.role, target, event, reason, now_us, now_us - self.entered_us)
        self.role = target
        self.entered_us = now_us
        self.history.append(made)
        self.counts[(made.origin, target)] += 1
        return made


def mermaid() -> str:
    """TRANSITIONS as a Mermaid state diagram, one line per pair of states."""
    lines = ["stateDiagram-v2", "    [*] --> INIT"]
    for origin, events in TRANSITIONS.items():
        causes: dict[Role, list[str]] = {}
        for event, target in events.items():
            causes.setdefault(target, []).append(event.value)
        lines += [f"    {origin} --> {to}: {', '.join(why)}" for to, why in causes.items()]
    return "\n".join(lines) + "\n"
