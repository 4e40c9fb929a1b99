"""Logs rewritten record by record, with right checksums, headers, footers and LSNs.

A fault is a change of meaning that no checksum shows: `Edited` gives the records of a directory as
lists that can be changed, and writes what became of them as a directory of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandemq.log.meta import COMMIT_NAME, META_NAME, Meta, encode_commit, encode_meta, read_meta
from tandemq.log.segment import (
    SEGMENT_HEADER_SIZE,
    SegmentInfo,
    SegmentReader,
    encode_segment_header,
    segment_name,
    segment_names,
)
from tandemq.model.record import KIND_NAMES, TERM, decode_body, encode_frame
from tandemq.model.terms import Term
from tandemq_server.storage.files import FileDisk

KINDS = {name: number for number, name in KIND_NAMES.items()}
#: Records of one frame.
FRAME = 64


@dataclass
class Entry:
    """A record: [time, kind, session, ops], all of them changeable; in which term it stands."""

    record: list[Any]
    term: int

    @property
    def ops(self) -> list[Any]:
        ops: list[Any] = self.record[3]
        return ops

    @property
    def kind(self) -> str:
        return KIND_NAMES[self.record[1]]


class Edited:
    """All records of a directory, and how to find one."""

    def __init__(self, meta: Meta, terms: list[Term], entries: list[Entry]) -> None:
        self.meta, self.terms, self.entries = meta, terms, entries
        #: Terms whose opening record keeps the start it names.
        self.renumber = True

    def copy(self) -> Edited:
        return Edited(self.meta, list(self.terms), copy.deepcopy(self.entries))

    def at(self, kind: str, nth: int = 0, where: Callable[[Entry], bool] = lambda _: True) -> int:
        """The place of the n-th record of a kind, from the end with negative numbers."""
        places = [
            place for place, entry in enumerate(self.entries) if entry.kind == kind and where(entry)
        ]
        return places[nth]

    def one(
        self, kind: str, nth: int = 0, where: Callable[[Entry], bool] = lambda _: True
    ) -> Entry:
        return self.entries[self.at(kind, nth, where)]

    def op(self, entry: Entry, code: int | tuple[int, ...], space: int | None = None) -> Any:
        """The first op of a record with this code, of this space or else of a tube."""
        codes = (code,) if isinstance(code, int) else code
        return next(
            op
            for op in entry.ops
            if op[0] in codes and (op[1] >= 1024 if space is None else op[1] == space)
        )

    def clone(self, entry: Entry, code: int | tuple[int, ...], space: int | None = None) -> Any:
        """A copy of that op."""
        return copy.deepcopy(self.op(entry, code, space))

    def add(self, place: int, kind: str, session: bytes | None, *ops: Any, later: int = 0) -> Entry:
        """A record of the same moment as the one before `place`, or `later` µs after it."""
        near = self.entries[place - 1]
        entry = Entry([near.record[0] + later, KINDS[kind], session, list(ops)], near.term)
        self.entries.insert(place, entry)
        return entry

    def shift(self, place: int, us: int) -> None:
        """Everything from this record on happened so much later."""
        for entry in self.entries[place:]:
            entry.record[0] += us

    def write(self, directory: Path, per_segment: int = 10**9) -> Path:
        """As a data directory."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "rescue").mkdir(exist_ok=True)
        (directory / META_NAME).write_bytes(encode_meta(self.meta))
        first, start = 1, 0
        starts: dict[int, int] = {}
        while start < len(self.entries):
            number = self.entries[start].term
            stop = start
            while (
                stop < len(self.entries)
                and self.entries[stop].term == number
                and stop - start < per_segment
            ):
                stop += 1
            last = stop == len(self.entries)
            starts.setdefault(number, first)
            term = self.terms[number]
            if self.renumber:
                term = term._replace(start_lsn=starts[number])
            self._segment(directory, term, self.entries[start:stop], first, last)
            first += stop - start
            start = stop
        (directory / COMMIT_NAME).write_bytes(encode_commit(first - 1))
        return directory

    def _segment(
        self, directory: Path, term: Term, entries: list[Entry], first: int, last: bool
    ) -> None:
        header = encode_segment_header(self.meta, term, first)
        info = SegmentInfo(segment_name(first), term, first, first - 1, SEGMENT_HEADER_SIZE,
                           header=header)  # fmt: skip
        data = [header]
        for start in range(0, len(entries), FRAME):
            some = [entry.record for entry in entries[start : start + FRAME]]
            for record in some:
                for op in record[3]:
                    if op[0] == TERM and record[1] == KINDS["term"] and self.renumber:
                        op[4] = term.start_lsn
            due = info.last_lsn + 1
            data.append(encode_frame(some, term.number, term.id, due, due - 1))
            info.last_lsn += len(some)
            info.size += len(data[-1])
            info.frames += 1
        info.first_time_us, info.last_time_us = entries[0].record[0], entries[-1].record[0]
        if not last:
            data.append(info.footer())
        (directory / info.name).write_bytes(b"".join(data))


def read(directory: Path) -> Edited:
    """The records of a directory that no node is using."""
    disk = FileDisk(directory, read_only=True)
    meta = read_meta(disk)
    assert meta is not None
    terms: list[Term] = []
    entries: list[Entry] = []
    for name in segment_names(disk):
        reader = SegmentReader(disk, name, meta)
        if not terms or terms[-1].id != reader.term.id:
            terms.append(reader.term)
        for header, body in reader.frames():
            for record in decode_body(body, header.count):
                entries.append(Entry(list(record), len(terms) - 1))
    disk.release()
    return Edited(meta, terms, entries)
