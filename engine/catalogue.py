"""Tubes come, change and go with their rows in `_queue`, on whichever road the rows do.

A call, the log, a snapshot, the master and an undo all end here. Must not be here: what a caller
may ask for (admin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tandemq_server.engine import lanes, policy, ports, room
from tandemq_server.engine.system_spaces import TUBE_NAME, TUBE_OPTS, TUBE_SPACE, TUBE_TYPE
from tandemq_server.engine.tube import EngineTube

if TYPE_CHECKING:
    from tandemq_server.drivers.base import Driver
    from tandemq_server.spaces.space import Row, Space


class CataloguePauses(ports.PausesPort, Protocol):
    def apply(self, tube: ports.TubePort) -> None: ...


class CatalogueEngine(ports.EnginePort, Protocol):
    """What keeps the tubes by name; `engine.engine.Engine` is it."""

    tubes: dict[str, Any]
    tube_of_space: dict[int, Any]
    callbacks: dict[str, Callable[[Row, str], None]]
    on_tube: Callable[[Any, bool], None]

    @property
    def pauses(self) -> CataloguePauses: ...


def appears(engine: CatalogueEngine, row: Row) -> None:
    """A tube is there; one whose type or driver fails is remembered as broken, with its reason."""
    name, kind = row[TUBE_NAME], engine.drivers.get(row[TUBE_TYPE])
    space = engine.store.by_name.get(name)
    if space is None:
        engine.broken[name] = f"Space '{row[TUBE_SPACE]}' doesn't exists"
        return
    if kind is None or name in engine.broken:
        engine.broken.setdefault(name, f"unknown tube type {row[TUBE_TYPE]}")
        return
    driver = _driver(engine, kind, space, row)
    if driver is None:
        return
    shape = kind.shape or (lanes.LaneTube if kind.lanes else EngineTube)
    tube = shape(engine, row, space, driver)
    tube.callback = engine.callbacks.get(name)
    engine.tubes[name] = tube
    engine.tube_of_space[space.id] = tube
    engine.pauses.apply(tube)
    engine.on_tube(tube, True)


def _driver(engine: CatalogueEngine, kind: type[Driver], space: Space, row: Row) -> Driver | None:
    name = row[TUBE_NAME]
    try:
        return kind.new(space, row[TUBE_OPTS])
    except Exception as error:
        engine.broken[name] = f"new failed: {type(error).__name__}: {error}"
        engine.report(f"tube {name}: driver {row[TUBE_TYPE]}: {engine.broken[name]}")
        return None


def goes(engine: CatalogueEngine, row: Row) -> None:
    """A tube was dropped."""
    engine.broken.pop(row[TUBE_NAME], None)
    tube = engine.tubes.pop(row[TUBE_NAME], None)
    if tube is not None:
        engine.tube_of_space.pop(tube.space.id, None)
        engine.on_tube(tube, False)


def altered(engine: CatalogueEngine, row: Row) -> None:
    """A tube has other options: it stays the same object, whoever waits in it goes on waiting."""
    tube = engine.tubes.get(row[TUBE_NAME])
    space = engine.store.by_name.get(row[TUBE_NAME])
    if space is not None:
        space.opts = row[TUBE_OPTS]
    if tube is None:
        goes(engine, row)
        appears(engine, row)
        return
    driver = _driver(engine, type(tube.inner), tube.space, row)
    if driver is None:
        reason = engine.broken[row[TUBE_NAME]]
        goes(engine, row)
        engine.broken[row[TUBE_NAME]] = reason
        return
    opts = tube.opts = row[TUBE_OPTS]
    room.remeasure(tube.space, opts)
    tube.inner = tube.driver = driver
    tube.policy = policy.of(opts)
    tube.room = room.of(tube.space, driver, opts)
    engine.pauses.apply(tube)
    engine.woken.append(tube)
