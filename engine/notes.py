"""What is known of a task beside its row: attempts, why the last failed, its origin, its headers.

One space for all tubes, a row only for tasks there is something to say of. Rows of the original's
spaces keep their shape. Notes are changed in the transaction of the task they belong to; those of
temporary tubes stay on this node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq_server.spaces.index import Index
from tandemq_server.spaces.space import IndexShape, Row, Space

if TYPE_CHECKING:
    from tandemq_server.spaces.store import Store

NOTES_ID, LOCAL_NOTES_ID = 521, 522
NOTE_TUBE, NOTE_TASK, NOTE_ATTEMPTS, NOTE_REASON, NOTE_TIME, NOTE_FROM, NOTE_FROM_ID = range(7)
NOTE_FROM_ATTEMPTS = 7
#: Only in notes of tasks that have headers (headers.py), or have failed: then {} for none.
NOTE_HEADERS = 8
#: Only in notes of tasks that have failed: [time, reason] of each failure, the latest ones.
NOTE_FAILURES = 9
FAILURES_KEPT = 20
FIELDS = (
    ("tube_id", "unsigned"),
    ("task_id", "unsigned"),
    ("attempts", "unsigned"),
    ("reason", "string"),
    ("time", "unsigned"),
    ("from_tube", "string"),
    ("from_id", "unsigned"),
    ("from_attempts", "unsigned"),
    ("headers", "map"),
    ("failures", "array"),
)


def _key_of(row: Row) -> tuple[int, int]:
    return row[NOTE_TUBE], row[NOTE_TASK]


class NotesIndex(Index):
    """Notes by tube and task. A tube's dictionary is the same one for ever: tubes hold on to it."""

    __slots__ = ("by_tube", "rows")

    def __init__(self) -> None:
        self.by_tube: dict[int, dict[int, Row]] = {}
        self.rows: dict[Any, Row] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def of(self, tube_id: int) -> dict[int, Row]:
        return self.by_tube.setdefault(tube_id, {})

    def added(self, row: Row) -> None:
        self.of(row[NOTE_TUBE])[row[NOTE_TASK]] = row

    def removed(self, row: Row) -> None:
        del self.by_tube[row[NOTE_TUBE]][row[NOTE_TASK]]

    def changed(self, old: Row, new: Row) -> None:
        self.added(new)

    def cleared(self) -> None:
        for notes in self.by_tube.values():
            notes.clear()

    def check(self) -> None:
        found = {(t, i): row for t, notes in self.by_tube.items() for i, row in notes.items()}
        assert found == self.rows


class TaskNotes:
    """The notes of one kind of tubes, logged or temporary."""

    def __init__(
        self, space_id: int, name: str, temporary: bool, others: tuple[Index, ...] = ()
    ) -> None:
        self.index = NotesIndex()
        self.space = Space(
            space_id,
            name,
            FIELDS,
            indexes=(self.index, *others),
            shapes=(IndexShape("task", [(0, "unsigned"), (1, "unsigned")]),),
            temporary=temporary,
            key_of=_key_of,
        )

    def write(
        self,
        tube_id: int,
        task_id: int,
        attempts: int,
        reason: str,
        now: int,
        origin: tuple[str, int, int] = ("", 0, 0),
        failures: list[list[Any]] | None = None,
    ) -> None:
        """Note the end of an attempt; `origin`: (tube, id, attempts there) of a dead letter, and
        `failures` those it had there.
        """
        key = (tube_id, task_id)
        known = self.space.rows.get(key)
        if failures is None:
            failures = [*failures_of(known), [now, reason]][-FAILURES_KEPT:]
        if known is not None and len(known) > NOTE_FAILURES and not origin[0]:
            pairs = (NOTE_ATTEMPTS, attempts, NOTE_REASON, reason, NOTE_TIME, now)
            self.space.set(key, *pairs, NOTE_FAILURES, failures)
            return
        more: tuple[Any, ...] = (*origin, {}, failures)
        if known is not None:
            self.space.delete(key)
            kept = known[NOTE_HEADERS] if len(known) > NOTE_HEADERS else {}
            at = origin if origin[0] else known[NOTE_FROM:NOTE_HEADERS]
            more = (*at, kept, failures)
        self.space.insert((tube_id, task_id, attempts, reason, now, *more))

    def head(self, tube_id: int, task_id: int, headers: dict[str, str]) -> None:
        """A new task has headers."""
        self.space.insert((tube_id, task_id, 0, "", 0, "", 0, 0, headers))

    def begin_anew(self, tube_id: int, task_id: int) -> None:
        """The attempts so far do not count any more; origin and headers stay known."""
        row = self.space.rows.get((tube_id, task_id))
        if row is not None and row[NOTE_FROM]:
            self.space.set((tube_id, task_id), NOTE_ATTEMPTS, 0)
        elif row is not None and len(row) > NOTE_HEADERS and row[NOTE_HEADERS]:
            pairs = (NOTE_ATTEMPTS, 0, NOTE_REASON, "", NOTE_TIME, 0)
            emptied: tuple[Any, ...] = (NOTE_FAILURES, []) if len(row) > NOTE_FAILURES else ()
            self.space.set((tube_id, task_id), *pairs, *emptied)
        elif row is not None:
            self.space.delete((tube_id, task_id))

    def forget_tube(self, tube_id: int) -> None:
        """The tube was truncated or dropped."""
        for task_id in list(self.index.of(tube_id)):
            self.space.delete((tube_id, task_id))

    def forget(self, tube_id: int, task_id: int) -> None:
        """The task is gone."""
        if (tube_id, task_id) in self.space.rows:
            self.space.delete((tube_id, task_id))


def failures_of(row: Row | None) -> list[list[Any]]:
    """[time in µs, reason] of each failure a note tells of, oldest first."""
    if row is None or not row[NOTE_TIME]:
        return []
    if len(row) > NOTE_FAILURES:
        found: list[list[Any]] = row[NOTE_FAILURES]
        return found
    # Written before all of them were kept.
    return [[row[NOTE_TIME], row[NOTE_REASON]]]


def both(store: Store, others: tuple[Index, Index]) -> tuple[TaskNotes, TaskNotes]:
    """Notes of logged and of temporary tubes; `others`: a further index of each."""
    logged = TaskNotes(NOTES_ID, "_tandem_notes", False, others[:1])
    local = TaskNotes(LOCAL_NOTES_ID, "_tandem_notes_local", True, others[1:])
    store.add(logged.space)
    store.add(local.space)
    return logged, local
