"""The changes of tasks as rules see them: names for columns, holders, owners' rows and notes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.table import Bits, Ints, linked, standing
from tandemq.pipeline.judge.world import DRIVERS, TTL_DRIVERS, ChunkView

READY, TAKEN, BURIED, DELAYED, ZOMBIE, KEPT, DONE15 = (ord(one) for one in "rt!~zd*")
#: Fields of the rows of ttl drivers, of queue15 and of xqueue.
NEXT, TTL, TTR, PRI, CREATED = 2, 3, 4, 5, 6
ID15, EVENT15, RANK15, PRI15, TURN15, CREATED15, TTL15, TTR15, CBURY15, CTAKEN15, DATA15 = range(
    3, 14
)
RUNAT_X, KIND_X, EXPIRES_X = 2, 3, 4
NOTE_ATTEMPTS, NOTE_REASON, NOTE_TIME, NOTE_FROM, NOTE_FROM_ID, NOTE_FROM_ATTEMPTS = range(2, 8)


def plus(one: Ints, other: Any) -> Ints:
    """A sum that does not wrap: what is later than any moment is the last one."""
    found = one + other
    return np.where((one >= 0) & (other >= 0) & (found < 0), w.LARGEST, found)


class TaskChanges:
    """One element for each change of a task; `known`: what it was before is known."""

    def __init__(self, view: ChunkView) -> None:
        self.view, table = view, view.tasks
        self.table = table
        self.space = table.of_line(w.SPACE)
        self.tube = view.tube_numbers(self.space)
        self.task = table.of_line(w.K0)
        self.lsn, self.time = table.of_line(w.LSN), table.of_line(w.TIME)
        self.kind, self.session = table.of_line(w.KIND), table.of_line(w.SESSION)
        self.rec, self.at = table.rec, table.at
        before = table.before_of(table.whole, False)
        #: Rows of which only some fields are known count as unknown.
        self.existed, self.exists = table.existed & before, table.exists
        self.inserted = table.inserted
        self.before, self.after = table.before, table.after
        self.real = table.real & ~table.swept
        drivers = view.of_tubes(lambda tube: _number(tube.driver))
        self.driver = drivers[self.tube]
        self._kind = np.clip(self.kind, 0, 255).astype(np.uint8)
        self._chosen: dict[tuple[Any, ...], Bits] = {}
        self.sb = np.where(self.existed, self.before(1), 0)
        self.sa = np.where(self.exists, self.after(1), 0)
        #: Nothing is known of the row before, where the log does not reach back far enough.
        self.unknown = (table.first | (table.existed & ~before)) & ~table.replaced
        self.unknown &= not view.world.complete
        #: A set or delete of a row that is not there.
        self.missing = self.real & ~self.existed & ~table.replaced & ~self.unknown
        #: An ordinary change: rules about what it was before and is after look at these.
        self.known = self.real & (self.existed | table.replaced)

    def __len__(self) -> int:
        return len(self.table)

    def of(self, *names: str) -> Bits:
        """Tubes of these drivers."""
        if names not in self._chosen:
            table = np.zeros(len(DRIVERS), bool)
            table[[_number(name) for name in names]] = True
            self._chosen[names] = table[self.driver]
        return self._chosen[names]

    @cached_property
    def ttl_tube(self) -> Bits:
        return self.of(*TTL_DRIVERS)

    @cached_property
    def imported(self) -> Bits:
        """Tasks of tubes that were imported: their rows began elsewhere."""
        flags = self.view.of_tubes(lambda tube: bool(tube.opts.get(":imported")), bool)
        found: Bits = flags[self.tube]
        return found

    def by(self, *kinds: int) -> Bits:
        """Changes made by records of these kinds."""
        if kinds not in self._chosen:
            table = np.zeros(256, bool)
            table[list(kinds)] = True
            self._chosen[kinds] = table[self._kind]
        return self._chosen[kinds]

    def prev_of(self, values: Any, none: Any = 0) -> Any:
        return self.table.before_of(values, none)

    # -- who holds what ----------------------------------------------------------------------------

    @cached_property
    def holder_after(self) -> Ints:
        """The session of the record that took it, 0 where nobody has it."""
        takes = (self.sa == TAKEN) & ((self.sb != TAKEN) | ~self.existed)
        start = np.maximum.accumulate(np.where(self.table.first, np.arange(len(self)), 0))
        at = np.maximum.accumulate(np.where(takes, np.arange(len(self)), 0))
        at = np.maximum(at, start)
        return np.where((self.sa == TAKEN) & takes[at], self.session[at], 0)

    @cached_property
    def holder(self) -> Ints:
        """The session that had it before the change."""
        found: Ints = self.prev_of(self.holder_after)
        return found

    @cached_property
    def taken_since(self) -> Ints:
        """LSN of the change before."""
        found: Ints = self.prev_of(self.lsn)
        return found

    # -- rows beside the task's --------------------------------------------------------------------

    @cached_property
    def owner(self) -> Ints:
        """The change of its owner's row in the same record, -1 for none."""
        return linked(self.table, self.view.owners)

    @cached_property
    def owner_before(self) -> Ints:
        """The latest earlier change of its owner's row."""
        return standing(self.table, self.view.owners)

    @cached_property
    def note(self) -> Ints:
        return linked(self.table, self.view.notes)

    @cached_property
    def note_before(self) -> Ints:
        return standing(self.table, self.view.notes)

    def noted(self, places: Ints, field: int, none: int = 0) -> Ints:
        """A field of the note after these changes of notes; `none` where there is no note."""
        table = self.view.notes
        if not len(table):
            return np.full(len(places), none, np.int64)
        at = np.where(places >= 0, places, 0)
        there = (places >= 0) & table.exists[at]
        return np.where(there, table.after(field)[at], none)

    def attempts(self) -> tuple[Ints, Ints]:
        """Failed attempts before and after the change, as the notes say."""
        before = self.noted(self.note_before, NOTE_ATTEMPTS)
        after = np.where(self.note >= 0, self.noted(self.note, NOTE_ATTEMPTS), before)
        return before, after

    # -- moments -----------------------------------------------------------------------------------

    def end_of_life(self, after: bool) -> Ints:
        """When the ttl ends, by the row before or after; the last moment there is for none."""
        field = self.after if after else self.before
        found = np.full(len(self), w.LARGEST)
        for chosen, created, ttl in (
            (self.ttl_tube, CREATED, TTL),
            (self.of("queue15"), CREATED15, TTL15),
        ):
            if chosen.any():
                found = np.where(chosen, plus(field(created), field(ttl)), found)
        return found

    def deadline(self, after: bool) -> Ints:
        """When the task is looked at again, by the row before or after."""
        field = self.after if after else self.before
        found = np.full(len(self), w.LARGEST)
        for chosen, at in (
            (self.ttl_tube, NEXT),
            (self.of("queue15"), EVENT15),
            (self.of("xqueue"), RUNAT_X),
        ):
            if chosen.any():
                found = np.where(chosen, field(at), found)
        return found


def _number(driver: str) -> int:
    return DRIVERS.index(driver) if driver in DRIVERS else 0
