"""The table: every pair of state and event, legal or not, and its picture in the docs."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tandemq_server.statemachine.roles import (
    HISTORY_MAX,
    TRANSITIONS,
    Event,
    IllegalTransition,
    Role,
    RoleState,
    mermaid,
)

LEGAL = {
    (Role.INIT, Event.GO_WRITABLE): Role.STARTUP,
    (Role.STARTUP, Event.SERVING): Role.RUNNING,
    (Role.STARTUP, Event.TIMED_OUT): Role.WAITING,
    (Role.STARTUP, Event.SUPERSEDED): Role.WAITING,
    (Role.STARTUP, Event.FAILED): Role.WAITING,
    (Role.STARTUP, Event.WITHDRAWN): Role.ENDING,
    (Role.RUNNING, Event.GO_READ_ONLY): Role.ENDING,
    (Role.RUNNING, Event.FENCED): Role.ENDING,
    (Role.RUNNING, Event.FAILED): Role.ENDING,
    (Role.ENDING, Event.DRAINED): Role.WAITING,
    (Role.ENDING, Event.OVERDUE): Role.WAITING,
    (Role.ENDING, Event.FAILED): Role.WAITING,
    (Role.WAITING, Event.GO_WRITABLE): Role.STARTUP,
}
#: The seed's own arrows; two more lead out of STARTUP.
DIAGRAM = {
    (Role.INIT, Role.STARTUP),
    (Role.STARTUP, Role.RUNNING),
    (Role.WAITING, Role.STARTUP),
    (Role.RUNNING, Role.ENDING),
    (Role.ENDING, Role.WAITING),
}


@pytest.mark.parametrize(("role", "event"), list(product(Role, Event)))
def test_every_state_and_event(role: Role, event: Event) -> None:
    state = RoleState(5)
    state.role = role
    if (role, event) in LEGAL:
        made = state.fire(event, "why", 12)
        assert (made.origin, made.target, made.event) == (role, LEGAL[role, event], event)
        assert (made.reason, made.at_us, made.duration_us) == ("why", 12, 7)
        assert state.role is made.target
        assert state.entered_us == 12
        assert list(state.history) == [made]
        assert state.counts == {(role, made.target): 1}
        return
    with pytest.raises(IllegalTransition, match=f"{event.name} in state {role}"):
        state.fire(event, "why", 12)
    assert (state.role, state.entered_us, len(state.history), len(state.counts)) == (role, 5, 0, 0)


def test_the_arrows_are_the_seeds_and_two_more() -> None:
    arrows = {(origin, to) for origin, events in TRANSITIONS.items() for to in events.values()}
    assert arrows == DIAGRAM | {(Role.STARTUP, Role.WAITING), (Role.STARTUP, Role.ENDING)}
    assert list(Role) == ["INIT", "STARTUP", "RUNNING", "ENDING", "WAITING"]


def test_history_is_bounded_and_counting_is_not() -> None:
    state = RoleState(0)
    state.fire(Event.GO_WRITABLE, "", 0)
    for _ in range(HISTORY_MAX):
        state.fire(Event.TIMED_OUT, "", 1)
        state.fire(Event.GO_WRITABLE, "", 2)
    assert len(state.history) == HISTORY_MAX
    assert state.counts[Role.STARTUP, Role.WAITING] == HISTORY_MAX


def test_the_picture_in_the_docs_is_the_present_one() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "replication.md"
    assert f"```mermaid\n{mermaid()}```" in docs.read_text()
