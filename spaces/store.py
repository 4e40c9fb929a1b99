"""All spaces of a node, their transaction trail, and the way records come back in.

`apply` is the one road from a record to memory: recovery, replicas and snapshots all take it.
Nothing here writes, ships or decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sortedcontainers import SortedList

from tandemq.model.bounds import FRAME_BODY_BYTES_AIM, row_bytes
from tandemq.model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    DROP,
    FLAG_TEMPORARY,
    INSERT,
    INSERT_MANY,
    MARK,
    OP_NAMES,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    Op,
    Record,
)
from tandemq.model.terms import Term, plain_term
from tandemq_server.spaces.space import ADDED, Row, Space

SPACE_ID_FIRST = 1024
#: In the space's place of a MARK: space ids below the mark are spent.
STORE_ITSELF = 0
#: What nearly every record is made of: changes of single rows.
_ROW_OPS = frozenset((INSERT, SET, DELETE))
#: Timers of spaces carry the space's id; smaller numbers are the engine's own timers.
Factory = Callable[[int, str, str, dict[str, Any], bool], Space]


class ApplyError(Exception):
    """A record does not fit the state it should apply to: the log and memory disagree."""


def _key(value: Any) -> Any:
    return tuple(value) if type(value) is list else value


class Store:
    """Spaces by id and name.

    timers: (due µs, space id or engine timer kind, key), one sorted structure for the whole node.
    given_up: timers of rows that nobody could handle when they were due.
    ops / undo: the trail of the transaction at hand.
    lineage: every term, oldest first.
    torn: a roll-back broke off, memory holds half of a call: nothing may be written any more.
    """

    def __init__(self, factory: Factory) -> None:
        """`factory(space_id, name, driver, opts, temporary)` builds a created space."""
        self.factory = factory
        self.spaces: dict[int, Space] = {}
        self.by_name: dict[str, Space] = {}
        self.timers: SortedList = SortedList()
        self.given_up: set[tuple[Any, ...]] = set()
        self.ops: list[Op] = []
        self.undo: list[tuple[Space, Any, Any]] = []
        self.next_space_id = SPACE_ID_FIRST
        #: Grows whenever a space comes or goes, or begins or ceases to be temporary.
        self.catalogue_version = 0
        self.lineage: list[Term] = []
        self.torn = False

    def add(self, space: Space) -> Space:
        """Register a space that exists on every node from the start (system spaces)."""
        assert space.id not in self.spaces
        assert space.name not in self.by_name
        self.spaces[space.id] = space
        self.by_name[space.name] = space
        self.catalogue_version += 1
        space.attach(self)
        return space

    def create(self, name: str, driver: str, opts: dict[str, Any], temporary: bool) -> Space:
        """Create a space inside the transaction. Rows of a temporary one stay on this node."""
        space = self._build(self.next_space_id, name, driver, opts, temporary)
        flags = FLAG_TEMPORARY if temporary else 0
        self.ops.append((CREATE, space.id, name, driver, opts, flags))
        return space

    def drop(self, space: Space) -> None:
        self.forget(space)
        self.ops.append((DROP, space.id))

    def _build(
        self, space_id: int, name: str, driver: str, opts: dict[str, Any], temporary: bool
    ) -> Space:
        space = self.factory(space_id, name, driver, opts, temporary)
        space.driver = driver
        space.opts = opts
        self.next_space_id = max(self.next_space_id, space_id + 1)
        return self.add(space)

    def forget(self, space: Space) -> None:
        """Remove a space from memory, leaving no trail."""
        space.clear()
        del self.spaces[space.id]
        del self.by_name[space.name]
        self.catalogue_version += 1

    # -- transactions ----------------------------------------------------------------------------

    def rollback(self) -> None:
        """Take back every row change since the last commit, newest first."""
        self.rollback_to(0, 0)

    def rollback_to(self, ops: int, undo: int) -> None:
        """Take back what changed since the trail had these lengths."""
        if len(self.undo) <= undo:
            del self.ops[ops:]
            return
        self.torn = True
        self._take_back(ops, undo)
        self.torn = False

    def _take_back(self, ops: int, undo: int) -> None:
        trail = self.undo
        unspent: set[Space] = set()
        while len(trail) > undo:
            space, key, old = trail.pop()
            space.restore(key, old)
            if (old is None or key is ADDED) and space.key_of is None:
                unspent.add(space)
        for space in unspent:
            for index in space.indexes:
                index.purge()
        del self.ops[ops:]

    # -- records coming in -----------------------------------------------------------------------

    def apply_all(self, records: Sequence[Record]) -> None:
        """Apply the ops of records that follow each other; leaves what `apply` of each would.

        Spaces that know nothing of each other get theirs one space after the other, which is what
        a replica's time goes into; everything else waits for that.
        """
        spaces = self.spaces
        runs: dict[int, list[Op]] = {}
        for record in records:
            for op in record[3]:
                space_id = op[1]
                if op[0] in _ROW_OPS:
                    if space_id in runs:
                        runs[space_id].append(op)
                        continue
                    if space_id in spaces and spaces[space_id].alone:
                        runs[space_id] = [op]
                        continue
                if runs:
                    self._replay(runs)
                    runs = {}
                self.apply((op,))
        if runs:
            self._replay(runs)

    def _replay(self, runs: dict[int, list[Op]]) -> None:
        for space_id, ops in runs.items():
            space = self.spaces[space_id]
            unfit = space.replay(ops)
            if unfit is not None:
                todo = "to delete" if unfit[0] == DELETE else "to set fields of"
                raise ApplyError(f"space {space.name}: no row {_key(unfit[2])!r} {todo}")

    def apply(self, ops: Sequence[Op], lenient: bool = False) -> None:
        """Apply one record's ops. `lenient`: rows may be missing (inside a fuzzy snapshot).

        Raises `ApplyError` when a strict op does not fit.
        """
        # Half of what a replica does happens here: the three common ops first, without helpers.
        spaces = self.spaces
        for op in ops:
            code, space_id = op[0], op[1]
            if space_id not in spaces:
                self._apply_to_store(op, lenient)
                continue
            space = spaces[space_id]
            if code == INSERT:
                space.put(tuple(op[2]))
            elif code == SET:
                key = op[2]
                if type(key) is list:
                    key = tuple(key)
                if not space.assign(key, op, 3) and not lenient:
                    raise ApplyError(f"space {space.name}: no row {key!r} to set fields of")
            elif code == DELETE:
                key = op[2]
                if type(key) is list:
                    key = tuple(key)
                if not space.discard(key) and not lenient:
                    raise ApplyError(f"space {space.name}: no row {key!r} to delete")
            elif code == CREATE or code == TERM:
                self._apply_to_store(op, lenient)
            else:
                self._apply_to_space(space, op, lenient)

    def _apply_to_store(self, op: Op, lenient: bool) -> None:
        """Ops about terms and spaces, and those whose space is not there."""
        code = op[0]
        if code == TERM:
            if not self.lineage or self.lineage[-1].id != op[2]:
                self.lineage.append(Term(*op[1:]))
        elif code == CREATE:
            # A catalogue may be ahead of the frames after it, by a space dropped and made anew.
            if op[1] not in self.spaces and op[2] not in self.by_name:
                self._build(op[1], op[2], op[3], op[4], bool(op[5] & FLAG_TEMPORARY))
            elif not lenient:
                raise ApplyError(f"space {op[1]} ({op[2]}) is there already")
        elif code == MARK and op[1] == STORE_ITSELF:
            self.next_space_id = max(self.next_space_id, op[2])
        elif code not in OP_NAMES:
            raise ApplyError(f"unknown op code {code!r}")
        elif not lenient:
            raise ApplyError(f"space {op[1]} is unknown")

    def _apply_to_space(self, space: Space, op: Op, lenient: bool) -> None:
        """Ops that are not among the three that make up nearly every record."""
        code = op[0]
        if code == INSERT_MANY:
            for row in op[2]:
                space.put(tuple(row))
        elif code == SET_MANY:
            for key in op[2]:
                if not space.assign(_key(key), op[3:]) and not lenient:
                    raise ApplyError(f"space {space.name}: no row {key!r} to set fields of")
        elif code == DELETE_MANY:
            for key in op[2]:
                if not space.discard(_key(key)) and not lenient:
                    raise ApplyError(f"space {space.name}: no row {key!r} to delete")
        elif code == TRUNCATE:
            space.clear()
        elif code == DROP:
            self.forget(space)
        elif code == MARK:
            space.next_id = max(space.next_id, op[2])
        else:
            raise ApplyError(f"unknown op code {code!r}")

    # -- what a snapshot holds -------------------------------------------------------------------

    def catalogue(self) -> list[Op]:
        """Ops that recreate lineage, spaces and their id high-water marks."""
        ops: list[Op] = [(TERM, *plain_term(term)) for term in self.lineage]
        for space in self.spaces.values():
            if space.id >= SPACE_ID_FIRST:
                flags = FLAG_TEMPORARY if space.temporary else 0
                ops.append((CREATE, space.id, space.name, space.driver, space.opts, flags))
            if space.next_id and not space.temporary:
                ops.append((MARK, space.id, space.next_id))
        ops.append((MARK, STORE_ITSELF, self.next_space_id))
        return ops

    def rows_for_snapshot(self, chunk: int) -> Iterator[tuple[int, list[Row]]]:
        """(space id, some rows), over several event-loop turns while rows change.

        Up to `chunk` rows, and about as many bytes as a block is to have.

        Only the list of keys of one space is copied at a time; rows that come, change or go in
        between are covered by the log frames written into the same snapshot.
        """
        for space_id in list(self.spaces):
            space = self.spaces.get(space_id)
            if space is None or space.temporary:
                continue
            get = space.rows.get
            part: list[Row] = []
            size = 0
            # Rows leave with the key at hand: what is handed out is as it is at that moment.
            for key in list(space.rows):
                if (row := get(key)) is None:
                    continue
                part.append(row)
                size += row_bytes(row)
                if len(part) >= chunk or size >= FRAME_BODY_BYTES_AIM:
                    yield space_id, part
                    part, size = [], 0
                    if self.spaces.get(space_id) is not space:
                        break
            if part:
                yield space_id, part

    def reset(self) -> None:
        """Forget every row, created space, timer and term: the state is about to be loaded anew."""
        self.rollback()
        for space in list(self.spaces.values()):
            if space.id < SPACE_ID_FIRST:
                space.clear()
                space.next_id = 0
        for space in [s for s in self.spaces.values() if s.id >= SPACE_ID_FIRST]:
            self.forget(space)
        self.timers.clear()
        self.given_up.clear()
        self.next_space_id = SPACE_ID_FIRST
        #: Grows whenever a space comes or goes, or begins or ceases to be temporary.
        self.catalogue_version = 0
        self.lineage.clear()

    def check(self) -> None:
        for space in self.spaces.values():
            space.check()
