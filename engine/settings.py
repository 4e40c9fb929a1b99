"""Settings made by `queue.cfg`: kept in a space, so that they are logged like everything else.

`ttr`: seconds a session is kept for its owner; `in_replicaset`: whether ownership and sessions are
logged. Who may call, and with what, is checked in engine/admin.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.record import INSERT, KIND_CONFIG, TRUNCATE
from tandemq.model.units import SECOND_US
from tandemq_server.engine.session_times import LATER

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort
    from tandemq_server.spaces.space import Row

#: The setting that holds the schema version, and what it is where none was ever made.
SCHEMA, SCHEMA_FIRST = "schema_version", 80


def apply_row(engine: EnginePort, row: Row) -> None:
    """A setting came in, by a call, from the log or from the master."""
    if row[0] == "in_replicaset":
        engine.in_replicaset = row[1]
        engine.taken.temporary = engine.sessions.space.temporary = not row[1]
        engine.store.catalogue_version += 1
    elif row[0] == "ttr":
        engine.ttr_s = row[1]
        engine.ttr_us = int(row[1] * SECOND_US)
    elif row[0] == LATER:
        engine.sessions.times.postpone(row[1])
    elif row[0] == SCHEMA:
        engine.schema_version = row[1]


def forget(engine: EnginePort, row: Row) -> None:
    """A setting that was never made before is taken back."""
    if row[0] == LATER:
        engine.sessions.times.postpone(0)
    elif row[0] == SCHEMA:
        engine.schema_version = SCHEMA_FIRST


def configure(engine: EnginePort, ttr: float | None, in_replicaset: bool | None) -> None:
    """Change settings already validated: None keeps what is. One transaction, all or nothing."""
    change(engine, ttr, in_replicaset)
    engine.commit(KIND_CONFIG, None)


def change(engine: EnginePort, ttr: float | None, in_replicaset: bool | None) -> None:
    """The same inside the transaction at hand."""
    rows = engine.config.rows
    if in_replicaset and not engine.in_replicaset:
        temporary = sorted(tube.name for tube in engine.tubes.values() if tube.space.temporary)
        if temporary:
            names = ", ".join(temporary)
            engine.report(
                f"Queue: cannot set `in_replicaset = true`: temporary tube(s) exists: {names}"
            )
            in_replicaset = False
    if in_replicaset is not None and in_replicaset != engine.in_replicaset:
        _convert(engine, in_replicaset)
    if ttr is not None and ("ttr" not in rows or rows["ttr"][1] != ttr):
        put(engine, "ttr", ttr)


def put(engine: EnginePort, name: str, value: Any) -> None:
    """Change one setting inside the transaction at hand."""
    if name in engine.config.rows:
        engine.config.set(name, 1, value)
    else:
        engine.config.insert((name, value))


def move_schema(engine: EnginePort) -> None:
    """Connectors are to read the schema again: a tube came or went, inside its transaction.

    A row like any other, so that a replica that is promoted goes on from the same number.
    """
    put(engine, SCHEMA, engine.schema_version + 1)


def _convert(engine: EnginePort, logged: bool) -> None:
    """Ownership and sessions begin, or cease, to be logged; here their rows stay as they are.

    Elsewhere they become what they are here, or nothing: a former master may hold rows of its own.
    """
    ops = engine.store.ops
    move_schema(engine)
    spaces = (engine.taken, engine.sessions.space)
    if logged:
        put(engine, "in_replicaset", True)
    for space in spaces:
        ops.append((TRUNCATE, space.id))
        if logged:
            ops.extend([(INSERT, space.id, row) for row in space.rows.values()])
    if not logged:
        put(engine, "in_replicaset", False)
