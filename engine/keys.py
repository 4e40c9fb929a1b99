"""Idempotency keys: a put that comes again within its window is answered with the first task.

A key belongs to one tube and is remembered from the first put on, whatever becomes of the task.
Keys are rows, logged with the put itself, so a restart, a snapshot and a promotion keep them; those
of a temporary tube stay on this node. Puts without a key never come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from tandemq.model.errors import failure
from tandemq.model.record import DELETE_MANY, KIND_OTHER, KIND_PUT
from tandemq.model.task import DONE
from tandemq_server.drivers.deadlines import duration_us
from tandemq_server.engine import headers, room
from tandemq_server.engine.arguments import lua_type
from tandemq_server.engine.clients import Delivery, EngineClient, _Sentinel
from tandemq_server.spaces.index import Index
from tandemq_server.spaces.space import IndexShape, Row, Space

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort

KEYS_ID, LOCAL_KEYS_ID = 519, 520
#: Kind of the entry among the timers that says when the next key is to be forgotten.
TIMER_KEYS = -3
#: Options of a put that the driver never sees: of its key, and its headers (headers.py).
KEY_OPTIONS = frozenset({"key", "window", "headers"})
#: How long a key holds unless the put says otherwise, in seconds.
WINDOW_S = 3600
KEY_BYTES_MAX = 255
#: Keys forgotten in one record, so that many at once do not hold up callers.
FORGET_MAX = 1000

KEY_TUBE, KEY_TEXT, KEY_TASK, KEY_EXPIRES = range(4)
#: Payload of a first task that is gone: nil.
_NIL = b"\xc0"


def _key_of(row: Row) -> tuple[int, str]:
    return row[KEY_TUBE], row[KEY_TEXT]


class KeyIndex(Index):
    """Keys by the moment they end. Only the earliest has a timer: keys need not be punctual.

    A batch's keys end at one moment: `held` has for each either its one key or a dict of them, in
    the order they came.
    """

    __slots__ = ("held", "moments", "space", "timer", "timers")

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, str] | dict[tuple[int, str], None]] = {}
        self.moments: SortedList = SortedList()
        self.timer: tuple[int, int, int] | None = None

    def attach(self, space: Space) -> None:
        assert space.store is not None
        self.space = space
        self.timers = space.store.timers

    def added(self, row: Row) -> None:
        moment, key = row[KEY_EXPIRES], (row[KEY_TUBE], row[KEY_TEXT])
        there = self.held.get(moment)
        if there is None:
            self.held[moment] = key
            self._new(moment)
        elif type(there) is dict:
            there[key] = None
        else:
            self.held[moment] = {there: None, key: None}  # type: ignore[dict-item]

    def added_many(self, rows: Sequence[Row]) -> None:
        if len({row[KEY_EXPIRES] for row in rows}) != 1:
            super().added_many(rows)
            return
        moment = rows[0][KEY_EXPIRES]
        keys = dict.fromkeys([row[:KEY_TASK] for row in rows])
        there = self.held.get(moment)
        if type(there) is dict:
            there.update(keys)
        elif there is None:
            self.held[moment] = keys
            self._new(moment)
        else:
            self.held[moment] = {there: None, **keys}  # type: ignore[dict-item]

    def _new(self, moment: int) -> None:
        self.moments.add(moment)
        if self.timer is None or moment < self.timer[0]:
            self._set_timer()

    def removed(self, row: Row) -> None:
        moment = row[KEY_EXPIRES]
        there = self.held[moment]
        if type(there) is dict:
            del there[row[KEY_TUBE], row[KEY_TEXT]]
            if there:
                return
        del self.held[moment]
        self.moments.remove(moment)
        if self.timer is not None and moment == self.timer[0]:
            self._set_timer()

    def cleared(self) -> None:
        self.held.clear()
        self.moments.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self.timer is not None:
            self.timers.discard(self.timer)
        self.timer = None
        if self.moments:
            self.timer = (self.moments[0], TIMER_KEYS, self.space.id)
            self.timers.add(self.timer)

    def due(self, now: int) -> list[tuple[int, str]]:
        """Keys that have ended, at most FORGET_MAX, earliest first."""
        found: list[tuple[int, str]] = []
        for moment in self.moments:
            if moment > now or len(found) == FORGET_MAX:
                break
            there = self.held[moment]
            if type(there) is dict:
                found += islice(there, FORGET_MAX - len(found))
            else:
                found.append(there)  # type: ignore[arg-type]
        return found

    def check(self) -> None:
        wanted: dict[int, set[tuple[int, str]]] = {}
        for row in self.space.rows.values():
            wanted.setdefault(row[KEY_EXPIRES], set()).add(_key_of(row))
        held = {moment: {*there} if type(there) is dict else {there}
                for moment, there in self.held.items()}  # fmt: skip
        assert held == wanted
        assert list(self.moments) == sorted(wanted)
        mine = [e for e in self.timers if e[1] == TIMER_KEYS and e[2] == self.space.id]
        assert mine == ([(self.moments[0], TIMER_KEYS, self.space.id)] if wanted else [])


def _keys_space(space_id: int, name: str, temporary: bool) -> Space:
    return Space(
        space_id,
        name,
        (
            ("tube_id", "unsigned"),
            ("key", "string"),
            ("task_id", "unsigned"),
            ("expires", "unsigned"),
        ),
        indexes=(KeyIndex(),),
        shapes=(IndexShape("key", [(0, "unsigned"), (1, "string")]),),
        temporary=temporary,
        key_of=_key_of,
    )


class Keys:
    """All keys of a node: (tube id, key) -> the task it was first used for, and until when."""

    def __init__(self, engine: EnginePort) -> None:
        self.engine = engine
        self.logged = engine.store.add(_keys_space(KEYS_ID, "_tandem_keys", False))
        self.local = engine.store.add(_keys_space(LOCAL_KEYS_ID, "_tandem_keys_local", True))

    def of(self, tube: TubePort) -> Space:
        return self.local if tube.space.temporary else self.logged

    def expire(self, space_id: int) -> None:
        """Keys came to their end: forget them, many in one record."""
        space = self.logged if space_id == KEYS_ID else self.local
        index = space.indexes[0]
        assert isinstance(index, KeyIndex)
        _remove(space, index.due(self.engine.now))
        self.engine.commit(KIND_OTHER, None)

    def forget_tube(self, tube: TubePort) -> None:
        """The tube was truncated or dropped: its ids begin anew (inside the transaction)."""
        space = self.of(tube)
        if space.rows:
            _remove(space, [key for key in space.rows if key[0] == tube.id])


def _remove(space: Space, keys: list[tuple[int, str]]) -> None:
    if not keys:
        return
    store = space.store
    assert store is not None
    for key in keys:
        row = space.rows.pop(key)
        for index in space.indexes:
            index.removed(row)
        store.undo.append((space, key, row))
    if not space.temporary:
        store.ops.append((DELETE_MANY, space.id, keys))


def split(tube: TubePort, opts: dict[str, Any]) -> tuple[str, int, dict[str, Any] | None]:
    """(key, window in µs, the other options) of a put; the key is "" where it is NULL.

    Headers, checked, stay among the others for `insert`. Raises code 32 for a bad key, window or
    header, or a window without a key.
    """
    key, window = opts.get("key"), opts.get("window")
    rest = {option: value for option, value in opts.items() if option not in KEY_OPTIONS}
    if "headers" in opts:
        given = headers.checked(opts["headers"])
        if given is not None:
            rest["headers"] = given
    if type(key) is bytes:
        key = key.decode("utf-8", "surrogateescape")
    if key is None:
        if window is not None:
            raise failure("Invalid option window: it needs a key")
        return "", 0, rest or None
    if type(key) is not str:
        raise failure(f"Invalid value of key: expected a string, got {lua_type(key)}")
    if not 0 < len(key.encode("utf-8", "surrogateescape")) <= KEY_BYTES_MAX:
        raise failure(f"Invalid value of key: expected 1 to {KEY_BYTES_MAX} bytes")
    return key, _window_us(tube, window), rest or None


def _window_us(tube: TubePort, window: Any) -> int:
    usual = tube.opts.get("key_window") or WINDOW_S
    window_us = duration_us("window", usual if window is None else window)
    if not window_us:
        raise failure(f"Invalid value of window: {window} (expected seconds above 0)")
    return window_us


def has_key(opts: Any) -> bool:
    """Whether `split` has something to do."""
    return opts is not None and not KEY_OPTIONS.isdisjoint(opts)


def find(tube: TubePort, key: str) -> Row | None:
    """The row of a key that still holds."""
    if not key:
        return None
    row = tube.engine.keys.of(tube).rows.get((tube.id, key))
    return row if row is not None and row[KEY_EXPIRES] > tube.engine.now else None


def first(tube: TubePort, row: Row) -> Delivery:
    """The answer to a put that came again: the first task as it is, and a fourth field `true`.

    A task that is gone (acked, deleted, out of its ttl) shows as done, without its payload.
    """
    task = tube.driver.peek(row[KEY_TASK])
    if task is None:
        return Delivery((row[KEY_TASK], DONE, True, _NIL))
    shown = tube.shown(task)
    return Delivery((shown[0], shown[1], True, shown[-1]))


def insert(
    tube: TubePort, data: bytes, key: str, window_us: int, opts: dict[str, Any] | None
) -> Row:
    """Store a task and what it is known by (inside the transaction)."""
    engine = tube.engine
    given = None
    if opts and "headers" in opts:
        opts = dict(opts)
        given = opts.pop("headers")
    row = tube.driver.put(data, opts or None, engine.now)
    if given is not None:
        tube.notebook.head(tube.id, row[0], given)
    if key:
        space = engine.keys.of(tube)
        if (tube.id, key) in space.rows:
            space.delete((tube.id, key))
        space.insert((tube.id, key, row[0], engine.now + window_us))
    return row


def put(
    tube: TubePort, client: EngineClient, ticket: Any, data: bytes, opts: dict[str, Any]
) -> Row | _Sentinel:
    """`put` for options with a key. A put that came again needs no room and counts as none."""
    key, window_us, rest = split(tube, opts)
    known = find(tube, key)
    if known is not None:
        return first(tube, known)
    driver = tube.driver
    if driver.capacity and (tube.blocked or not room.has(tube, 1, len(data))):
        return room.wait(tube, client, ticket, data, opts)
    row = insert(tube, data, key, window_us, rest)
    shown = tube.shown(row)
    tube.engine.commit(KIND_PUT, client.session)
    tube.calls["put"] += 1
    tube.tell_put(row)
    return shown


def put_waiting(tube: TubePort, data: bytes, opts: dict[str, Any]) -> tuple[Row | None, Row]:
    """There is room for a put that waited: (its row or None, what to answer)."""
    key, window_us, rest = split(tube, opts)
    known = find(tube, key)
    if known is not None:
        return None, first(tube, known)
    row = insert(tube, data, key, window_us, rest)
    return row, tube.shown(row)


Given = tuple[bytes, dict[str, Any] | None]
Keyed = tuple[bytes, str, int, dict[str, Any] | None]


def split_many(tube: TubePort, items: Iterable[Given]) -> list[Keyed]:
    """A batch as (payload, key, window in µs, other options)."""
    found: list[Keyed] = []
    windows: dict[int | None, int] = {}
    for data, opts in items:
        if not opts:
            found.append((data, "", 0, None))
            continue
        key, window = opts.get("key"), opts.get("window")
        if (
            # Nothing but a plain key and whole seconds, as nearly always.
            len(opts) == 1 + ("window" in opts)
            and type(key) is str
            and (window is None or type(window) is int)
            and 0 < len(key) <= KEY_BYTES_MAX
            and key.isascii()
        ):
            window_us = windows.get(window)
            if window_us is None:
                window_us = windows[window] = _window_us(tube, window)
            found.append((data, key, window_us, None))
        else:
            found.append((data, *split(tube, opts)))
    return found


def new_among(tube: TubePort, items: list[Keyed]) -> tuple[int, int]:
    """(how many, of how many bytes) tasks of a batch are new: a key that stands twice makes one."""
    fresh: dict[Any, int] = {}
    for number, (data, key, _, _) in enumerate(items):
        if find(tube, key) is None:
            fresh.setdefault(key or number, len(data))
    return len(fresh), sum(fresh.values())


def insert_many(tube: TubePort, items: list[Keyed]) -> tuple[list[Row], list[int]]:
    """Store those of a batch that are new: (their rows, the ids of all in the batch's order)."""
    tube_id, known = tube.id, tube.engine.keys.of(tube).rows
    keys = [(tube_id, item[1]) for item in items]
    if known.keys().isdisjoint(keys) and len(set(keys)) == len(items):
        rows = _insert_new(tube, items)
        return rows, [row[0] for row in rows]
    now = tube.engine.now
    fresh: list[Keyed] = []
    at_of: dict[str, int] = {}
    #: Of each: the id it is known by, or where it stands among the new ones.
    places: list[tuple[int | None, int]] = []
    for item in items:
        key = item[1]
        if key:
            row = known.get((tube_id, key))
            if row is not None and row[KEY_EXPIRES] > now:
                places.append((row[KEY_TASK], 0))
                continue
            if key in at_of:
                places.append((None, at_of[key]))
                continue
            at_of[key] = len(fresh)
        places.append((None, len(fresh)))
        fresh.append(item)
    rows = _insert_new(tube, fresh)
    return rows, [rows[at][0] if task is None else task for task, at in places]


def _insert_new(tube: TubePort, items: list[Keyed]) -> list[Row]:
    """Store tasks whose keys, if they have any, do not hold and stand there once."""
    others = [item[3] for item in items if item[3]]
    if len(items) < 2 or any("headers" in opts for opts in others):
        return [insert(tube, *item) for item in items]
    space, now, tube_id = tube.engine.keys.of(tube), tube.engine.now, tube.id
    rows = tube.driver.put_many([(item[0], item[3]) for item in items], now)
    keys: list[Row] = []
    for row, (_, key, window_us, _) in zip(rows, items, strict=True):
        if key:
            keys.append((tube_id, key, row[0], now + window_us))
    known = space.rows
    pairs = [row[:KEY_TASK] for row in keys]
    if not known.keys().isdisjoint(pairs):
        for pair in pairs:
            if pair in known:
                space.delete(pair)
    space.insert_keyed(pairs, keys)
    return rows
