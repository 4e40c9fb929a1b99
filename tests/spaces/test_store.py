"""Spaces and their store: the trail a change leaves, taking it back, and records coming in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.record import (
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
from tandemq.model.terms import Term, plain_term
from tandemq_server.engine.system_spaces import CatalogueIndex, taken_space
from tandemq_server.spaces.index import GroupIndex
from tandemq_server.spaces.space import Row, Space
from tandemq_server.spaces.status_index import StatusIndex
from tandemq_server.spaces.store import ApplyError, Store

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
    term = Term(1, b"a" * 16, None, 1, "node", False)
    store.apply([(TERM, *plain_term(term)), (TERM, *term), CREATED])
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
    store.lineage.append(Term(1, b"a" * 16, None, 1, "node", False))
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
    assert next(rows)[1] == [(3, "t"), (4, "r")]
    store.forget(space)
    assert list(rows) == []


def record(*ops: Op) -> Record:
    return 0, 26, None, list(ops)


#: What a step does to a row of a space; `lost` names one that is not there.
STEPS = ("put", "put", "put", "set", "set", "delete", "delete", "many", "term", "lost")
SESSIONS = (b"one", b"two")


def step(space: int, at: int, what: str, held: dict[Any, Row]) -> Op:
    """One op of a record as it comes off the wire; `held` keeps the rows each space then has."""
    row: list[Any] = [at, ["r", "t", "!"][at % 3], b"x"]
    if space == 514:
        row = [7, at, 1, SESSIONS[at % 2], 99]
    composite = space in (514, 600)
    key: Any = row[:2] if composite else at
    known = (space, str(key))
    if what == "term":
        return [TERM, 1024, bytes([at]) * 16, None, 1, "a", False]
    if what == "many":
        held[known] = ()
        return [INSERT_MANY, space, [row]]
    if what == "put" or (known not in held and what != "lost"):
        held[known] = ()
        return [INSERT, space, row]
    if what == "set":
        change: list[Any] = [3, b"three"] if space == 514 else [1, "rt!"[(at + 1) % 3]]
        return [SET, space, key, *([2, b"y"] if space == 600 else [*change, 2, b"z"])]
    held.pop(known, None)
    return [DELETE, space, key]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([1024, 1024, 1025, 600, 514]),
                st.integers(0, 6),
                st.sampled_from(STEPS),
            ),
            min_size=1,
            max_size=3,
        ),
        max_size=20,
    )
)
def test_records_applied_together_leave_what_they_leave_one_by_one(
    changes: list[list[tuple[int, int, str]]],
) -> None:
    """Changes of every kind in spaces of every kind, up to one that does not fit."""
    held: dict[Any, Row] = {}
    records = [record(CREATED), record((CREATE, 1025, "more", "fifo", {}, 0))]
    records += [record(*(step(*change, held) for change in one)) for one in changes]
    together, single = new_store(), new_store()
    for store in (together, single):
        store.add(taken_space())
    refusals: list[list[str]] = [[], []]
    try:
        together.apply_all(records)
    except ApplyError as error:
        refusals[0].append(str(error))
    for one in records:
        try:
            single.apply(one[3])
        except ApplyError as error:
            refusals[1].append(str(error))
            break
    assert bool(refusals[0]) == bool(refusals[1])
    if refusals[0]:
        return
    assert together.lineage == single.lineage
    for space_id, space in single.spaces.items():
        other = together.spaces[space_id]
        assert (list(other.rows.items()), other.next_id) == (
            list(space.rows.items()),
            space.next_id,
        )
    assert together.spaces[514].by_session == single.spaces[514].by_session  # type: ignore[attr-defined]
    together.check()


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ([SET, 1024, 9, 1, "t"], "space jobs: no row 9 to set fields of"),
        ([DELETE, 1024, 9], "space jobs: no row 9 to delete"),
        ([DELETE, 514, [7, 9]], "space _queue_taken_2: no row (7, 9) to delete"),
        ([SET, 600, [1, "r"], 1, "t"], "space pairs: no row (1, 'r') to set fields of"),
    ],
)
def test_a_change_of_a_row_that_is_not_there_is_refused_by_name(op: Op, reason: str) -> None:
    store = new_store()
    store.add(taken_space())
    with pytest.raises(ApplyError) as refused:
        store.apply_all([record(CREATED), record([INSERT, 1024, [1, "r"]]), record(op)])
    assert str(refused.value) == reason


def test_what_looks_beyond_its_space_is_told_of_changes_in_their_order() -> None:
    store, told = Store(build), []
    watched = Space(
        601, "watched", FIELDS, indexes=(CatalogueIndex(lambda _r: told.append(jobs()), print),)
    )
    store.add(watched)

    def jobs() -> list[int]:
        return list(store.by_name["jobs"].rows)

    rows = [[INSERT, 1024, [at, "r"]] for at in range(3)]
    news = [[INSERT, 601, [at, "r"]] for at in range(2)]
    store.apply_all([record(CREATED), record(rows[0], news[0]), record(rows[1], news[1], rows[2])])
    assert told == [[0], [0, 1]]


def test_a_put_into_a_space_that_is_not_there_is_refused_behind_what_came_before() -> None:
    store = new_store()
    puts = [record([INSERT, space, [at, "r"]]) for at, space in enumerate((1024, 1024, 9), 1)]
    with pytest.raises(ApplyError, match="space 9 is unknown"):
        store.apply_all([record(CREATED), *puts])
    assert store.by_name["jobs"].rows == {1: (1, "r"), 2: (2, "r")}
