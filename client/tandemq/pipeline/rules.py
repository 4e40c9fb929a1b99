"""Rules about one task at a time, over the lives of a part: what breaks them, and takes in order.

Pure functions of numbers, like `tandemq.pipeline.lives`. What each rule means stands in
`tandemq.pipeline.audit.CHECKS`.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tandemq.pipeline.arrays import Bits, Ints, encoded, numbers
from tandemq.pipeline.exchange import BUCKETS_MIN, bucket_of, packed
from tandemq.pipeline.lives import Lives
from tandemq.pipeline.operations import (
    ACK,
    BURY,
    DEAD,
    DELETE,
    FINISH,
    MOVE,
    PUT,
    RELEASE,
    TAKE,
    TTL,
    TTR,
)
from tandemq.pipeline.queues import TAKEN, in_pieces

#: A row is a finding (check is its name), a count (check is COUNT, evidence what was counted, task
#: how many), packed takes whose order is to be judged (TAKES), or those beside cuts (EDGES).
COUNT, TAKES, EDGES = "count", "takes", "edges"
SEEN = pa.schema(
    [
        ("check", pa.string()),
        ("tube", pa.string()),
        ("task", pa.int64()),
        ("lsn", pa.int64()),
        ("evidence", pa.string()),
        ("bucket", pa.int32()),
        ("body", pa.binary()),
    ]
)
FAR = 2**62
#: Pieces a queue is cut into, for each bucket and at most.
PIECES_A_BUCKET, PIECES_MAX = 8, 4096
#: Operations that may end a task.
ENDS = (ACK, DELETE, TTL, FINISH, DEAD, MOVE)
NAMES = {ACK: "acked", DELETE: "deleted", TTL: "expired", DEAD: "dead", FINISH: "finished"}
NAMES[MOVE] = "moved"
STILL = {BURY: "buried", TAKE: "taken"}
KINDS: tuple[str, ...] = ("acked", "deleted", "expired", "dead", "finished", "moved", "other")
KINDS += ("buried", "taken", "still_there")
#: In the order in which one of them is chosen for an event that breaks several.
CHECKED = (
    "put_twice",
    "unknown_task",
    "double_ack",
    "revived",
    "two_holders",
    "not_held",
    "ack_by_other",
    "vanished",
    "too_early",
)


def everything(_tube: str) -> bool:
    return True


def nothing(_tube: str) -> bool:
    return False


@dataclass(frozen=True)
class Rules:
    """What the checks know besides the events.

    cleared: see `notes.Notes`. types: the drivers each tube had. whole(tube): the log
    has its records from LSN 1 on. buckets: takes are packed into so many. stretch: so many LSNs of
    a queue are judged at once, where it may be cut.
    """

    cleared: Mapping[str, Sequence[int]] = field(default_factory=dict)
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    whole: Callable[[str], bool] = everything
    buckets: int = BUCKETS_MIN
    stretch: int = FAR

    def in_order(self, tube: str) -> bool:
        """Its drivers hand out what was due first; of a tube made anew, all of them do."""
        known = {"fifo", "fifottl", "limfifottl", "utube", "utubettl"}
        return tube in self.types and self.types[tube] <= known

    def has_queues(self, tube: str) -> bool:
        return self.types[tube] <= {"utube", "utubettl"}

    def __call__(self, part: Lives) -> Iterator[pa.RecordBatch]:
        """Rows of SEEN."""
        yield from pa.Table.from_pylist([*_findings(part, self), *_counts(part)], SEEN).to_batches()
        there, bodies = packed(*_takes(part, self), self.buckets)
        columns = {"check": [TAKES] * len(there), "bucket": there, "body": bodies}
        empty = {field.name: pa.nulls(len(there), field.type) for field in SEEN}
        yield from pa.table(empty | columns, SEEN).to_batches()


def _before(values: Any) -> Any:
    """The value of the event before; that of the first one means nothing."""
    return np.concatenate((values[:1], values[:-1]))


def _findings(part: Lives, rules: Rules) -> list[dict[str, Any]]:
    op, us = part.op, part.us
    session, _ = encoded(part.table["session"])
    prev, prev_session = np.where(part.has_prev, _before(op), 0), _before(session)
    there = part.has_prev
    ended = there & _before(part.ends)
    held = there & (prev == TAKE)
    waited = us - _before(us)
    by_other = (session >= 0) & (prev_session >= 0) & (session != prev_session)
    whole = np.array([rules.whole(name) for name in part.tubes], bool)[part.tube]
    known = part.put[part.life]
    put_us = us[part.starts][part.life]
    ttl, ttr = (numbers(part.table[name], FAR) for name in ("ttl", "ttr"))
    put_ttl, put_ttr = ttl[part.starts][part.life], ttr[part.starts][part.life]
    prev_ttl = _before(ttl)
    # The ttl may have cut the ttr.
    timed = known & (put_ttl < FAR) & (put_ttr < FAR) & (us - put_us < put_ttl)
    again = (op == PUT) & there & ~ended
    expired = (op == TTL) & (prev == PUT) & (prev_ttl < FAR) & (waited < prev_ttl)
    broken = (
        again & ~_swept(part, again, rules.cleared),
        (op != PUT) & ~there & whole,
        (op == ACK) & ended,
        (op != PUT) & ended,
        (op == TAKE) & held,
        np.isin(op, (ACK, RELEASE, TTR)) & there & ~ended & ~held,
        (op == ACK) & held & by_other,
        part.ends & ~np.isin(op, ENDS),
        expired | ((op == TTR) & held & timed & (waited < put_ttr)),
    )
    which = np.select(broken, range(len(broken)), -1)
    where = np.flatnonzero(which >= 0)
    return [_finding(part, int(at), CHECKED[which[at]]) for at in where]


def _swept(part: Lives, chosen: Bits, cleared: Mapping[str, Sequence[int]]) -> Bits:
    """Of the chosen events: all tasks of the tube went between the event before and this one."""
    found = np.zeros(len(part.op), bool)
    prev_lsn = _before(part.lsn)
    for code, name in enumerate(part.tubes):
        if name in cleared:
            lsns = np.array([*cleared[name], FAR], np.int64)
            where = np.flatnonzero(chosen & (part.tube == code))
            following = np.searchsorted(lsns, prev_lsn[where], "right")
            found[where] = lsns[following] < part.lsn[where]
    return found


def _finding(part: Lives, at: int, check: str) -> dict[str, Any]:
    tube, session = (part.table[name][at].as_py() for name in ("tube", "session"))
    story: dict[str, Any] = {"operation_code": int(part.op[at])}
    if part.has_prev[at]:
        before = at - 1
        story |= {"prev_op": int(part.op[before]), "prev_lsn": int(part.lsn[before])}
        story["prev_session"] = part.table["session"][before].as_py()
        story["prev_time"] = _moment(int(part.us[before]))
    story |= {"session": session, "time": _moment(int(part.us[at]))}
    told = json.dumps({name: value for name, value in story.items() if value is not None})
    return {
        "check": check,
        "tube": tube,
        "task": int(part.task[at]),
        "lsn": int(part.lsn[at]),
        "evidence": told,
    }


def _moment(us: int) -> str:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (epoch + datetime.timedelta(microseconds=us)).isoformat()


def _counts(part: Lives) -> list[dict[str, Any]]:
    """How the lives fared: each is in exactly one of these numbers."""
    lasts = part.lasts
    found: dict[str, int] = {}
    for code in range(16):
        for ends in (False, True):
            count = int(np.count_nonzero((part.op[lasts] == code) & (part.ends[lasts] == ends)))
            name = NAMES.get(code, "other") if ends else STILL.get(code, "still_there")
            if count:
                found[name] = found.get(name, 0) + count
    return [{"check": COUNT, "evidence": name, "task": count} for name, count in found.items()]


def stretch_of(lsns: int, buckets: int) -> int:
    """How many of a log's LSNs are judged at once: in pieces enough that each bucket has its share,
    however the work went up and down, and not so many that their edges are."""
    return lsns // max(min(buckets * PIECES_A_BUCKET, PIECES_MAX), buckets) + 1


def _takes(part: Lives, rules: Rules) -> tuple[pa.Table, Ints]:
    """Takes from tubes that promise an order, of tasks whose put is known; columns TAKEN. And the
    bucket of each: a queue's pieces go to one after the other."""
    tube, names = part.tube, part.tubes
    in_order = np.array([rules.in_order(name) for name in names], bool)
    sub = np.array([rules.in_order(name) and rules.has_queues(name) for name in names], bool)
    where = np.flatnonzero((part.op == TAKE) & part.put[part.life] & in_order[tube])
    begun = part.starts[part.life[where]]
    utube = part.table["utube"].take(pa.array(begun))
    after = np.minimum(where + 1, len(part.op) - 1)
    cut = np.where(sub[tube[where]], 0, part.lsn[where] // rules.stretch)
    queue = _queues(tube[where], names, utube)
    columns = {
        "tube": part.table["tube"].take(pa.array(where)),
        "task": part.task[where],
        "lsn": part.lsn[where],
        "utube": utube,
        "queue": in_pieces(queue, cut),
        "rank": numbers(part.table["pri"].take(pa.array(begun))),
        "due": _before(part.lsn)[where],
        "until": np.where(part.has_next[where], part.lsn[after], FAR),
        "sub": sub[tube[where]].astype(np.int64),
    }
    bucket = (bucket_of(queue, rules.buckets) + cut) % rules.buckets
    return pa.table(columns, TAKEN), bucket


def _queues(tube: Ints, names: Sequence[str], utube: pa.ChunkedArray) -> Ints:
    """A number for each pair of tube and sub-queue, the same in every part."""
    queue, queues = encoded(utube)
    texts = ["", *queues]
    pairs, place = np.unique(tube * len(texts) + queue + 1, return_inverse=True)
    found = []
    for one, other in (divmod(pair, len(texts)) for pair in pairs.tolist()):
        key = json.dumps([names[one], texts[other]]).encode()
        digest = hashlib.blake2b(key, digest_size=8).digest()
        found.append(int.from_bytes(digest, "little", signed=True))
    return np.array(found, np.int64)[place]
