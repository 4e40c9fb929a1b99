"""`finish`: a task is done and what follows from it is put, in one transaction and one record.

Whatever happens to the node or the connection, either both are true or neither is: no step of a
pipeline is lost between an ack and a put, and none is put twice because its ack was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure, task_not_found
from tandemq.model.record import KIND_FINISH
from tandemq_server.engine import arguments, keys, room
from tandemq_server.engine.batches import BATCH_MAX

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row

#: A task to put: its tube, raw payload, options as the caller gave them.
Put = tuple["TubePort", bytes, Any]


def finish(
    tube: TubePort, client: EngineClient, task_id: Any, puts: list[Put], token: Any = None
) -> list[int]:
    """Ack a task and put others, into any tubes; their ids, in order.

    Raises what ack and put_many raise; then nothing has changed, and the task is still taken.
    """
    if len(puts) > BATCH_MAX:
        raise failure(f"Too many tasks in one batch: {len(puts)} (at most {BATCH_MAX})")
    engine = tube.engine
    task_id = arguments.task_id(task_id, 2)
    tube.check_owner(client, task_id, token)
    if task_id not in tube.space.rows:
        raise task_not_found(task_id)
    wanted: dict[TubePort, list[keys.Keyed]] = {}
    placed: list[tuple[TubePort, int]] = []
    for target, data, opts in puts:
        given = arguments.task_options(opts, target.put_options)
        target.driver.check_put(given)
        batch = wanted.setdefault(target, [])
        placed.append((target, len(batch)))
        batch += keys.split_many(target, [(data, given)])
    # The task goes first: where it goes back into its own full tube it makes room for itself.
    done = tube.driver.delete(task_id, engine.now)
    tube.shown(done)
    tube.taken.disown(tube.id, task_id)
    tube.notebook.forget(tube.id, task_id)
    stored: dict[TubePort, tuple[list[Row], list[int]]] = {}
    for target, batch in wanted.items():
        if target.driver.capacity:
            new, size = keys.new_among(target, batch)
            if not room.has(target, new, size):
                raise failure(f"Tube {target.name}: {room.no_room_for(target, new, size).text}")
        stored[target] = keys.insert_many(target, batch)
    engine.commit(KIND_FINISH, client.session)
    tube.calls["ack"] += 1
    tube.done += 1
    tube.tell(done, "delete")
    for target, (rows, _) in stored.items():
        target.calls["put"] += len(rows)
        for row in rows:
            target.tell_put(row)
    return [stored[target][1][at] for target, at in placed]
