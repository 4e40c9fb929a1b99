"""The lives of tasks, computed column by column: from a table of events to facts and findings.

Pure functions of Arrow tables: Spark brings all events of a task together (`events.py`), and
its Python workers run these on what they get. numpy sorts the events of a part once; what came
before and after an event is then its neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tandemq.pipeline.arrays import TEXT, Bits, Ints, as_text, encoded, nullable, numbers
from tandemq.pipeline.operations import BURY, DEAD, OUTCOMES, PUT, RELEASE, TAKE, TTR

#: One row per task and record, touches left out. us: the record's time; at: its LSN, a code of
#: `operations.py`, and 1 in the lowest bit if it ends the task. There may be ttl and ttr.
EVENT = pa.schema(
    [
        ("tube", TEXT),
        ("task", pa.int64()),
        ("at", pa.int64()),
        ("us", pa.int64()),
        ("session", TEXT),
        ("pri", pa.int64()),
        ("utube", TEXT),
    ]
)
#: Bits below the LSN and below the operation.
AT_LSN, AT_OP = 5, 1
TASK = pa.schema(
    [
        ("tube", TEXT),
        ("task", pa.int64()),
        ("birth", pa.int64()),
        ("utube", TEXT),
        ("pri", pa.int64()),
        ("producer", TEXT),
        ("consumer", TEXT),
        ("put_us", pa.int64()),
        ("first_taken_us", pa.int64()),
        ("ended_us", pa.int64()),
        ("ran_us", pa.int64()),
        ("attempts", pa.int64()),
        ("retries", pa.int64()),
        ("first_lsn", pa.int64()),
        ("last_lsn", pa.int64()),
        ("outcome", TEXT),
        ("waited_us", pa.int64()),
    ]
)
DELIVERY = pa.schema(
    [
        ("tube", TEXT),
        ("task", pa.int64()),
        ("birth", pa.int64()),
        ("attempt", pa.int64()),
        ("consumer", TEXT),
        ("taken_us", pa.int64()),
        ("waited_us", pa.int64()),
        ("ran_us", pa.int64()),
        ("outcome", TEXT),
        ("lsn", pa.int64()),
        ("put_lsn", pa.int64()),
        ("put_us", pa.int64()),
    ]
)
#: Texts of outcomes, by number: those of operations, then the states of what is not over.
_TEXTS = [OUTCOMES.get(code, "other") for code in range(16)]
WAITING, RUNNING, BURIED, TRUNCATED = range(16, 20)
_TEXTS += ["waiting", "running", "buried", "truncated"]
_ENDS = pa.array(_TEXTS)
UNFINISHED = ("waiting", "running", "buried")
_FAR = 2**62


@dataclass
class Lives:
    """Events in order of tube, task and LSN.

    A life is what happened to a task from one put to the next; a task whose put is not among the
    events has a life of its own before its first put. starts: the first event of each life; life:
    number of the life of each event. tube: number of its tube's name in `tubes`.
    """

    table: pa.Table
    tube: Ints
    tubes: list[str]
    task: Ints
    lsn: Ints
    us: Ints
    op: Ints
    ends: Bits
    #: Where there is another event of the same task before and after.
    has_prev: Bits
    has_next: Bits
    birth: Ints
    starts: Ints
    life: Ints

    @property
    def put(self) -> Bits:
        """Of each life: it begins with its put."""
        found: Bits = self.op[self.starts] == PUT
        return found

    @property
    def lasts(self) -> Ints:
        """The last event of each life."""
        return np.append(self.starts[1:], len(self.op)) - 1

    def of_life(self, name: str) -> pa.ChunkedArray:
        """A column of the puts, NULL for lives without one."""
        return self.table[name].take(pa.array(self.starts, mask=~self.put))


def lives(table: pa.Table) -> Lives:
    """The events, sorted. Two of one task in one record: in order of their codes, a put first."""
    tube, tubes = encoded(table["tube"])
    at, task = numbers(table["at"]), numbers(table["task"])
    order = _in_order(tube, task, at)
    table, tube, task, at = table.take(pa.array(order)), tube[order], task[order], at[order]
    op = at >> AT_OP & 15
    count = len(task)
    first = np.ones(count, bool)
    first[1:] = (tube[1:] != tube[:-1]) | (task[1:] != task[:-1])
    has_next = np.ones(count, bool)
    has_next[:-1] = ~first[1:]
    has_next[-1:] = False
    puts = np.cumsum(op == PUT)
    begun = np.flatnonzero(first)
    before = puts[begun] - (op[begun] == PUT)
    starts = np.flatnonzero(first | (op == PUT))
    fresh = np.zeros(count, np.int64)
    fresh[starts] = 1
    return Lives(
        table,
        tube,
        tubes,
        task,
        at >> AT_LSN,
        numbers(table["us"]),
        op,
        (at & 1).astype(bool),
        ~first,
        has_next,
        puts - np.repeat(before, np.diff(np.append(begun, count))),
        starts,
        np.cumsum(fresh) - 1,
    )


def _in_order(tube: Ints, task: Ints, at: Ints) -> Ints:
    """Places in order of tube, task and LSN. They mostly come in order of LSN."""
    bits = int(task.max(initial=0)).bit_length()
    if task.min(initial=0) < 0 or bits + int(tube.max(initial=0)).bit_length() > 62:
        return np.lexsort((at, task, tube))
    both = tube << bits | task
    if (at[1:] >= at[:-1]).all():
        return np.argsort(both, kind="stable")
    return np.lexsort((at, both))


def tasks(all_of: Lives, cleared: Mapping[str, int]) -> pa.Table:
    """One row per life; columns TASK. cleared: the last LSN at which all tasks of a tube went."""
    op, us, starts, lsn = all_of.op, all_of.us, all_of.starts, all_of.lsn
    lasts = all_of.lasts
    take, put = op == TAKE, all_of.put
    place = np.arange(len(op))
    last_take = np.maximum.reduceat(np.where(take, place, -1), starts)
    first_take = np.minimum.reduceat(np.where(take, us, _FAR), starts)
    ended = np.maximum.reduceat(np.where(all_of.ends, us, -1), starts)
    timed = take & all_of.has_next
    ran = np.zeros(len(op), np.int64)
    ran[:-1] = np.where(timed[:-1], us[1:] - us[:-1], 0)
    was_timed = np.logical_or.reduceat(timed, starts)
    over = np.logical_or.reduceat(all_of.ends, starts)
    last_op = op[lasts]
    outcome = np.where(last_op == BURY, BURIED, np.where(last_op == TAKE, RUNNING, WAITING))
    outcome = np.where(over, last_op, outcome)
    swept = np.array([cleared.get(name, -1) for name in all_of.tubes], np.int64)
    outcome = np.where(~over & (swept[all_of.tube[starts]] > lsn[lasts]), TRUNCATED, outcome)
    retried = np.isin(op, (RELEASE, TTR, DEAD))
    put_us = us[starts]
    taken = first_take < _FAR
    columns = {
        "tube": all_of.table["tube"].take(pa.array(starts)),
        "task": all_of.task[starts],
        "birth": all_of.birth[starts],
        "utube": all_of.of_life("utube"),
        "pri": all_of.of_life("pri"),
        "producer": all_of.of_life("session"),
        "consumer": all_of.table["session"].take(pa.array(last_take, mask=last_take < 0)),
        "put_us": nullable(put_us, put),
        "first_taken_us": nullable(first_take, taken),
        "ended_us": nullable(ended, over),
        "ran_us": nullable(np.add.reduceat(ran, starts), was_timed),
        "attempts": np.add.reduceat(take.astype(np.int64), starts),
        "retries": np.add.reduceat(retried.astype(np.int64), starts),
        "first_lsn": lsn[starts],
        "last_lsn": lsn[lasts],
        "outcome": as_text(outcome, _ENDS),
        "waited_us": nullable(first_take - put_us, taken & put),
    }
    return pa.table(columns, TASK)


def deliveries(all_of: Lives) -> pa.Table:
    """One row per take; columns DELIVERY."""
    op, us = all_of.op, all_of.us
    take = op == TAKE
    where = np.flatnonzero(take)
    so_far = np.cumsum(take)
    life = all_of.life[where]
    begun = all_of.starts[life]
    put = all_of.put[life]
    there, after = all_of.has_next[where], np.minimum(where + 1, len(op) - 1)
    before = np.maximum(where - 1, 0)
    ended = np.where(there, op[after], RUNNING)
    columns = {
        "tube": all_of.table["tube"].take(pa.array(where)),
        "task": all_of.task[where],
        "birth": all_of.birth[where],
        "attempt": so_far[where] - (so_far[begun] - take[begun]),
        "consumer": all_of.table["session"].take(pa.array(where)),
        "taken_us": us[where],
        "waited_us": nullable(us[where] - us[before], all_of.has_prev[where]),
        "ran_us": nullable(us[after] - us[where], there),
        "outcome": as_text(ended, _ENDS),
        "lsn": all_of.lsn[where],
        "put_lsn": nullable(all_of.lsn[begun], put),
        "put_us": nullable(us[begun], put),
    }
    return pa.table(columns, DELIVERY)
