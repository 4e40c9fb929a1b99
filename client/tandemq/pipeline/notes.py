"""What is few in a log, noted while its events are packed: pure functions of Arrow tables.

Each part of a log gives notes about each node whose records it has; `gathered` joins those of all
parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.pipeline.arrays import Bits, chosen_rows, encoded, numbers, place_of
from tandemq.pipeline.exchange import BUCKETS_MIN

#: Of more runs than this in a part or in all no more is asked: something is broken.
RUNS_MAX = 100_000
#: Records whose detail or tube is noted.
SWEEPS = ("truncate", "drop_tube")

#: A run of records that follow each other: LSN, term and time of its first and of its last one.
Run = tuple[int, int, int, int, int, int]


@dataclass
class Notes:
    """About the records of one node, those of its rescue files apart.

    buckets: its events are packed into so many. runs: a new one begins where the next record does
    not follow. cleared: LSNs, by tube, at which all its tasks went. types: the drivers each tube
    had when it was put into. terms: LSN and detail of records that open one; held: first and last
    LSN, and id, of each stretch of one term.
    """

    node: str | None
    rescue: bool = False
    buckets: int = BUCKETS_MIN
    first: int | None = None
    last: int | None = None
    rows: int = 0
    damaged: int = 0
    runs: list[Run] = field(default_factory=list)
    cleared: dict[str, list[int]] = field(default_factory=dict)
    types: dict[str, list[str]] = field(default_factory=dict)
    terms: list[tuple[int, str]] = field(default_factory=list)
    held: list[tuple[int, int, str]] = field(default_factory=list)

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def noted(table: pa.Table, chosen: Bits, node: str | None, rescue: bool) -> Notes:
    """Notes on the chosen rows of a part: all are of this node."""
    found = Notes(node, rescue, rows=int(np.count_nonzero(chosen)))
    table = chosen_rows(table, chosen)
    operation, operations = encoded(table["operation"])
    damage = operation == place_of(operations, "damaged")
    found.damaged = int(np.count_nonzero(damage))
    if found.damaged:
        table, operation = table.filter(pa.array(~damage)), operation[~damage]
    there = pc.min_max(table["lsn"])
    found.first, found.last = there["min"].as_py(), there["max"].as_py()
    few = [place_of(operations, name) for name in (*SWEEPS, "term")]
    _note_few(found, table.filter(pa.array(np.isin(operation, few))))
    if "tube_type" in table.column_names:
        _note_types(found, table.filter(pa.array(operation == place_of(operations, "put"))))
    if "term" in table.column_names and not rescue:
        _note_runs(found, table)
    return found


def _note_few(found: Notes, rows: pa.Table) -> None:
    details = rows["detail"] if "detail" in rows.column_names else rows["operation"]
    names = ("lsn", "operation", "tube")
    for lsn, operation, tube, detail in zip(
        *(rows[name].to_pylist() for name in names), details.to_pylist(), strict=True
    ):
        if operation == "term":
            found.terms.append((lsn, detail))
        elif tube is not None:
            found.cleared.setdefault(tube, []).append(lsn)


def _note_types(found: Notes, puts: pa.Table) -> None:
    tube, tubes = encoded(puts["tube"])
    kind, kinds = encoded(puts["tube_type"])
    for pair in np.unique(tube * (len(kinds) + 1) + kind + 1).tolist():
        one, other = divmod(pair, len(kinds) + 1)
        found.types.setdefault(tubes[one], []).append(kinds[other - 1] if other else "")


def _note_runs(found: Notes, rows: pa.Table) -> None:
    """Where the sorted records of a part do not follow each other, a new run begins."""
    if not rows.num_rows:
        return
    ids, texts = encoded(rows["term_id"])
    lsn, term = numbers(rows["lsn"]), numbers(rows["term"])
    us = numbers(rows["time"].cast(pa.int64()))
    step, later, onward = np.diff(lsn), np.diff(us), np.diff(term)
    if (step < 0).any() or ((step == 0) & ((later < 0) | (onward < 0))).any():
        order = np.lexsort((us, term, lsn))
        lsn, term, us, ids = lsn[order], term[order], us[order], ids[order]
        step, later, onward = np.diff(lsn), np.diff(us), np.diff(term)
    apart = (step > 1) | (later < 0) | (onward < 0) | ((step == 0) & (onward != 0))
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))[: RUNS_MAX + 1]
    ends = np.append(starts[1:], len(lsn)) - 1
    columns = [one[where].tolist() for where in (starts, ends) for one in (lsn, term, us)]
    found.runs = list(zip(*columns, strict=True))
    starts = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1))
    ends = np.append(starts[1:], len(lsn)) - 1
    for start, end in zip(starts.tolist()[:RUNS_MAX], ends.tolist(), strict=False):
        found.held.append((int(lsn[start]), int(lsn[end]), [*texts, ""][ids[start]]))


def gathered(parts: Iterable[bytes]) -> list[Notes]:
    """One of each node and, if there are, one of its rescue files, from the notes of all parts."""
    found: dict[tuple[str | None, bool], Notes] = {}
    for text in parts:
        one: dict[str, Any] = json.loads(text)
        into = found.setdefault(
            (one["node"], one["rescue"]), Notes(one["node"], one["rescue"], one["buckets"])
        )
        into.rows += one["rows"]
        into.damaged += one["damaged"]
        for name, choose in (("first", min), ("last", max)):
            known = [value for value in (getattr(into, name), one[name]) if value is not None]
            setattr(into, name, choose(known, default=None))
        for name in ("runs", "terms", "held"):
            getattr(into, name).extend(tuple(value) for value in one[name])
        for tube, lsns in one["cleared"].items():
            into.cleared[tube] = sorted({*into.cleared.get(tube, ()), *lsns})
        for tube, kinds in one["types"].items():
            into.types[tube] = sorted({*into.types.get(tube, ()), *kinds})
    return list(found.values())
