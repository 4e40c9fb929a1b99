"""Snapshots as states: to begin a replay with, or to lay beside one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandemq.log.snapshot import read_snapshot
from tandemq.model.record import CREATE, INSERT_MANY, MARK
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.read import NodeLog
from tandemq.pipeline.judge.rules.base import Breach
from tandemq.pipeline.judge.shred import shred_op
from tandemq.pipeline.judge.table import Ints
from tandemq.pipeline.judge.tasks import TaskChanges
from tandemq.pipeline.judge.verdict import Collector
from tandemq.pipeline.judge.world import QUEUE, Chunk, ChunkView, World


def world_of(log: NodeLog, name: str) -> World:
    """The state a snapshot holds. Raises `StorageError`."""
    world = World()
    records: list[list[int]] = []
    lines: list[list[int]] = []
    ops_of: list[list[Any]] = []
    marks: dict[int, int] = {}

    def add(lsn: int, time: int, kind: int, session: int, ops: list[Any]) -> None:
        known = [lsn, time, kind, session]
        records.append([*known, 0, 0])
        ops_of.append(ops)
        for op in ops:
            shred_op(op, len(records) - 1, known, lines)

    for what, *found in read_snapshot(log.disk, name, log.meta):
        if what == "catalogue":
            add(0, 0, 0, 0, [op for op in found[0] if op[0] == CREATE])
            marks |= {op[1]: op[2] for op in found[0] if op[0] == MARK}
        elif what == "rows":
            add(0, 0, 0, 0, [[INSERT_MANY, *found]])
        elif what == "frame":
            for number, (time, kind, session, ops) in enumerate(found[1]):
                owner = 0 if session is None else w.word(session)
                add(found[0].first_lsn + number, time, kind, owner, ops)
    view = ChunkView(world, Chunk(_array(records, w.R_COLUMNS), _array(lines, w.COLUMNS),
                             lambda rec: _single(ops_of[rec])))  # fmt: skip
    tasks = TaskChanges(view)
    view.carry(tasks.holder_after)
    for space, mark in marks.items():
        if space in world.by_space:
            tube = world.by_space[space]
            tube.next_id = max(mark, tube.next_id or 0)
    world.settings[":time"] = max((row[w.R_TIME] for row in records), default=0)
    _holders(world)
    return world


def _single(ops: list[Any]) -> list[Any]:
    """Rows of many as one op each: what is decoded whole knows only those."""
    found: list[Any] = []
    for op in ops:
        if op[0] == INSERT_MANY and op[1] <= QUEUE + 5:
            found += [[1, op[1], row] for row in op[2]]
        else:
            found.append(op)
    return found


def _array(rows: list[list[int]], width: int) -> Ints:
    if not rows:
        return np.empty((width, 0), np.int64)
    return np.ascontiguousarray(np.array(rows, np.int64).T)


def _holders(world: World) -> None:
    """Who holds what is in the owners' rows, where those are logged."""
    tasks, owners = world.states["tasks"], world.states["owners"]
    held = {
        (int(tube), int(task)): int(session)
        for tube, task, session in zip(
            owners[w.F0], owners[w.F0 + 1], owners[w.F0 + 3], strict=True
        )
    }
    for at in np.flatnonzero(tasks[w.F0 + 1] == ord("t")).tolist():
        tube = world.tube_of(int(tasks[w.SPACE][at]))
        tasks[w.SESSION][at] = held.get((tube.tube_id, int(tasks[w.K0][at])), 0)


def compare_snapshot(log: NodeLog, name: str, world: World, collector: Collector) -> None:
    """A snapshot beside the replayed state at the same LSN: every row, every field."""
    try:
        other = world_of(log, name)
    except Exception as error:
        log.tell("damaged", None, f"{name}: {error}")
        return
    lsn = int(name.partition(".")[0])
    for kind, lines in world.states.items():
        text = _difference(lines, other.states[kind])
        if text:
            said = f"{name}: {kind}: {text}"
            collector.add(Breach("snapshot_differs", lsn=lsn, node=log.node, text=said))
    there = {tube.space: tube for tube in other.tubes}
    for tube in world.tubes:
        mine = None if tube.opts.get(":gone") else tube.next_id
        theirs = there.get(tube.space)
        if mine is not None and (theirs is None or theirs.next_id != mine):
            said = f"{name}: tube {tube.name}: the next id is {mine} by the log"
            collector.add(Breach("snapshot_differs", lsn=lsn, node=log.node, text=said))


def _difference(one: Ints, other: Ints) -> str:
    """In words, where two sets of rows differ first; "" where they do not."""
    columns = [w.SPACE, w.K0, w.K1, *range(w.F0, w.F0 + w.FIELDS), w.REST]
    mine, theirs = (_sorted(lines[columns]) for lines in (one, other))
    if mine.shape == theirs.shape and (mine == theirs).all():
        return ""
    keys = [{tuple(key) for key in rows[:2].T.tolist()} for rows in (mine, theirs)]
    for lacking, who in ((keys[0] - keys[1], "the snapshot"), (keys[1] - keys[0], "the log")):
        lacks = sorted(lacking)
        if lacks:
            return f"{who} lacks {len(lacks)} rows, first space {lacks[0][0]} key {lacks[0][1]}"
    where = np.flatnonzero((mine != theirs).any(axis=0))
    first = int(where[0])
    fields = [at - 3 for at in np.flatnonzero(mine[:, first] != theirs[:, first]).tolist()]
    place = f"space {mine[0, first]} key {mine[1, first]}"
    return f"{len(where)} rows differ, first {place}, fields {fields}"


def _sorted(lines: Ints) -> Ints:
    return lines[:, np.lexsort(lines[:3])]
