"""Logs beside each other: nodes byte by byte, rescue files beside the log they were cut from.

Nodes are compared by the CRCs of whole frames, which are the same bytes everywhere; where those
differ, record by record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import msgpack

from tandemq.model.record import FrameHeader
from tandemq.pipeline.judge.read import NodeLog, SegmentFrames
from tandemq.pipeline.judge.rules.base import Breach
from tandemq.pipeline.judge.verdict import Collector

#: LSN ranges, both ends inclusive.
Ranges = list[tuple[int, int]]


class Frames:
    """A node's frames by their first LSN: count, CRC of the body, where it stands."""

    def __init__(self, parts: Iterable[SegmentFrames]) -> None:
        self.by_first: dict[int, tuple[int, int, SegmentFrames, int]] = {}
        for part in parts:
            for number, (header, _) in enumerate(part.frames):
                self.by_first[header.first_lsn] = (header.count, part.sums[number], part, number)

    def ranges(self) -> Ranges:
        """What LSNs there are."""
        return merged((first, first + one[0] - 1) for first, one in sorted(self.by_first.items()))

    def sums(self, ranges: Ranges) -> dict[int, int]:
        """CRC of each record in these ranges."""
        found: dict[int, int] = {}
        for first, (count, _, part, number) in self.by_first.items():
            if any(first <= high and first + count - 1 >= low for low, high in ranges):
                found |= dict(zip(range(first, first + count), _sums(part, number), strict=True))
        return found


def _sums(part: SegmentFrames, number: int) -> Iterator[int]:
    header: FrameHeader
    header, at = part.frames[number]
    body = memoryview(part.data)[at : at + header.length]
    unpacker = msgpack.Unpacker(max_buffer_size=0, raw=True, strict_map_key=False)
    unpacker.feed(body)
    unpacker.read_array_header()
    for _ in range(header.count):
        start = unpacker.tell()
        unpacker.skip()
        yield zlib.crc32(body[start : unpacker.tell()])


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in order, those that touch made one."""
    found: Ranges = []
    for low, high in ranges:
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """What of `ranges` is in none of `others`."""
    found: Ranges = []
    for low, high in ranges:
        at = low
        for start, stop in others:
            if stop < at or start > high:
                continue
            if start > at:
                found.append((at, start - 1))
            at = max(at, stop + 1)
        if at <= high:
            found.append((at, high))
    return found


def compare_nodes(
    main: NodeLog,
    parts: list[SegmentFrames],
    others: list[NodeLog],
    upto: int | None,
    collector: Collector,
) -> None:
    """Each other node beside the one that was replayed, up to this LSN."""
    frames = Frames(parts)
    for log in others:
        theirs = Frames(list(log.parts(sums=True)))
        for problem in log.problems:
            collector.add(problem)
        _compare(main, frames, log, theirs, upto, collector)


def _compare(
    main: NodeLog,
    one: Frames,
    log: NodeLog,
    other: Frames,
    upto: int | None,
    collector: Collector,
) -> None:
    mine, theirs = one.ranges(), other.ranges()
    if not mine or not theirs:
        return
    first = max(mine[0][0], theirs[0][0])
    last = min(mine[-1][1], upto if upto is not None else theirs[-1][1])
    span = [(first, last)]
    for name, lacks, has in ((log.node, theirs, mine), (main.node, mine, theirs)):
        for low, high in without(without(span, without(span, has)), lacks):
            text = f"{name} lacks LSN {low}" + (f" to {high}" if high > low else "")
            collector.add(Breach("node_lacks", lsn=low, node=name, text=text))
    odd = [
        (at, at + found[0] - 1)
        for at, found in other.by_first.items()
        if at <= last and one.by_first.get(at, (0, 0))[:2] != found[:2]
    ]
    odd = merged(sorted(odd))
    if not odd:
        return
    here, there = one.sums(odd), other.sums(odd)
    differ = sorted(
        lsn
        for lsn in here.keys() & there.keys()
        if here[lsn] != there[lsn] and first <= lsn <= last
    )
    if differ:
        lsn = differ[0]
        text = f"{main.node} and {log.node} differ first in LSN {lsn}, in {len(differ)} records"
        text += f": CRC {here[lsn]:08x} and {there[lsn]:08x}"
        collector.add(Breach("nodes_differ", lsn=lsn, node=log.node, text=text))


def compare_rescue(log: NodeLog, collector: Collector) -> int:
    """What a rewind cut off is not in that node's log, and another term has taken its place.

    How many records there are in rescue files.
    """
    if not log.rescues:
        return 0
    ends: dict[bytes, list[tuple[int, int]]] = {}
    newest = b""
    problems = len(log.problems)
    for part in log.parts():
        ends.setdefault(part.term.id, []).append((part.first_lsn, part.last_lsn))
        newest = part.term.id
    del log.problems[problems:]
    count = 0
    for part in log.rescued():
        count += part.last_lsn - part.first_lsn + 1
        term = part.term.id
        here = merged(sorted(ends.get(term, [])))
        cut = [(part.first_lsn, part.last_lsn)]
        for low, _ in without(cut, without(cut, here)):
            collector.add(Breach("rescue_kept", lsn=low, node=log.node, text=part.name))
        if term == newest and here and part.last_lsn > here[-1][1]:
            lsn = max(part.first_lsn, here[-1][1] + 1)
            text = f"{part.name}: its term is in the log up to LSN {here[-1][1]}"
            collector.add(Breach("rescue_unaccounted", lsn=lsn, node=log.node, text=text))
    return count
