"""Spaces and their store: the trail a change leaves, taking it back, and records coming in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    DROP,
    INSERT,
    INSERT_MANY,
    MARK,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    Op,
    Record,
)
from spaces.index import GroupIndex
from spaces.space import Row, Space
from spaces.status_index import StatusIndex
from spaces.store import ApplyError, Store

FIELDS = (("id", "unsigned"), ("status", "string"))
CREATED = (CREATE, 1024, "jobs", "fifo", {}, 0)


def build(space_id: int, name: str, _driver: str, _opts: dict[str, Any], temporary: bool) -> Space:
    return Space(space_id, name, FIELDS, indexes=(StatusIndex(),), temporary=temporary)


def new_store() -> Store:
    store = Store(build)
    pairs = Space(
        600, "pairs", FIELDS, key_of=lambda row: row[:2], indexes=(GroupIndex(2, lambda r: r[:2]),)
    )
    store.add(pairs)
    return store


def commit(store: Store) -> list[Op]:
    ops, store.ops = store.ops, []
    store.undo.clear()
    return ops


def test_every_change_is_an_op_that_repeats_it() -> None:
    store, other = new_store(), new_store()
    space = store.create("jobs", "fifo", {"a": 1}, False)
    rows: list[Row] = [(n, "r") for n in range(1, 4)]
    old = space.rows
    space.insert((0, "r"))
    space.insert_many(rows)
    space.set(0, 1, "!")
    status = space.indexes[0]
    assert isinstance(status, StatusIndex)
    taken = status.take_ready(2)
    space.update_many(taken, [(row[0], "t") for row in taken], status, 1, "t")
    space.delete(3)
    space.delete_many([1])
    store.by_name["pairs"].insert((1, 2, b"x"))
    store.by_name["pairs"].delete((1, 2))
    store.by_name["pairs"].insert((3, 4, b"y"))
    assert old == {0: (0, "!"), 2: (2, "t")}
    ops = commit(store)
    other.apply([[*op] for op in ops])
    assert other.by_name["jobs"].rows == old
    assert other.by_name["pairs"].rows == {(3, 4): (3, 4, b"y")}
    assert other.by_name["jobs"].next_id == space.next_id == 4
    other.check()
    # Absolute values: a second time changes nothing.
    other.apply([op for op in ops if op[0] in (SET, INSERT)][-1:])
    assert other.by_name["pairs"].rows == {(3, 4): (3, 4, b"y")}


def test_temporary_spaces_leave_no_trail() -> None:
    store = new_store()
    space = store.create("jobs", "fifo", {}, True)
    assert commit(store) == [(CREATE, 1024, "jobs", "fifo", {}, 1)]
    space.insert((0, "r"))
    space.set(0, 1, "t")
    space.delete(0)
    space.insert_many([(1, "r")])
    space.truncate()
    assert not store.ops
    store.rollback()
    assert not space.rows


@pytest.mark.parametrize("temporary", [False, True])
def test_rollback(temporary: bool) -> None:
    store = new_store()
    space = store.create("jobs", "fifo", {}, temporary)
    space.insert_many([(n, "r") for n in range(4)])
    space.delete(3)
    commit(store)
    before = dict(space.rows)
    space.insert((4, "r"))
    space.set(0, 1, "t")
    space.set(0, 1, "!")
    space.delete(1)
    store.check()
    space.truncate()
    space.insert((0, "r"))
    store.by_name["pairs"].insert((0, 1, b"x"))
    store.rollback()
    assert (space.rows, space.next_id) == (before, 4)
    assert not store.by_name["pairs"].rows
    assert not store.ops
    assert not store.undo
    store.check()


def test_rollback_to_a_mark() -> None:
    store = new_store()
    space = store.create("jobs", "fifo", {}, False)
    space.insert((0, "r"))
    mark = len(store.ops), len(store.undo)
    space.insert((1, "r"))
    space.set(0, 1, "t")
    store.rollback_to(*mark)
    assert space.rows == {0: (0, "r")}
    assert commit(store) == [(*CREATED[:4], {}, 0), (INSERT, 1024, (0, "r"))]


def test_a_key_is_inserted_once() -> None:
    store = new_store()
    space = store.create("jobs", "fifo", {}, False)
    space.insert((0, "r"))
    with pytest.raises(AssertionError, match="key 0 is taken"):
        space.insert((0, "r"))


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ((SET, 1024, 7, 1, "t"), "space jobs: no row 7 to set fields of"),
        ((DELETE, 1024, 7), "space jobs: no row 7 to delete"),
        ((SET_MANY, 1024, [0, 7], 1, "t"), "space jobs: no row 7 to set fields of"),
        ((DELETE_MANY, 1024, [0, 7]), "space jobs: no row 7 to delete"),
        ((INSERT, 9, [0, "r"]), "space 9 is unknown"),
        ((TRUNCATE, 9), "space 9 is unknown"),
        (CREATED, r"space 1024 \(jobs\) is there already"),
        ((CREATE, 1030, "jobs", "fifo", {}, 0), r"space 1030 \(jobs\) is there already"),
    ],
)
def test_what_does_not_fit(op: Op, reason: str) -> None:
    """Refused by name from a log, passed over inside a snapshot whose rows may be ahead."""
    store = new_store()
    store.apply([CREATED, (INSERT, 1024, [0, "r"])])
    with pytest.raises(ApplyError, match=reason):
        store.apply([op])
    lenient = new_store()
    lenient.apply([CREATED, (INSERT, 1024, [0, "r"])])
    lenient.apply([op], lenient=True)
    lenient.check()


@pytest.mark.parametrize("op", [(99, 1024), (99, 9), (0, 600)])
@pytest.mark.parametrize("lenient", [False, True])
def test_an_unknown_code_is_never_passed_over(op: Op, lenient: bool) -> None:
    store = new_store()
    store.apply([CREATED])
    with pytest.raises(ApplyError, match="unknown op code"):
        store.apply([op], lenient)


def test_other_ops() -> None:
    store = new_store()
    term = (1, b"a" * 16, None, 1, "node", False)
    store.apply([(TERM, *term), (TERM, *term), CREATED])
    assert store.lineage == [term]
    store.apply([(INSERT_MANY, 1024, [[5, "r"], [6, "~"]]), (MARK, 1024, 3), (MARK, 1024, 9)])
    space = store.by_name["jobs"]
    assert (space.rows, space.next_id) == ({5: (5, "r"), 6: (6, "~")}, 9)
    store.apply([(TRUNCATE, 1024)])
    assert (space.rows, space.next_id) == ({}, 0)
    store.apply([(DROP, 1024)])
    assert list(store.by_name) == ["pairs"]
    assert store.create("jobs", "fifo", {}, False).id == 1025
    assert not commit(store)[0][4]


def test_a_catalogue_and_rows_rebuild_everything_but_temporary_rows() -> None:
    store = new_store()
    store.lineage.append((1, b"a" * 16, None, 1, "node", False))
    space = store.create("jobs", "fifo", {"pri": 1}, False)
    space.insert_many([(n, "r") for n in range(7)])
    space.delete_many([5, 6])
    store.create("scratch", "fifo", {}, True).insert((0, "r"))
    store.drop(store.create("gone", "fifo", {}, False))
    other = new_store()
    other.apply(store.catalogue())
    chunks = list(store.rows_for_snapshot(2))
    assert [len(rows) for _, rows in chunks] == [2, 2, 1]
    for space_id, rows in chunks:
        for row in rows:
            other.spaces[space_id].put(row)
    assert other.by_name["jobs"].rows == space.rows
    assert other.by_name["jobs"].next_id == 7
    assert other.by_name["jobs"].opts == {"pri": 1}
    assert other.by_name["scratch"].rows == {}
    assert (other.next_space_id, other.lineage) == (store.next_space_id, store.lineage)
    other.check()


def test_rows_that_come_and_go_while_a_snapshot_is_written() -> None:
    store = new_store()
    space = store.create("jobs", "fifo", {}, False)
    space.insert_many([(n, "r") for n in range(6)])
    rows = store.rows_for_snapshot(2)
    assert next(rows)[1] == [(0, "r"), (1, "r")]
    space.delete(2)
    space.set(3, 1, "t")
    space.insert((6, "r"))
    assert next(rows)[1] == [(3, "t")]
    store.forget(space)
    assert list(rows) == []


def record(*ops: Op) -> Record:
    return 0, 26, None, list(ops)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1024, 1025, 600]),
            st.lists(st.integers(0, 9), min_size=1, max_size=6),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_records_applied_together_leave_what_they_leave_one_by_one(
    runs: list[tuple[int, list[int], bool]],
) -> None:
    """Puts in order, out of order, repeated, into spaces of both kinds, with a delete between."""
    records = [record(CREATED), record((CREATE, 1025, "more", "fifo", {}, 0))]
    for space, ids, rising in runs:
        new = range(ids[0], ids[0] + len(ids)) if rising else ids
        rows = [(at, ["r", "t", "!"][at % 3], b"x") for at in new]
        records += [record([INSERT, space, list(row)]) for row in rows]
        key: Any = rows[-1][:2] if space == 600 else rows[-1][0]
        records.append(record([DELETE, space, key]))
    together, single = new_store(), new_store()
    together.apply_all(records)
    for one in records:
        single.apply(one[3])
    for space_id, space in single.spaces.items():
        other = together.spaces[space_id]
        assert (list(other.rows.items()), other.next_id) == (
            list(space.rows.items()),
            space.next_id,
        )
    together.check()


def test_a_put_into_a_space_that_is_not_there_is_refused_behind_what_came_before() -> None:
    store = new_store()
    puts = [record([INSERT, space, [at, "r"]]) for at, space in enumerate((1024, 1024, 9), 1)]
    with pytest.raises(ApplyError, match="space 9 is unknown"):
        store.apply_all([record(CREATED), *puts])
    assert store.by_name["jobs"].rows == {1: (1, "r"), 2: (2, "r")}
