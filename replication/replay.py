"""What of cut records is worth putting again, what will run again by itself, and what is undone.

Judged by what the records did to rows, not by what their calls are named. Who puts the tasks again
is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tandemq.model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    DROP,
    INSERT,
    INSERT_MANY,
    KIND_NAMES,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    Op,
    Record,
)

#: Spaces below are the queue's own; tubes start here (spaces.store.SPACE_ID_FIRST).
TUBE_SPACE_FIRST = 1024
#: The tubes (engine/system_spaces.py); what is known of tasks beside their rows, and where that
#: has headers (engine/notes.py).
CATALOGUE_SPACE, NOTES_SPACE, NOTE_HEADERS = 512, 521, 8
#: Space id and task id; records of an xqueue tube may have text for it.
TaskKey = tuple[int, int | str]


@dataclass(frozen=True, slots=True)
class RescuedTask:
    """A task that is there at the end of the cut, and was not at the fork.

    row: as it was at the end of the cut, by the driver's format; its last field is the payload.
    tube, driver: "" when the space is not known. lsn, time_us: of the record it came in, 0 when
    only a snapshot has it: then it may have been there at the fork, too. tube_options: how its tube
    was declared, if that is known. headers: what its producer sent along.
    """

    lsn: int
    time_us: int
    space_id: int
    tube: str
    driver: str
    task_id: int | str
    row: tuple[Any, ...]
    tube_options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def payload(self) -> Any:
        return self.row[-1]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What an operator may put again, what will run again by itself, and what is undone.

    tasks: those that came into being in the cut, by whatever call, and those only a snapshot has.
    finished: (space id, task id) of tasks from before the fork that were finished in the cut
    records: the winning log has them still, so somebody gets them once more. changed: tasks from
    before the fork that were taken, buried, edited ... in it: (space id, task id) -> the fields
    that were set, by their numbers. emptied: spaces from before the fork that were truncated or
    dropped. calls: how many records of each kind. names: of tubes by space id, also of those that
    were dropped in it.
    """

    tasks: tuple[RescuedTask, ...]
    finished: tuple[TaskKey, ...]
    changed: Mapping[TaskKey, Mapping[int, Any]] = field(default_factory=dict)
    emptied: tuple[int, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)


def replay_plan(
    records: Iterable[tuple[int, Record]],
    tubes: Mapping[int, tuple[str, str]],
    snapshot: Iterable[tuple[int, Record]] = (),
    reach: int = 0,
    options: Mapping[int, Mapping[str, Any]] | None = None,
    numbers: Mapping[int, int] | None = None,
) -> ReplayPlan:
    """`records`: (LSN, record) of the cut, ascending; `tubes`, `options`, `numbers`: the note's.

    `snapshot`: the content of a snapshot that ends at LSN `reach`, as records; LSN 0 for its rows.
    What counts is what the records did to rows, not what their calls are named.
    """
    whole = _Plan(dict(tubes), dict(options or {}), dict(numbers or {}))
    for lsn, (time_us, _kind, _session, ops) in snapshot:
        for op in ops:
            whole.op(lsn, time_us, op)
    whole.forget_changes()
    cut = _Plan(dict(whole.tubes), dict(whole.options), dict(whole.numbers)) if reach else whole
    for lsn, (time_us, kind, _session, ops) in records:
        name = KIND_NAMES.get(kind, f"kind {kind}")
        cut.calls[name] = cut.calls.get(name, 0) + 1
        for op in ops:
            cut.op(lsn, time_us, op)
            if cut is not whole and lsn > reach:
                whole.op(lsn, time_us, op)
    alive = {**whole.alive, **cut.alive}
    tasks = []
    for (space_id, task_id), (lsn, time_us, row) in sorted(alive.items(), key=_by_lsn):
        tube, driver = cut.tubes.get(space_id, ("", ""))
        declared = cut.options.get(space_id, {})
        key = (space_id, task_id)
        headers = cut.headers.get(key) or whole.headers.get(key, {})
        tasks.append(
            RescuedTask(
                lsn, time_us, space_id, tube, driver, task_id, tuple(row), declared, headers
            )
        )
    changed = {key: fields for key, fields in cut.changed.items() if key not in alive}
    names = {space_id: known[0] for space_id, known in cut.tubes.items()} | cut.dropped
    return ReplayPlan(
        tuple(tasks), tuple(cut.finished), changed, tuple(cut.emptied), dict(cut.calls), names
    )


def _by_lsn(item: tuple[TaskKey, tuple[int, int, list[Any]]]) -> int:
    return item[1][0]


class _Plan:
    """The tasks of the cut records, followed op by op."""

    def __init__(
        self, tubes: dict[int, tuple[str, str]], options: dict[int, Any], numbers: dict[int, int]
    ) -> None:
        self.tubes = tubes
        self.numbers = numbers
        self.options: dict[int, Mapping[str, Any]] = options
        self.headers: dict[TaskKey, Mapping[str, str]] = {}
        self.alive: dict[TaskKey, tuple[int, int, list[Any]]] = {}
        self.finished: dict[TaskKey, None] = {}
        self.changed: dict[TaskKey, dict[int, Any]] = {}
        self.emptied: dict[int, None] = {}
        self.calls: dict[str, int] = {}
        #: Space id -> name: at the end of the cut, when its note was written, they were gone.
        self.dropped: dict[int, str] = {}
        self._made: set[int] = set()
        self._gone = ""

    def op(self, lsn: int, time_us: int, op: Op) -> None:
        code, space = op[0], op[1]
        if code == CREATE:
            self.tubes[space] = (op[2], op[3])
            self.options[space] = op[4]
            self._made.add(space)
        elif code in (INSERT, INSERT_MANY):
            for row in [op[2]] if code == INSERT else op[2]:
                if space >= TUBE_SPACE_FIRST:
                    self._insert(lsn, time_us, space, row)
                else:
                    self._told(space, row)
        elif code == TERM or space < TUBE_SPACE_FIRST:
            # Within its record a tube's row goes before its space does.
            self._gone = op[2] if (code, space) == (DELETE, CATALOGUE_SPACE) else self._gone
        elif code == SET:
            self._set(space, op[2], op[3:])
        elif code == SET_MANY:
            for key in op[2]:
                self._set(space, key, op[3:])
        elif code == DELETE:
            self._finish(space, op[2])
        elif code == DELETE_MANY:
            for key in op[2]:
                self._finish(space, key)
        elif code in (DROP, TRUNCATE):
            self._empty(space)

    def _told(self, space: int, row: Any) -> None:
        """A tube's row in the catalogue, or a note beside a task, which may hold headers."""
        if space == CATALOGUE_SPACE:
            known = [number for number, names in self.tubes.items() if names[0] == row[0]]
            self.numbers[row[1]] = known[-1] if known else 0
        elif (
            space == NOTES_SPACE and len(row) > NOTE_HEADERS and isinstance(row[NOTE_HEADERS], dict)
        ):
            self.headers[(self.numbers.get(row[0], 0), row[1])] = row[NOTE_HEADERS]

    def forget_changes(self) -> None:
        """What was followed so far is where the cut begins."""
        self.finished.clear()
        self.changed.clear()
        self.emptied.clear()
        self._made.clear()

    def _insert(self, lsn: int, time_us: int, space: int, row: Any) -> None:
        key = (space, row[0])
        known = self.alive.get(key)
        if known is not None and known[0]:
            lsn, time_us = known[:2]
        self.alive[key] = (lsn, time_us, list(row))

    def _set(self, space: int, task_id: Any, changes: Op) -> None:
        pairs = zip(changes[::2], changes[1::2], strict=True)
        known = self.alive.get((space, task_id))
        if known is None:
            self.changed.setdefault((space, task_id), {}).update(pairs)
            return
        for fieldno, value in pairs:
            known[2][fieldno] = value

    def _finish(self, space: int, task_id: Any) -> None:
        key = (space, task_id)
        self.changed.pop(key, None)
        if self.alive.pop(key, None) is None:
            self.finished[key] = None

    def _empty(self, space: int) -> None:
        for tasks in (self.alive, self.changed):
            for key in [key for key in tasks if key[0] == space]:
                del tasks[key]
        if space not in self._made:
            self.emptied[space] = None
        if self._gone:
            self.dropped[space], self._gone = self._gone, ""
