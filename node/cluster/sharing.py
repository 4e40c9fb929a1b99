"""What a configuration says of the queue, each time the node begins to serve: settings, tubes.

Must not be here: what is done with them (engine/settings.py, engine/admin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq.model.errors import QueueError
from tandemq_server.engine import admin

if TYPE_CHECKING:
    from tandemq_server.config import Settings
    from tandemq_server.engine.engine import Engine

#: Seconds a session's tasks wait for it, for nodes with peers of which nobody says otherwise.
KEPT_SECONDS = 60.0


def wanted(settings: Settings, engine: Engine) -> tuple[float | None, bool | None]:
    """(ttr, in_replicaset) that a new term begins with; None: as they are.

    What the configuration leaves out stays as the last call of queue.cfg made it. Where nobody ever
    said anything, nodes with peers keep who holds what; temporary tubes would not let them.
    """
    queue = settings.queue
    said, known = queue.model_fields_set, engine.config.rows
    ttr = queue.ttr if "ttr" in said else None
    shared = queue.in_replicaset if "in_replicaset" in said else None
    if not settings.peers:
        return ttr, shared
    if ttr is None and "ttr" not in known:
        ttr = KEPT_SECONDS
    if shared is None and "in_replicaset" not in known:
        made = any(tube.space.temporary for tube in engine.tubes.values())
        shared = not made and not any(tube.options.get("temporary") for tube in settings.tubes)
    return ttr, shared


def begin(settings: Settings, engine: Engine, report: Callable[[str], None]) -> None:
    """The node serves: tubes of the configuration that are not there yet are made.

    Told: that tasks in hand are given to others by a switch-over; a tube that is another one than
    the configuration wants. Raises QueueError on a node without peers that cannot make one.
    """
    if settings.peers and (loose := unkept(engine.ttr_s, engine.in_replicaset)):
        report(loose)
    for tube in settings.tubes:
        opts = {**tube.options, "if_not_exists": True}
        try:
            admin.create_tube(engine, tube.name, tube.type, opts)
        except QueueError as error:
            if not settings.peers and tube.name not in engine.tubes:
                raise
            report(f"tubes: {tube.name}: {error.text}")


def unkept(ttr_s: float, in_replicaset: bool) -> str:
    """What a switch-over does to tasks in hand; "" where they stay with their workers."""
    if ttr_s and in_replicaset:
        return ""
    off = []
    if not in_replicaset:
        off.append("queue.in_replicaset is off")
    if not ttr_s:
        off.append("queue.ttr is 0")
    return (
        f"{' and '.join(off)}: at a switch-over or a restart every task in hand is given to "
        "another worker while the first one still works on it"
    )
