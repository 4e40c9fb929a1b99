"""What a task's row and its owner's say to people: since when, until when, in whose hands.

Times in seconds: moments of the log's clock, and durations from now on. Must not be here: attempts
and their failures (attempts.py), payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.task import DELAYED, INFINITY_US, TAKEN
from tandemq.model.units import SECOND_US
from tandemq_server.engine.system_spaces import TAKEN_CONN, TAKEN_SESSION, TAKEN_TIME

if TYPE_CHECKING:
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row

#: As much of a session's UUID as tells two apart; all of it would let others join it.
_SESSION_DIGITS = 8
_PLAIN = ("pri", "utube")


def facts(tube: TubePort, row: Row, status: str) -> dict[str, Any]:
    """`created`, `age`; `due` and `due_in` with what comes `then`; `ttl`, `ttr`, `pri`, `utube`;
    `holder` of a taken one. What the type of tube does not keep is left out.
    """
    fields = {name: row[at] for at, (name, _) in enumerate(tube.space.format) if at < len(row)}
    now = tube.engine.now
    found: dict[str, Any] = {}
    created = fields.get("created")
    if type(created) is int:
        found["created"] = created / SECOND_US
        found["age"] = max(0, now - created) / SECOND_US
    due = fields.get("next_event")
    if type(due) is int and due - now < INFINITY_US // 2:
        found |= {"due": due / SECOND_US, "due_in": (due - now) / SECOND_US}
        found["then"] = {TAKEN: "given to another worker", DELAYED: "ready"}.get(status, "deleted")
    for name in ("ttl", "ttr"):
        value = fields.get(name)
        if type(value) is int and value < INFINITY_US // 2:
            found[name] = value / SECOND_US
    found |= {name: fields[name] for name in _PLAIN if name in fields}
    owner = tube.engine.taken.rows.get((tube.id, row[0]))
    if owner is not None:
        found["holder"] = {
            "session": owner[TAKEN_SESSION].hex()[:_SESSION_DIGITS],
            "connection": owner[TAKEN_CONN],
            "since": owner[TAKEN_TIME] / SECOND_US,
            "held": max(0, now - owner[TAKEN_TIME]) / SECOND_US,
        }
    return found
