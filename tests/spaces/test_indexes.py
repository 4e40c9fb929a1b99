"""Indexes against sorted() over the rows: every change, many at once, and checks that notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.spaces.index import DeadlineIndex, GroupIndex, Index
from tandemq_server.spaces.record_index import RecordIndex
from tandemq_server.spaces.space import Row, Space
from tandemq_server.spaces.status_index import CountingStatusIndex, StatusIndex
from tandemq_server.spaces.store import Store
from tandemq_server.spaces.subqueue_index import SubQueueIndex
from tandemq_server.spaces.view import ViewSpace

FIELDS = (("id", "unsigned"), ("status", "string"), ("pri", "unsigned"), ("sub", "string"))
PRI, SUB, DUE = 2, 3, 4


def store_of(*indexes: Index) -> tuple[Store, Space]:
    store = Store(lambda *_: pytest.fail("nothing is created here"))
    space = store.add(Space(600, "rows", FIELDS, indexes=indexes))
    return store, space


def due(row: Row) -> int | None:
    return row[DUE] or None


def all_indexes(pri: int | None) -> tuple[StatusIndex, SubQueueIndex, DeadlineIndex, Space, Store]:
    status, subs, deadline = StatusIndex(pri), SubQueueIndex(SUB, pri), DeadlineIndex(DUE, due)
    store, space = store_of(status, subs, deadline, GroupIndex(SUB, lambda row: row[0]))
    return status, subs, deadline, space, store


def first_ready(space: Space, pri: int | None) -> Row | None:
    ready = [row for row in space.rows.values() if row[1] == "r"]
    return min(ready, key=lambda r: (r[pri] if pri else 0, r[0]), default=None)


def first_of_free(space: Space, pri: int | None) -> Row | None:
    busy = {row[SUB] for row in space.rows.values() if row[1] == "t"}
    ready = [row for row in space.rows.values() if row[1] == "r" and row[SUB] not in busy]
    return min(ready, key=lambda r: (r[pri] if pri else 0, r[0]), default=None)


@pytest.mark.parametrize("pri", [None, PRI])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_walk(pri: int | None, seed: int) -> None:
    """One change, many at once, some of them taken back; compared after each."""
    chance = random.Random(seed)
    status, subs, _, space, store = all_indexes(pri)

    def new_row() -> Row:
        return (space.next_id, chance.choice("rrrr!~t"), chance.randrange(3),
                chance.choice("abc"), chance.randrange(4))  # fmt: skip

    def step() -> None:
        ids = sorted(space.rows)
        some = chance.sample(ids, min(len(ids), 4))
        what = chance.randrange(12)
        if what < 4 or not ids:
            space.insert(new_row())
        elif what < 9:
            space.set(chance.choice(ids), 1, chance.choice("rrtt!~"), DUE, chance.randrange(4))
        elif what == 9:
            space.delete(chance.choice(ids))
        elif what == 10:
            space.delete_many(some)
        else:
            rows = [new_row() for _ in range(3)]
            first = space.next_id
            space.insert_many([(first + n, *row[1:]) for n, row in enumerate(rows)])

    for _ in range(600):
        before, next_id, timers = dict(space.rows), space.next_id, list(store.timers)
        for _ in range(chance.randrange(1, 4)):
            step()
        if chance.random() < 0.01:
            space.truncate()
        if chance.random() < 0.3:
            store.rollback()
            assert (space.rows, space.next_id, list(store.timers)) == (before, next_id, timers)
        store.undo.clear()
        store.ops = []
        store.check()
        assert status.first_ready() == first_ready(space, pri)
        assert subs.first_ready() == first_of_free(space, pri)
        counts = [len([r for r in space.rows.values() if r[1] == s]) for s in "t!r~"]
        assert list(status.counts().values()) == counts
        for name in "rt!~":
            rows = [r for r in space.rows.values() if r[1] == name]
            wanted = sorted(rows, key=lambda r: (r[pri] if pri else 0, r[0]))
            assert list(status.by_status(name)) == wanted
        for name in "abc":
            rows = [r for r in space.rows.values() if r[1] == "r" and r[SUB] == name]
            wanted = sorted(rows, key=lambda r: (r[pri] if pri else 0, r[0]))
            assert subs.first_ready_of(name) == (wanted[0] if wanted else None)


def test_batches_of_fifo() -> None:
    """take_ready and update_many, as the fifo driver uses them."""
    status = StatusIndex()
    store, space = store_of(status)
    space.insert_many([(n, "r", 0, "a") for n in range(10)])
    space.set(2, 1, "!")
    old = status.take_ready(5)
    assert [row[0] for row in old] == [0, 1, 3, 4, 5]
    space.update_many(old, [(row[0], "t", *row[2:]) for row in old], status, 1, "t")
    store.check()
    assert status.counts() == {"taken": 5, "buried": 1, "ready": 4, "delayed": 0}
    store.undo = store.undo[-1:]
    store.rollback()
    store.check()
    assert status.first_ready() == (0, "r", 0, "a")
    assert status.take_ready(0) == []


@pytest.mark.parametrize("make", [StatusIndex, lambda: StatusIndex(PRI), RecordIndex])
def test_taken_in_one_step(make: Callable[[], StatusIndex | RecordIndex]) -> None:
    """take_first among releases that come out of order, some of it taken back."""
    chance, index, taken = random.Random(5), make(), 0
    store = Store(lambda *_: pytest.fail("nothing is created here"))
    space = store.add(ViewSpace(600, "rows", FIELDS, indexes=(index,), view=list))
    pri = PRI if isinstance(index, StatusIndex) and index.pri else None
    for _ in range(600):
        what, held = chance.randrange(8), [row[0] for row in space.rows.values() if row[1] == "t"]
        step = 0
        if what < 3:
            space.insert((space.next_id, "r", chance.randrange(3) if pri else 0, ""))
        elif what < 6:
            wanted = first_ready(space, pri)
            found = index.take_first()
            assert found == (None if wanted is None else (wanted[0], "t", *wanted[2:]))
            assert [op[3:] for op in store.ops] == ([] if found is None else [(1, "t")])
            step = len(store.ops)
        elif held:
            space.set(chance.choice(held), 1, "r") if what == 6 else space.delete(held[0])
        if chance.random() < 0.2:
            store.rollback()
            step = 0
        taken += step
        store.undo.clear()
        store.ops = []
        store.check()
        assert index.first_ready() == first_ready(space, pri)
    assert taken > 100
    if isinstance(index, RecordIndex):
        assert index.transitions["R-T"] == taken


@pytest.mark.parametrize("make", [StatusIndex, CountingStatusIndex])
def test_stale_keys_do_not_pile_up(make: Callable[..., StatusIndex]) -> None:
    """A task buried and kicked for ever must not grow a heap for ever."""
    status, subs = make(PRI), SubQueueIndex(SUB, PRI)
    store, space = store_of(status, subs)
    for n in range(10):
        space.insert((n, "r", 0, "a" if n < 5 else str(n)))
    for _ in range(500):
        for n in (4, 7, 9):
            space.set(n, 1, "!")
            space.set(n, 1, "r")
        store.undo.clear()
    store.check()
    assert len(status.line) + len(status.late) < 200
    assert len(subs.heads) < 200
    assert all(len(sub.heap) < 200 for sub in subs.subs.values())


def test_an_order_kept_elsewhere_is_not_asked_for() -> None:
    index = CountingStatusIndex()
    for ask in (index.first_ready, lambda: index.take_ready(1)):
        with pytest.raises(NotImplementedError):
            ask()


def test_deadlines_of_two_spaces_share_the_timers() -> None:
    store = Store(lambda *_: pytest.fail("nothing is created here"))
    one, two = (
        store.add(Space(600 + n, f"s{n}", FIELDS, indexes=(DeadlineIndex(DUE, due),)))
        for n in range(2)
    )
    one.insert((0, "r", 0, "a", 5))
    one.insert((1, "r", 0, "a", 0))
    two.insert((0, "r", 0, "a", 3))
    assert list(store.timers) == [(3, 601, 0), (5, 600, 0)]
    one.set(0, DUE, 2)
    one.set(1, DUE, 9)
    assert list(store.timers) == [(2, 600, 0), (3, 601, 0), (9, 600, 1)]
    one.truncate()
    assert list(store.timers) == [(3, 601, 0)]
    # One that was given up counts as there until its row moves on.
    store.timers.remove((3, 601, 0))
    store.given_up.add((3, 601, 0))
    store.check()
    two.set(0, DUE, 7)
    assert not store.given_up
    store.check()


def drop_ready(status: StatusIndex, _subs: Any, _store: Store) -> None:
    status.line.clear()


def miscount(status: StatusIndex, _subs: Any, _store: Store) -> None:
    status.ready_count += 1


def drop_buried(status: StatusIndex, _subs: Any, _store: Store) -> None:
    status.buried.clear()


def drop_taken(status: StatusIndex, _subs: Any, _store: Store) -> None:
    status.taken.clear()


def drop_heads(_status: Any, subs: SubQueueIndex, _store: Store) -> None:
    subs.heads.clear()


def forget_sub(_status: Any, subs: SubQueueIndex, _store: Store) -> None:
    del subs.subs["b"]


def miscount_taken(_status: Any, subs: SubQueueIndex, _store: Store) -> None:
    subs.subs["a"].taken += 1


def lose_timer(_status: Any, _subs: Any, store: Store) -> None:
    store.timers.pop()


def stray_timer(_status: Any, _subs: Any, store: Store) -> None:
    store.timers.add((1, 600, 99))


def lose_group(_status: Any, _subs: Any, store: Store) -> None:
    next(iter(store.spaces.values())).indexes[3].cleared()


@pytest.mark.parametrize(
    "damage",
    [
        *(drop_ready, miscount, drop_buried, drop_taken, drop_heads, forget_sub, miscount_taken),
        *(lose_timer, stray_timer, lose_group),
    ],
    ids=lambda damage: damage.__name__,
)
def test_checks_notice(damage: Callable[..., None]) -> None:
    status, subs, _, space, store = all_indexes(PRI)
    for n, (state, sub) in enumerate([("r", "b"), ("t", "a"), ("!", "a"), ("~", "b"), ("r", "c")]):
        space.insert((n, state, 1, sub, 5))
    store.check()
    damage(status, subs, store)
    with pytest.raises(AssertionError):
        store.check()
