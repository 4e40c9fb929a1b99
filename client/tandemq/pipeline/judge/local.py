"""The audit of one machine: whole logs through the replay and the rules, in one process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandemq.model.errors import StorageError
from tandemq.model.record import SET, FrameError
from tandemq.pipeline.judge import clients as told
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.chunks import WORTH_COMPILING, SourceChunk, chunks
from tandemq.pipeline.judge.compare import compare_nodes, compare_rescue
from tandemq.pipeline.judge.counts import Counts, compare_statistics
from tandemq.pipeline.judge.read import NodeLog, SegmentFrames
from tandemq.pipeline.judge.rules.base import Breach, Rule
from tandemq.pipeline.judge.rules.catalogue import ALL, chosen
from tandemq.pipeline.judge.snapshots import compare_snapshot, world_of
from tandemq.pipeline.judge.tasks import TaskChanges
from tandemq.pipeline.judge.verdict import Collector, Verdict
from tandemq.pipeline.judge.world import QUEUE, ChunkView, World

#: What a rule may meet in rows that no node writes.
STRANGE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


@dataclass
class AuditRequest:
    """What to audit besides the logs.

    clients: what clients were told, rows of process, f, tube, task_id, outcome, digest. commit_lsn:
    nodes are compared up to here. statistics: by tube, as `queue.statistics` gives them. limit:
    findings of each rule told in full. compiled: use compiled code; None: where it pays.
    """

    clients: Iterable[dict[str, Any]] | None = None
    commit_lsn: int | None = None
    statistics: dict[str, Any] | None = None
    only: Collection[str] = ()
    without: Collection[str] = ()
    limit: int = 1000
    compiled: bool | None = None


@dataclass
class Replay:
    """How far one log has been replayed; `state.py` keeps it between runs."""

    world: World = field(default_factory=World)
    last_lsn: int = 0
    term_id: bytes = b""
    counts: Counts = field(default_factory=Counts)
    #: Terms by the LSN their segments say they begin at, and those whose opening record was met.
    opened: dict[int, tuple[Any, ...]] = field(default_factory=dict)


def audit(
    paths: Sequence[str], wanted: AuditRequest | None = None, kept: Replay | None = None
) -> Verdict:
    """The verdict on these directories. kept: where the last audit ended; it goes on from there.

    Raises `StorageError` for what is no data directory, `ValueError` for an unknown rule.
    """
    wanted = wanted or AuditRequest()
    rules = chosen(wanted.only, wanted.without)
    names = {rule.name for rule in rules}
    collector = Collector([rule.name for rule in ALL if rule.name in names], wanted.limit)
    logs = [NodeLog(path) for path in paths]
    main = max(logs, key=lambda log: (log.last_lsn(), -log.first_lsn()))
    replay = Replay() if kept is None else kept
    if not replay.last_lsn or not _goes_on(main, replay):
        _begin(main, replay)
    parts = main.parts(sums=len(logs) > 1, after=replay.last_lsn)
    seen: list[SegmentFrames] = []
    done = _replay(
        main, _kept(parts, seen, replay, len(logs) > 1), replay, rules, collector, wanted
    )
    if main.commit_lsn is not None and main.commit_lsn > replay.last_lsn:
        text = f"the log ends at LSN {replay.last_lsn}, LSN {main.commit_lsn} was committed"
        main.tell("damaged", replay.last_lsn + 1, text)
    for problem in main.problems:
        collector.add(problem)
    if len(logs) > 1:
        upto = wanted.commit_lsn or _common_commit(logs)
        compare_nodes(main, seen, [log for log in logs if log is not main], upto, collector)
    for log in logs:
        done["rescued_records"] += compare_rescue(log, collector)
    if wanted.clients is not None:
        told.compare(main, logs, wanted.clients, collector)
    if wanted.statistics is not None:
        compare_statistics(replay.world, wanted.statistics, collector)
    return collector.verdict({**done, "nodes": len(logs), **replay.counts.told(replay.world)})


def _common_commit(logs: list[NodeLog]) -> int | None:
    return min((log.commit_lsn for log in logs if log.commit_lsn), default=None)


def _goes_on(log: NodeLog, replay: Replay) -> bool:
    """Whether the log still has what was replayed, or goes on right behind it.

    After a rewind the records that were replayed may be gone: then all is replayed anew.
    """
    return log.first_lsn() <= replay.last_lsn + 1 and log.term_at(replay.last_lsn) in (
        replay.term_id,
        None,
    )


def _begin(log: NodeLog, replay: Replay) -> None:
    """An empty state, that of the oldest snapshot the log goes on from, or one nobody knows."""
    first = log.first_lsn()
    replay.world, replay.last_lsn, replay.counts = World(first <= 1), 0, Counts()
    for name in log.snapshots if first > 1 else ():
        end = int(name.partition(".")[0])
        if end + 1 >= first:
            try:
                replay.world, replay.last_lsn = world_of(log, name), end
                return
            except (StorageError, FrameError) as error:
                log.tell("damaged", None, str(error))


def _kept(
    parts: Iterable[SegmentFrames], seen: list[SegmentFrames], replay: Replay, keep: bool
) -> Iterable[SegmentFrames]:
    """The parts, noted; their bytes are only kept where nodes are compared."""
    for part in parts:
        if part.term.start_lsn == part.first_lsn:
            replay.opened.setdefault(part.first_lsn, tuple(part.term))
        replay.term_id = part.term.id
        if keep:
            seen.append(part)
        yield part


def _replay(
    log: NodeLog,
    parts: Iterable[SegmentFrames],
    replay: Replay,
    rules: list[Rule],
    collector: Collector,
    wanted: AuditRequest,
) -> dict[str, int]:
    """Run the rules over all chunks; what there was."""
    names = {rule.name for rule in rules}
    marks = [int(name.partition(".")[0]) for name in log.snapshots]
    compare = "snapshot_differs" in names
    compiled = wanted.compiled if wanted.compiled is not None else log.size > WORTH_COMPILING
    records = rows = 0
    began = replay.last_lsn
    try:
        found = chunks(parts, log.node, compiled, began + 1, marks if compare else ())
        for chunk in found:
            records += chunk.records.shape[1]
            rows += chunk.lines.shape[1]
            for piece in _between_alterations(chunk):
                _judge(piece, replay, rules, collector)
            if compare and chunk.last_lsn in marks:
                name = f"{chunk.last_lsn:020d}.snap"
                compare_snapshot(log, name, replay.world, collector)
    except FrameError as error:
        log.tell("damaged", replay.last_lsn + 1, error.reason)
    except STRANGE as error:
        text = f"what stands behind LSN {replay.last_lsn} cannot be replayed: {error!r}"
        log.tell("strange_op", replay.last_lsn + 1, text)
    _check_opened(log, replay, began)
    return {"records": records, "rows": rows, "rescued_records": 0}


def _between_alterations(chunk: SourceChunk) -> Iterator[SourceChunk]:
    """Parts of a chunk over which no tube's options change but in the first record."""
    altered = (chunk.lines[w.SPACE] == QUEUE) & (chunk.lines[w.CODE] == SET)
    for lsn in sorted({*chunk.lines[w.LSN][altered].tolist()}):
        if lsn > chunk.records[w.R_LSN][0]:
            before, chunk = chunk.cut(lsn - 1)
            yield before
    yield chunk


def _judge(chunk: SourceChunk, replay: Replay, rules: list[Rule], collector: Collector) -> None:
    world = replay.world
    view = ChunkView(world, chunk)
    tasks = TaskChanges(view)
    for rule in rules:
        if rule.needs_complete and not world.complete:
            continue
        try:
            for finding in rule.find(view, tasks):
                collector.add(finding, chunk, chunk.node)
        except STRANGE as error:
            # Values of other types than any node writes.
            lsn = chunk.lsn_of(0)
            text = f"rule {rule.name} cannot judge LSN {lsn} to {chunk.last_lsn}: {error!r}"
            collector.add(Breach("strange_op", lsn=lsn, node=chunk.node, text=text))
    for rec, term in view.terms:
        lsn = chunk.lsn_of(rec)
        opened = replay.opened.pop(lsn, ())
        if tuple(term[:6]) != opened[:6]:
            text = f"the record says {term!r}, its segment {opened!r}"
            collector.add(Breach("forked_lineage", lsn=lsn, node=chunk.node, text=text))
    replay.counts.add(view, tasks)
    view.carry(tasks.holder_after)
    replay.last_lsn = chunk.last_lsn


def _check_opened(log: NodeLog, replay: Replay, began: int) -> None:
    """Terms whose first record is not the one that opens them."""
    for lsn, term in replay.opened.items():
        if began < lsn <= replay.last_lsn:
            log.tell("term_missing", lsn, f"LSN {lsn} does not open term {term[0]} {term[1].hex()}")
    replay.opened.clear()
