"""What the judge knows of a log beside its rows: tubes, settings, terms; and what it carries on.

A chunk is some records that follow each other. What they say of tubes and settings is decoded
whole, for there is little of it; their rows become tables (`table.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandemq.model.record import CREATE, DROP, MARK, TERM, TRUNCATE
from tandemq.model.units import SECOND_US
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.table import STATE, SWEPT, Bits, Ints, Table, key_of

FIRST_TUBE_SPACE = 1024
QUEUE, TAKEN, SHARED, CONFIG, GRANTS, KEYS, NOTES, PAUSED = 512, 514, 516, 517, 518, 519, 521, 523
#: Spaces whose keys have two parts.
PAIRED = (TAKEN, GRANTS, KEYS, NOTES)
#: Spaces that are decoded whole.
CATALOGUE = (QUEUE, CONFIG)
TTL_DRIVERS = ("fifottl", "limfifottl", "utubettl")
BUILT_IN = ("fifo", "utube", *TTL_DRIVERS)
DRIVERS = ("", *BUILT_IN, "queue15", "xqueue")


@dataclass
class LoggedTube:
    """A tube as the log tells of it. number: among all tubes of the log; tube_id: the queue's."""

    number: int
    name: str
    space: int
    driver: str
    opts: dict[str, Any]
    tube_id: int = -1
    #: Smallest id that was never given; None where the log does not tell.
    next_id: int | None = 0
    #: How many tasks there are.
    count: int = 0

    @property
    def max_attempts(self) -> int:
        return self.opts.get("max_attempts") or 0

    @property
    def counts_attempts(self) -> bool:
        return self.opts.get("max_attempts") is not None or self.opts.get("retry_delay") is not None


class Steps:
    """A setting over the records of a chunk. It holds from the record that changes it on."""

    def __init__(self, value: int) -> None:
        self.recs: list[int] = [STATE]
        self.values: list[int] = [value]

    def put(self, rec: int, value: int) -> None:
        self.recs.append(rec)
        self.values.append(value)

    @property
    def last(self) -> int:
        return self.values[-1]

    def at(self, recs: Ints) -> Ints:
        """The value after each of these records."""
        return np.array(self.values, np.int64)[
            np.searchsorted(np.array(self.recs, np.int64), recs, "right") - 1
        ]

    def before(self, recs: Ints) -> Ints:
        return self.at(recs - 1)


@dataclass
class World:
    """Carried from chunk to chunk. complete: every row and tube there is is known."""

    complete: bool = True
    tubes: list[LoggedTube] = field(default_factory=list)
    by_space: dict[int, LoggedTube] = field(default_factory=dict)
    #: State lines by space class: tasks, owners, notes, others.
    states: dict[str, Ints] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)
    imported: int = 0

    def tube_of(self, space: int) -> LoggedTube:
        """The tube of a space, one without a name where the log never told."""
        found = self.by_space.get(space)
        if found is None:
            found = LoggedTube(len(self.tubes), f"space {space}", space, "", {}, -1, None)
            self.tubes.append(found)
            self.by_space[space] = found
        return found

    def create(self, space: int, name: str, driver: str, opts: dict[str, Any]) -> LoggedTube:
        found = LoggedTube(len(self.tubes), name, space, driver, opts)
        self.tubes.append(found)
        self.by_space[space] = found
        return found

    def alter(self, name: str, fields: dict[int, Any]) -> None:
        """A tube's options changed; what the judge itself noted of it stays."""
        for tube in reversed(self.tubes):
            if tube.name == name and 4 in fields:
                mine = {key: value for key, value in tube.opts.items() if key.startswith(":")}
                tube.opts = {**fields[4], **mine}
                return

    def name_row(self, row: list[Any]) -> bool:
        """A row of `_queue`: which tube has which id. Whether it is that of a space there is."""
        for tube in reversed(self.tubes):
            if tube.name == row[2]:
                tube.tube_id = row[1]
                mine = {key: value for key, value in tube.opts.items() if not key.startswith(":")}
                return [row[0], row[3], row[4]] == [tube.name, tube.driver, mine]
        return False


@dataclass
class Chunk:
    """Records that follow each other. decode(rec): the ops of one of them."""

    records: Ints
    lines: Ints
    decode: Callable[[int], list[Any]]
    node: str = ""

    def lsn_of(self, rec: int) -> int:
        return int(self.records[w.R_LSN][rec])


class ChunkView:
    """A chunk, replayed: tables of changes, and settings as they were at each record."""

    def __init__(self, world: World, chunk: Chunk) -> None:
        self.world, self.chunk = world, chunk
        self.records, self.lines = chunk.records, chunk.lines
        self.ttr = Steps(world.settings.get("ttr", 0))
        self.later = Steps(world.settings.get("sessions_later_us", 0))
        self.logged = Steps(world.settings.get("in_replicaset", 0))
        #: Records by what they hold: imports, terms; (line, space) where all rows of a space go.
        self.imports: set[int] = set()
        self.terms: list[tuple[int, list[Any]]] = []
        self.sweeps: list[tuple[int, int]] = []
        self.created: list[tuple[int, LoggedTube]] = []
        self.strange: list[tuple[int, str]] = []
        self._catalogue()
        self._with_states()
        self.task_tables()

    # -- what is decoded whole ---------------------------------------------------------------------

    def _catalogue(self) -> None:
        code, space = self.lines[w.CODE], self.lines[w.SPACE]
        rare = np.isin(space, CATALOGUE) | ((code > 3) & (code < 9)) | (code > 11) | (code < 1)
        seen = -1
        for line in np.flatnonzero(rare).tolist():
            rec = int(self.lines[w.REC][line])
            if rec != seen:
                try:
                    self._decoded(rec)
                except (
                    TypeError,
                    ValueError,
                    AttributeError,
                    LookupError,
                    ArithmeticError,
                ) as error:
                    self.strange.append((rec, f"means nothing: {error}"))
                seen = rec
            if int(code[line]) in (DROP, TRUNCATE):
                self.sweeps.append((line, int(space[line])))

    def _decoded(self, rec: int) -> None:
        world = self.world
        for op in self.chunk.decode(rec):
            code = op[0]
            if code == TERM:
                self.terms.append((rec, list(op[1:])))
            elif code == CREATE:
                self.created.append((rec, world.create(op[1], op[2], op[3], op[4])))
            elif code == MARK and op[1] in world.by_space:
                world.by_space[op[1]].next_id = op[2]
            elif code == 1 and op[1] == QUEUE:
                if not world.name_row(op[2]):
                    self.strange.append((rec, f"the row of tube {op[2][0]} is of no space"))
            elif code == 2 and op[1] == QUEUE:
                world.alter(op[2], dict(zip(op[3::2], op[4::2], strict=True)))
            elif code in (1, 2) and op[1] == CONFIG:
                name = op[2][0] if code == 1 else op[2]
                self._setting(rec, name, op[2][1] if code == 1 else op[4])

    def _setting(self, rec: int, name: str, value: Any) -> None:
        known = ("ttr", "in_replicaset", "sessions_later_us", "schema_version")
        if name not in known and not name.startswith("import:"):
            self.strange.append((rec, f"nobody knows the setting {name}"))
        elif name == "schema_version":
            before = self.world.settings.get(":schema", value - 1)
            if value != before + 1:
                self.strange.append((rec, f"schema version {value} follows {before}"))
            self.world.settings[":schema"] = value
        elif name.startswith("import:"):
            self.imports.add(rec)
            for tube in self.world.tubes:
                if tube.name == name.removeprefix("import:"):
                    tube.opts[":imported"] = True
        elif name == "ttr":
            self.ttr.put(rec, int(value * SECOND_US))
        elif name == "sessions_later_us":
            self.later.put(rec, int(value))
        elif name == "in_replicaset":
            self.logged.put(rec, int(bool(value)))

    # -- tables ------------------------------------------------------------------------------------

    def task_tables(self) -> None:
        """Tables of tasks, their owners and notes, and of all other rows."""
        space, code = self.lines[w.SPACE], self.lines[w.CODE]
        row = (code >= 1) & (code <= 3)
        self.tasks: Table = self._table("tasks", row & (space >= FIRST_TUBE_SPACE))
        self.owners = self._table("owners", row & (space == TAKEN))
        self.notes = self._table("notes", row & (space == NOTES))
        others = row & np.isin(space, (SHARED, GRANTS, KEYS, PAUSED))
        self.others = self._table("others", others)

    def tube_numbers(self, spaces: Ints) -> Ints:
        """The tube's number of each space."""
        if not len(spaces):
            return spaces
        low, high = int(spaces.min()), int(spaces.max())
        if high - low < 1 << 20:
            there = np.flatnonzero(np.bincount(spaces - low)) + low
            table = np.zeros(high - low + 1, np.int64)
            table[there - low] = [self.world.tube_of(int(one)).number for one in there]
            return table[spaces - low]
        found, place = np.unique(spaces, return_inverse=True)
        numbers = [self.world.tube_of(int(one)).number for one in found]
        return np.array(numbers, np.int64)[place]

    def of_tubes(self, what: Callable[[LoggedTube], Any], kind: Any = np.int64) -> Any:
        """A value for each tube of the log, by number; one more at the end for none."""
        return np.array([what(tube) for tube in self.world.tubes] + [kind(0)], kind)

    def _keys(self, name: str, lines: Ints, mine: Ints) -> Ints:
        space, first, second = (lines[column][mine] for column in (w.SPACE, w.K0, w.K1))
        if name == "tasks":
            ids = self.of_tubes(lambda tube: tube.tube_id if tube.tube_id >= 0 else tube.space)
            return key_of(ids[self.tube_numbers(space)], first)
        if name in ("owners", "notes"):
            return key_of(first, second)
        second = np.where(np.isin(space, PAIRED), second, 0)
        return key_of(space, key_of(first, second))

    def _table(self, name: str, chosen: Bits) -> Table:
        """The table of the chosen lines of the chunk, with the state before them."""
        begin, end = self._state_of[name]
        mine = np.concatenate((np.arange(begin, end), np.flatnonzero(chosen) + self._states))
        places = mine - self._states
        places[: end - begin] = -1
        for line, space in self.sweeps:
            mine, places = self._swept(mine, places, line, space)
        keys = self._keys(name, self._all, mine)
        table = Table(self._all, mine, keys, self.world.complete)
        table.at = places[table.sorting[table.ends]]
        return table

    def _with_states(self) -> None:
        """One array of state lines, the chunk's lines, and those that are made here."""
        self._state_of: dict[str, tuple[int, int]] = {}
        parts, at = [], 0
        for name in ("tasks", "owners", "notes", "others"):
            state = self.world.states.get(name)
            count = 0 if state is None else state.shape[1]
            if state is not None and count:
                parts.append(state)
            self._state_of[name] = (at, at + count)
            at += count
        self._states = at
        self._all = np.concatenate((*parts, self.lines), axis=1) if parts else self.lines

    def _swept(self, mine: Ints, places: Ints, line: int, space: int) -> tuple[Ints, Ints]:
        """Every row of the space that is known so far goes at this line."""
        known = mine[(self._all[w.SPACE][mine] == space) & (places < line)]
        if not len(known):
            return mine, places
        gone = self._all[:, known]
        keys = np.stack((gone[w.K0], gone[w.K1] if space in PAIRED else gone[w.K0] * 0))
        _, chosen = np.unique(keys, axis=1, return_index=True)
        gone = gone[:, chosen].copy()
        gone[w.CODE], gone[w.MASK] = 3, SWEPT
        for column in (w.REC, *range(w.LSN, w.COLUMNS)):
            gone[column] = self.lines[column][line]
        cut = int(np.searchsorted(places, line))
        fresh = np.arange(gone.shape[1]) + self._all.shape[1]
        self._all = np.concatenate((self._all, gone), axis=1)
        marks = np.full(gone.shape[1], line, np.int64)
        return (
            np.concatenate((mine[:cut], fresh, mine[cut:])),
            np.concatenate((places[:cut], marks, places[cut:])),
        )

    def epochs(self, spaces: Ints, at: Ints) -> Ints:
        """How often all rows of its space had gone when the line at `at` came."""
        found = np.zeros(len(at), np.int64)
        for space in {space for _, space in self.sweeps}:
            lines = [line for line, one in self.sweeps if one == space]
            mine = spaces == space
            found[mine] = [bisect_right(lines, place) for place in at[mine].tolist()]
        return found

    def carry(self, holders: Ints) -> None:
        """The world goes on behind this chunk."""
        world = self.world
        self._next_ids()
        world.states = {
            "tasks": self.tasks.carried(holders),
            "owners": self.owners.carried(),
            "notes": self.notes.carried(),
            "others": self.others.carried(),
        }
        for lines in world.states.values():
            # The second field of a row that is no part of its key.
            lines[w.K1] = np.where(np.isin(lines[w.SPACE], PAIRED), lines[w.K1], 0)
        world.settings = {
            "ttr": self.ttr.last,
            "sessions_later_us": self.later.last,
            "in_replicaset": self.logged.last,
            **{name: value for name, value in world.settings.items() if name.startswith(":")},
        }

    def _next_ids(self) -> None:
        """Ids go on behind the largest one; where all rows went, behind what came since."""
        table = self.tasks
        fresh = np.flatnonzero(table.real & table.inserted & ~table.swept)
        space, task = table.of_line(w.SPACE)[fresh], table.of_line(w.K0)[fresh]
        at = table.at[fresh]
        last = {space: line for line, space in self.sweeps}
        dropped = {space for line, space in self.sweeps if self.lines[w.CODE][line] == DROP}
        for one in np.unique(np.append(space, list(last) or [0])).tolist():
            tube = self.world.by_space.get(one)
            if tube is None:
                continue
            if one in last:
                tube.next_id = 0
            if one in dropped:
                tube.opts[":gone"] = True
            ids = task[(space == one) & (at > last.get(one, -1)) & (task < 1 << 62)]
            if len(ids):
                tube.next_id = max(tube.next_id or 0, int(ids.max()) + 1)
