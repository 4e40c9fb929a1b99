"""Rows of like spaces over time: the lines of a chunk, sorted by key, become changes of rows.

A change is what one record made of one row, however many ops that took: the row before, if there
was one, and the row after. State from before the chunk comes as lines of its own, in front.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tandemq.model.record import DELETE, INSERT, SET
from tandemq.pipeline.judge import words as w

#: Arrays of numbers, and of truth values: what numpy makes of them is mostly Any anyhow.
Ints = Any
Bits = Any
#: The record of a line that is state from before the chunk; the mask of one that no op is about.
STATE, SWEPT = -1, -1
_SMALL, _TUBES = 1 << 40, 1 << 22


def key_of(tube: Ints, key: Ints) -> Ints:
    """One number for two: of small numbers without loss, of others a digest (negative)."""
    plain = (key >= 0) & (key < _SMALL) & (tube >= 0) & (tube < _TUBES)
    mixed = tube.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key.astype(np.uint64)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.where(plain, tube << 40 | key & (_SMALL - 1), mixed.astype(np.int64) | -(2**63))


class Table:
    """Changes, in order of their rows' keys and, of one row, of time.

    All arrays have an element for each change; state lines are changes, too (`real` is False).
    prev: the change before of the same row, -1 for none. rec: of the record, in the chunk.
    """

    def __init__(self, lines: Ints, mine: Ints, keys: Ints, complete: bool = True) -> None:
        """lines: a column each; mine: which of them, in order of the log; keys: of each of those.

        complete: what is not there is known not to be there.
        """
        self.lines = lines
        self.complete = complete
        sorting = np.argsort(keys, kind="stable")
        order = mine[sorting]
        self.order, self.sorted_keys = order, keys[sorting]
        self.sorting = sorting
        count = len(order)
        rec, key = lines[w.REC][order], self.sorted_keys
        first = np.ones(count, bool)
        first[1:] = key[1:] != key[:-1]
        begins = first.copy()
        begins[1:] |= rec[1:] != rec[:-1]
        self._group_start = np.maximum.accumulate(np.where(first, np.arange(count), 0))
        starts = np.flatnonzero(begins)
        self.starts = starts
        self.ends = np.append(starts[1:], count) - 1 if count else starts
        self.rec = rec[self.ends]
        self.real = self.rec != STATE
        self.first = first[starts]
        self.prev = np.where(self.first, -1, np.arange(len(starts)) - 1)
        self.key = key[self.ends]
        self._code = lines[w.CODE][order]
        #: Where in the chunk's order of lines each change stands; set by who knows it.
        self.at: Ints = order[self.ends]
        self._mask = lines[w.MASK][order]
        self._sets = np.where(self._code == SET, self._mask, 0)
        #: Fields that some op sets.
        self.touched = int(np.bitwise_or.reduce(self._sets)) if count else 0
        self._cache: dict[Any, Ints] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def of_line(self, column: int) -> Ints:
        """A column of the line each change ends with."""
        if column not in self._cache:
            self._cache[column] = self.lines[column][self.order[self.ends]]
        return self._cache[column]

    @cached_property
    def swept(self) -> Bits:
        """No op is about this row: all of its space went."""
        return self.of_line(w.MASK) == SWEPT

    @cached_property
    def exists(self) -> Bits:
        """The row is there after the change."""
        known = (self._code == INSERT) | (self._code == DELETE)
        at = self._latest(known)
        there = self._code[at] == INSERT
        if not self.complete:
            there |= self._code[at] == SET
        return there[self.ends]

    @cached_property
    def existed(self) -> Bits:
        return self.before_of(self.exists, False)

    @cached_property
    def inserted(self) -> Bits:
        """Some op of the change gave the whole row."""
        found = np.zeros(len(self._code) + 1, np.int64)
        np.cumsum(self._code == INSERT, out=found[1:])
        return found[self.ends + 1] > found[self.starts]

    @cached_property
    def replaced(self) -> Bits:
        """The first op of the change gave the whole row."""
        return self._code[self.starts] == INSERT

    def _latest(self, chosen: Bits) -> Ints:
        """Of each line the latest chosen one of its row, the row's first where there is none."""
        at = np.where(chosen, np.arange(len(chosen)), 0)
        return np.maximum(np.maximum.accumulate(at), self._group_start)

    def before_of(self, values: Any, none: Any) -> Any:
        """An array of changes, one change earlier."""
        found = values[self.prev]
        found[self.prev < 0] = none
        return found

    def after(self, field: int) -> Ints:
        """A field's word after the change; UNSET where the row has none, or it is not known."""
        if ("a", field) not in self._cache:
            column = w.REST if field == w.FIELDS else w.F0 + field
            if self.touched >> field & 1:
                given = self._rows | (self._sets >> field & 1 == 1)
                at = self._latest(given)[self.ends]
                known = given[at]
            else:
                at, known = self._row_at, self._row_known
            found = self.lines[column][self.order[at]]
            self._cache["a", field] = np.where(known, found, w.UNSET)
        return self._cache["a", field]

    @cached_property
    def _rows(self) -> Bits:
        """Lines that give the whole row."""
        return self._code == INSERT

    @cached_property
    def _row_at(self) -> Ints:
        return self._latest(self._rows)[self.ends]

    @cached_property
    def _row_known(self) -> Bits:
        return self._rows[self._row_at]

    @cached_property
    def whole(self) -> Bits:
        """All fields of the row after the change are known."""
        return self.exists & self._row_known

    def before(self, field: int) -> Ints:
        """The same before it."""
        if ("b", field) not in self._cache:
            self._cache["b", field] = self.before_of(self.after(field), w.UNSET)
        return self._cache["b", field]

    def same(self, *fields: int) -> Bits:
        """These fields are what they were; of changes that give no whole row."""
        found = np.ones(len(self), bool)
        for field in fields:
            if self.touched >> field & 1:
                found &= self.after(field) == self.before(field)
        return found

    def carried(self, session: Ints | None = None) -> Ints:
        """The rows that are there at the end, as state lines of the next chunk.

        session: what to keep of each change as its session.
        """
        last = np.ones(len(self), bool)
        last[:-1] = self.first[1:]
        chosen = np.flatnonzero(last & self.whole)
        found = self.lines[:, self.order[self.ends[chosen]]].copy()
        for field in range(w.FIELDS):
            found[w.F0 + field] = self.after(field)[chosen]
        found[w.REST] = self.after(w.FIELDS)[chosen]
        found[w.REC], found[w.CODE], found[w.MASK] = STATE, INSERT, 0
        rows = self._row_at[chosen]
        for column in (w.WIDTH, w.SIZE):
            found[column] = self.lines[column][self.order[rows]]
        if session is not None:
            found[w.SESSION] = session[chosen]
        return found


def linked(one: Table, other: Table) -> Ints:
    """Of each change of `one` the change of `other` of the same key and record; -1 for none."""
    if not len(one) or not len(other):
        return np.full(len(one), -1, np.int64)
    found, hit = _place(one, other, "left")
    return np.where(hit & one.real, found, -1)


def standing(one: Table, other: Table) -> Ints:
    """Of each change of `one` the latest earlier change of `other` of its key; -1 for none."""
    if not len(one) or not len(other):
        return np.full(len(one), -1, np.int64)
    found, _ = _place(one, other, "left")
    found -= 1
    there = found >= 0
    same = other.key[np.where(there, found, 0)] == one.key
    return np.where(there & same, found, -1)


def _place(one: Table, other: Table, side: Any) -> tuple[Ints, Bits]:
    groups, numbers = other.key[other.first], np.cumsum(other.first) - 1
    place = np.searchsorted(groups, one.key)
    span = int(max(one.rec.max(), other.rec.max())) + 3
    theirs = numbers * span + other.rec + 1
    inside = np.minimum(place, len(groups) - 1)
    known = groups[inside] == one.key
    # A key the other table lacks sorts before all of the next one.
    mine = place.astype(np.int64) * span + np.where(known, one.rec + 1, 0)
    found = np.searchsorted(theirs, mine, side)
    at = np.minimum(found, len(theirs) - 1)
    return found, known & (theirs[at] == mine)
