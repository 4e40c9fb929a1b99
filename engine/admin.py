"""Calls about tubes and the module rather than tasks: create, drop, cfg, statistics, grants.

Remote callers and the node's own configuration take the same road.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_IDENTIFIER, QueueError, failure
from tandemq.model.record import KIND_CREATE_TUBE, KIND_DROP_TUBE
from tandemq.model.task import INFINITY_S
from tandemq_server.engine import altering, attempts, grants, lifecycle, pause, policy, settings
from tandemq_server.engine.arguments import lua_type

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort

TUBE_OPTIONS = frozenset(
    {
        "temporary",
        "if_not_exists",
        "on_task_change",
        "engine",
        "ttl",
        "ttr",
        "pri",
        "delay",
        "capacity",
        "storage_mode",
    }
)
NAME_CHARS_MAX = 65_000


def create_tube(engine: EnginePort, name: Any, kind: Any, opts: Any) -> TubePort:
    """Create a tube, or with `if_not_exists` return the one that is there, unchanged.

    Raises code 32 with the original's texts, or with what is different about the one that is
    there; 70 for a bad name.
    """
    if opts is None or opts == []:
        opts = {}
    if type(opts) is not dict:
        raise failure(f"Invalid options of create_tube: expected a map, got {lua_type(opts)}")
    if type(name) is not str or not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise QueueError(
            ER_IDENTIFIER,
            f"Invalid identifier '{'' if name is None else name}' "
            "(expected printable symbols only or it is too long)",
        )
    existing = engine.tubes.get(name)
    if opts.get("if_not_exists") is True and existing is not None:
        altering.check_same(existing, kind, opts)
        return existing
    temporary = bool(opts.get("temporary"))
    if temporary and engine.in_replicaset:
        raise failure("Cannot create temporary tube in replicaset mode")
    driver = engine.drivers.get(kind) if isinstance(kind, str) else None
    if driver is None:
        raise failure(f"Unknown tube type {'nil' if kind is None else kind}")
    if name in engine.store.by_name:
        raise failure(f"Space '{name}' already exists")
    full = _tube_options(driver, name, kind, opts)
    policy.check(engine, driver, name, kind, full)
    for reference in driver.functions(full):
        engine.functions(reference)
    space = engine.store.create(name, kind, full, temporary)
    if name in engine.broken:
        reason = engine.broken.pop(name)
        _abandon(engine, name)
        raise failure(f'The "{kind}" driver cannot serve tube {name}: {reason}')
    tube_id = max((row[1] + 1 for row in engine.catalogue.rows.values()), default=0)
    settings.move_schema(engine)
    engine.catalogue.insert((name, tube_id, space.name, kind, full))
    if name not in engine.tubes:
        reason = engine.broken.pop(name, "unknown reason")
        _abandon(engine, name)
        raise failure(f'The "{kind}" driver cannot serve tube {name}: {reason}')
    engine.commit(KIND_CREATE_TUBE, None)
    tube = engine.tubes[name]
    if engine.running:
        lifecycle.start_driver(engine, tube)
    return tube


def _abandon(engine: EnginePort, name: str) -> None:
    """Take back a tube whose driver failed while it was being created."""
    engine.store.rollback()
    space = engine.store.by_name.get(name)
    if space is not None:
        engine.store.forget(space)


def _tube_options(driver: Any, name: str, kind: str, opts: dict[str, Any]) -> dict[str, Any]:
    """Options as they are stored: defaults filled in, callbacks left out, all checked."""
    known = TUBE_OPTIONS | policy.OPTIONS | driver.tube_options
    for option in opts:
        if option not in known:
            raise failure(f"Unknown option {option}")
    for option in ("temporary", "if_not_exists"):
        if opts.get(option) is not None and type(opts[option]) is not bool:
            raise failure(f"Invalid value of {option}: {opts[option]} (expected true or false)")
    if opts.get("engine") not in (None, "memtx", "vinyl"):
        raise failure(f"Invalid value of engine: {opts['engine']} (expected memtx or vinyl)")
    if opts.get("storage_mode") is not None and type(opts["storage_mode"]) is not str:
        raise failure(
            f"Invalid value of storage_mode: {opts['storage_mode']} "
            "(expected default or ready_buffer)"
        )
    vinyl = opts.get("engine") == "vinyl"
    if vinyl and kind == "limfifottl":
        raise failure("limfifottl queue does not support vinyl engine")
    if vinyl and opts.get("storage_mode") == "ready_buffer":
        raise failure('"ready_buffer" storage mode cannot be used with vinyl engine')
    if vinyl and opts.get("temporary"):
        raise QueueError(12, f"Can't modify space '{name}': engine does not support temporary flag")
    full = {key: value for key, value in opts.items() if key != "on_task_change"}
    full.setdefault("if_not_exists", False)
    checked: dict[str, Any] = driver.check_options(full)
    return checked


def drop_tube(engine: EnginePort, tube: TubePort) -> bool:
    """Remove a tube with its tasks. Refused while consumers wait or tasks are taken."""
    waiting = [*tube.waiters.values(), *tube.blocked.values()]
    if not all(waiter.client.inside for waiter in waiting):
        raise failure("There are consumers connected the tube")
    if any(key[0] == tube.id for key in engine.taken.rows):
        raise failure("There are taken tasks in the tube")
    if feeders := attempts.feeders(tube):
        raise failure(f"The tube takes the dead letters of {', '.join(sorted(feeders))}")
    for waiter in waiting:
        tube.cancel(waiter)
        engine.unpark(waiter)
    lifecycle.stop_driver(engine, tube)
    settings.move_schema(engine)
    engine.catalogue.delete(tube.name)
    engine.keys.forget_tube(tube)
    tube.notebook.forget_tube(tube.id)
    pause.forget_tube(tube)
    grants.forget_tube(engine, tube)
    engine.store.drop(tube.space)
    engine.commit(KIND_DROP_TUBE, None)
    return True


def describe(tube: TubePort) -> dict[str, Any]:
    """What a remote `create_tube` returns."""
    return {
        "name": tube.name,
        "tube_id": tube.id,
        "type": tube.type,
        "temporary": tube.space.temporary,
        "opts": tube.opts,
    }


Cfg = tuple[float | None, bool | None]


def cfg_options(opts: Any) -> Cfg:
    """What `queue.cfg` is asked for: (ttr, in_replicaset), None for what is left out."""
    if opts is None or opts == []:
        return None, None
    if type(opts) is not dict:
        raise failure(f"Invalid options of cfg: expected a map, got {lua_type(opts)}")
    for option in opts:
        if option not in ("ttr", "in_replicaset"):
            raise failure(f"Unknown option {option}")
    ttr = opts.get("ttr")
    if ttr is not None and (
        type(ttr) not in (int, float) or not isfinite(ttr) or not 0 <= ttr <= INFINITY_S
    ):
        raise failure(f"Invalid value of ttr: {ttr}")
    in_replicaset = opts.get("in_replicaset")
    if in_replicaset is not None and type(in_replicaset) is not bool:
        raise failure(f"Invalid value of in_replicaset: {in_replicaset}")
    return ttr, in_replicaset


def cfg(engine: EnginePort, opts: Any) -> None:
    """`queue.cfg`: everything is checked before anything is changed; left out = unchanged."""
    engine.configure(*cfg_options(opts))


def statistics(engine: EnginePort, name: Any = None) -> dict[str, Any]:
    """Counts of one tube, or of all by name. O(1) per tube."""
    if name is None:
        return _all_statistics(engine)
    tube = engine.tubes.get(name) if isinstance(name, str) else None
    if tube is None:
        raise failure(f"attempt to index a nil value (tube '{name}' does not exist)")
    return tube.statistics()


def _all_statistics(engine: EnginePort) -> dict[str, Any]:
    """Of every tube whose driver can tell; one that fails does not hide the others."""
    found = {}
    for tube in engine.tubes.values():
        try:
            found[tube.name] = tube.statistics()
        except Exception as error:
            engine.report(f"tube {tube.name}: counts failed: {type(error).__name__}: {error}")
    return found


def tube_names(engine: EnginePort, name: Any = None) -> list[str] | bool:
    """`queue.tube()`: all names; with a name: whether it exists."""
    if name is None:
        return list(engine.tubes)
    if type(name) is not str:
        raise failure("argument #1 should be string or nil")
    return name in engine.tubes
