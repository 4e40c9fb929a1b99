"""Sessions and connections as people see them: who is there, and who holds what for how long."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.engine.system_spaces import SHARED_ACTIVE, TAKEN_TIME, TAKEN_TUBE
from tandemq_server.node.observe.inventory_answers import (
    ClientConnection,
    HeldTask,
    Session,
    SessionPage,
)
from tandemq_server.node.observe.metrics import SCAN_ROWS
from tandemq_server.node.observe.tasks_view import session_text

if TYPE_CHECKING:
    from tandemq_server.engine.engine import Engine
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

#: Tasks shown of one session, and connections shown of one session or without any.
TASKS_MAX = 50
CONNECTIONS_MAX = 100


def longest_taken(engine: Engine, now_us: int) -> dict[int, float]:
    """Seconds the longest held task of each tube is held, by tube id; looks at SCAN_ROWS tasks."""
    since: dict[int, int] = {}
    for row in islice(engine.taken.rows.values(), SCAN_ROWS):
        tube, at = row[TAKEN_TUBE], row[TAKEN_TIME]
        if at < since.get(tube, now_us + 1):
            since[tube] = at
    return {tube: max(0.0, (now_us - at) / SECOND_US) for tube, at in since.items()}


def page(core: Core, now_us: int, after: int, limit: int) -> SessionPage:
    """Sessions `after` .. `after + limit` in the order of tasks held; others: without a session."""
    engine = core.engine
    held = engine.taken.by_session
    known = sorted(
        engine.sessions.space.rows, key=lambda session: (-len(held.get(session, ())), session)
    )
    by_tube = {tube.id: tube.name for tube in engine.tubes.values()}
    shown = tuple(
        _session(core, session, by_tube, now_us) for session in known[after : after + limit]
    )
    others = [one for one in core.connections.values() if one.session is None]
    following = after + limit if after + limit < len(known) else None
    return SessionPage(
        shown,
        len(known),
        following,
        tuple(_connection(one) for one in others[:CONNECTIONS_MAX]),
        len(core.connections),
    )


def _session(core: Core, session: bytes, by_tube: dict[int, str], now_us: int) -> Session:
    engine = core.engine
    row = engine.sessions.space.rows[session]
    keys = engine.taken.by_session.get(session, {})
    tasks = tuple(
        HeldTask(
            by_tube.get(key[0], "?"),
            key[1],
            max(0.0, (now_us - engine.taken.rows[key][TAKEN_TIME]) / SECOND_US),
        )
        for key in islice(keys, TASKS_MAX)
    )
    members = islice(engine.sessions.members.get(session, {}), CONNECTIONS_MAX)
    here = [core.connections.get(client.id) for client in members]
    expires = None
    if not row[SHARED_ACTIVE]:
        expires = max(0.0, (engine.sessions.expires_us(session) - now_us) / SECOND_US)
    return Session(
        session_text(session),
        bool(row[SHARED_ACTIVE]),
        expires,
        tuple(_connection(one) for one in here if one is not None),
        len(keys),
        tasks,
    )


def _connection(one: Connection) -> ClientConnection:
    return ClientConnection(
        one.id, one.peer, one.user, one.secure, len(one.waits), one.link is not None
    )
