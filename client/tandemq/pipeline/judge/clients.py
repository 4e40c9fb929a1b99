"""What clients were told beside what the log holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from tandemq.model.record import CREATE, INSERT, INSERT_MANY, decode_body
from tandemq.pipeline.judge.read import NodeLog, SegmentFrames
from tandemq.pipeline.judge.rules.base import Breach
from tandemq.pipeline.judge.verdict import Collector

#: Of each put: LSN and SHA-256 of its payload.
Puts = dict[tuple[str, int], list[tuple[int, str]]]


def compare(
    main: NodeLog, logs: list[NodeLog], clients: Iterable[dict[str, Any]], collector: Collector
) -> None:
    """Puts that a client saw succeed (f = put, outcome = ok) and the log has not, or not so."""
    told: dict[tuple[str, int], list[tuple[str, str | None]]] = {}
    for row in clients:
        if row.get("f") == "put" and row.get("outcome") == "ok":
            digest = row.get("digest")
            one = (str(row.get("process")), digest.lower() if digest else None)
            told.setdefault((row["tube"], int(row["task_id"])), []).append(one)
    names: dict[int, str] = {}
    problems = len(main.problems)
    known = _puts(main.parts(), told, names)
    del main.problems[problems:]
    cut = _puts((part for log in logs for part in log.rescued()), told, names)
    for (tube, task), said in told.items():
        for process, digest in said:
            story = f"told to process {process}"
            puts = known.get((tube, task))
            if puts is None:
                undone = cut.get((tube, task))
                rule, lsn = ("undone_put", undone[0][0]) if undone else ("lost_put", None)
                collector.add(Breach(rule, lsn=lsn, tube=tube, task=task, text=story))
            elif digest is not None and digest not in {one for _, one in puts}:
                there = ", ".join(sorted({one for _, one in puts}))
                text = f"{story}: {digest}, the log has {there}"
                lsn = puts[-1][0]
                collector.add(Breach("other_payload", lsn=lsn, tube=tube, task=task, text=text))


def _puts(parts: Iterable[SegmentFrames], told: Any, names: dict[int, str]) -> Puts:
    found: Puts = {}
    for lsn, space, row in _rows(parts, names):
        key = (names.get(space, ""), row[0])
        if key in told:
            digest = hashlib.sha256(row[-1] if isinstance(row[-1], bytes) else b"").hexdigest()
            found.setdefault(key, []).append((lsn, digest))
    return found


def _rows(
    parts: Iterable[SegmentFrames], names: dict[int, str]
) -> Iterator[tuple[int, int, list[Any]]]:
    """(LSN, space, row) of every row that tubes get."""
    for part in parts:
        for header, at in part.frames:
            records = decode_body(memoryview(part.data)[at : at + header.length], header.count)
            for number, record in enumerate(records):
                for op in record[3]:
                    if op[0] == CREATE:
                        names[op[1]] = op[2]
                    elif op[0] == INSERT and op[1] in names:
                        yield header.first_lsn + number, op[1], op[2]
                    elif op[0] == INSERT_MANY and op[1] in names:
                        for row in op[2]:
                            yield header.first_lsn + number, op[1], row
