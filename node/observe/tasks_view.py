"""One task's row as people see it: its fields by name, its payload as JSON, who holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from tandemq.model.task import INFINITY_US, STATE_NAMES
from tandemq.model.units import SECOND_US
from tandemq_server.engine import attempts
from tandemq_server.engine.system_spaces import TAKEN_CONN, TAKEN_SESSION, TAKEN_TIME
from tandemq_server.node.observe.inventory_answers import Failure, Holder, TaskAnswer
from tandemq_server.node.observe.preview import preview

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.core import Core
    from tandemq_server.spaces.space import Row


def session_text(session: bytes) -> str:
    """A session's UUID as error texts write it."""
    return str(UUID(bytes_le=session)) if len(session) == 16 else session.hex()


def shown_task(core: Core, tube: EngineTube, row: Row, now_us: int) -> TaskAnswer:
    """`row` is one of the tube's; times relative to `now_us`, the log's clock."""
    fields = {name: row[at] for at, (name, _) in enumerate(tube.space.format) if at < len(row)}
    status, payload = str(row[1]), b""
    try:
        shown = tube.shown(row)
        status, payload = shown[1], shown[-1]
        text, cut = preview(payload)
    except Exception as error:
        text, cut = f"the driver cannot show it: {type(error).__name__}", True
    created = _integer(fields.get("created"))
    due = _integer(fields.get("next_event"))
    name = fields.get("utube")
    known = attempts.told(tube, row[0], str(row[1]))
    return TaskAnswer(
        row[0],
        STATE_NAMES.get(status, status),
        text,
        len(payload),
        cut,
        None if created is None else created / SECOND_US,
        None if created is None else max(0.0, (now_us - created) / SECOND_US),
        None if due is None or due - now_us > INFINITY_US // 2 else (due - now_us) / SECOND_US,
        _duration(fields.get("ttl")),
        _duration(fields.get("ttr")),
        _integer(fields.get("pri")),
        None if name is None else str(name).encode("utf-8", "replace").decode(),
        _holder(core, tube, row[0], now_us),
        known.get("attempts"),
        _failure(known),
        known.get("headers", {}),
    )


def _failure(known: dict[str, Any]) -> Failure | None:
    if "reason" not in known:
        return None
    origin = (known.get("from_tube"), known.get("from_id"), known.get("from_attempts"))
    return Failure(known["reason"], known["time"], *origin)


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _duration(value: Any) -> float | None:
    """Microseconds to seconds; a hundred years are no limit."""
    return value / SECOND_US if type(value) is int and value < INFINITY_US // 2 else None


def _holder(core: Core, tube: EngineTube, task_id: int, now_us: int) -> Holder | None:
    owner = core.engine.taken.rows.get((tube.id, task_id))
    if owner is None:
        return None
    connection = core.connections.get(owner[TAKEN_CONN])
    if connection is not None and connection.session != owner[TAKEN_SESSION]:
        connection = None
    return Holder(
        session_text(owner[TAKEN_SESSION]),
        owner[TAKEN_CONN],
        None if connection is None else connection.peer,
        max(0.0, (now_us - owner[TAKEN_TIME]) / SECOND_US),
    )
