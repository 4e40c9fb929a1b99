"""The log of a node that follows: where it ends, what of it is durable, which terms it holds.

Shared by all links of the node, so that two of them can never apply one record twice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from tandemq.model.record import (
    HEADER_SIZE,
    TERM,
    FrameError,
    FrameHeader,
    Record,
    Span,
    decode_body,
    decode_header,
    frame_body,
)
from tandemq.model.terms import Term
from tandemq_server.replication.decisions import Alarm, Append, Broken, Decision, Resubscribe
from tandemq_server.replication.known import NOTHING_KNOWN, Mark, learned
from tandemq_server.replication.lineage import ID_BYTES, Lineage, LineageError
from tandemq_server.replication.messages import LinkError
from tandemq_server.replication.snapshot_in import SnapshotReceiver

#: CRCs of at least this many recent frames, and at most twice as many, are kept to tell a
#: repetition from a divergence.
RECENT_FRAMES = 4096
#: (last LSN, CRC) of the frame that starts at an LSN, if it is at hand.
Lookup = Callable[[int], tuple[int, int] | None]


def _nothing_known(_first_lsn: int) -> tuple[int, int] | None:
    return None


class _Run:
    """Frames of one message that are appended as one: `data[start:end]`.

    repeated: the last LSN of the repetitions passed over in front of them, 0 for none. begun: the
    first LSN that was not here when this upstream began to send.
    """

    __slots__ = (
        "begun",
        "commit_lsn",
        "data",
        "end",
        "first_lsn",
        "frames",
        "last_lsn",
        "opens",
        "records",
        "repeated",
        "start",
        "term",
    )

    def __init__(self, data: bytes, start: int, begun: int) -> None:
        self.data = data
        self.begun = begun
        self.start = self.end = start
        self.frames = self.first_lsn = self.last_lsn = self.commit_lsn = self.repeated = 0
        self.records: list[Record] = []
        self.term: Term | None = None
        self.opens = False


class FollowedLog:
    """Position of a follower. The owner keeps it true by the three reports below.

    last_lsn: appended; applied_lsn: visible in the spaces; durable_lsn: survives a power cut;
    commit_lsn: how much of the own log is known to be committed; acked_mark: the highest LSN
    known to be acknowledged, which may be past `last_lsn` on a follower that lags. generation
    counts the times the log was cut or replaced: a flush that began before one proves nothing.
    known: what was ever said to be acknowledged, wherever it is now.
    """

    def __init__(
        self,
        lineage: Lineage,
        last_lsn: int,
        durable_lsn: int,
        commit_lsn: int = 0,
        acked_mark: int = 0,
        lookup: Lookup = _nothing_known,
        known: Mark = NOTHING_KNOWN,
    ) -> None:
        """`lookup` finds the CRC of an own frame in the log, for repetitions of old frames."""
        assert 0 <= durable_lsn <= last_lsn
        self.lineage = lineage
        self.last_lsn = self.applied_lsn = last_lsn
        self.durable_lsn = durable_lsn
        self.commit_lsn = min(commit_lsn, last_lsn)
        self.acked_mark = max(acked_mark, commit_lsn)
        self.known = known
        self.generation = 0
        self.snapshot = SnapshotReceiver()
        self.repeated = self.unchecked = 0
        #: Mean bytes per record of what came, for a lag in bytes.
        self.record_bytes = 0.0
        self._lookup = lookup
        self._recent: dict[int, tuple[int, int]] = {}

    # -- reports of the owner --------------------------------------------------------------------

    def applied(self, lsn: int) -> None:
        """Everything up to `lsn` is visible in the spaces."""
        assert lsn <= self.last_lsn
        self.applied_lsn = max(self.applied_lsn, lsn)

    def flushed(self, lsn: int, generation: int) -> None:
        """Everything up to `lsn` is durable, if the log is still the one it was at `generation`."""
        if generation == self.generation:
            assert lsn <= self.last_lsn, f"LSN {lsn} is durable, the log ends at {self.last_lsn}"
            self.durable_lsn = max(self.durable_lsn, lsn)

    def rewound(self, to_lsn: int) -> None:
        """What came after `to_lsn` is rescued and durably gone, the state is rebuilt."""
        assert to_lsn <= self.last_lsn
        self._replaced(self.lineage.cut_after(to_lsn), to_lsn)

    def installed(self, lineage: Lineage, end_lsn: int) -> None:
        """The state is that of a snapshot now, durably; the log starts behind it."""
        self.snapshot.forget()
        mark = self.acked_mark
        self._replaced(lineage, end_lsn)
        # Its last records need not be committed: only what the upstream said is.
        self.acked_mark = mark
        self.commit_lsn = min(mark, end_lsn)

    def _replaced(self, lineage: Lineage, last_lsn: int) -> None:
        self.generation += 1
        self.lineage = lineage
        self.last_lsn = self.applied_lsn = self.durable_lsn = last_lsn
        self.commit_lsn = min(self.commit_lsn, last_lsn)
        self.acked_mark = min(self.acked_mark, last_lsn)
        self._recent.clear()

    # -- what links bring ------------------------------------------------------------------------

    def committed(self, lsn: int, term_id: bytes, upstream: Lineage) -> None:
        """An upstream of lineage `upstream` says in its term that all up to `lsn` is committed."""
        terms = self.lineage.terms
        at = next((n for n in range(len(terms) - 1, -1, -1) if terms[n].id == term_id), None)
        if at is None and not upstream.contains(term_id):
            return
        if at is not None and at + 1 < len(terms):
            # An old term has no say past its end here, whatever its node wrote after that.
            lsn = min(lsn, terms[at + 1].start_lsn - 1)
        self.acked_mark = max(self.acked_mark, lsn)
        self.commit_lsn = max(self.commit_lsn, min(lsn, self.last_lsn))
        if lsn > self.last_lsn:
            number = next(t.number for t in (upstream if at is None else terms) if t.id == term_id)
            self.learn(Mark(lsn, number, term_id))

    def learn(self, mark: Mark) -> None:
        """Somebody knows that so much was acknowledged."""
        self.known = learned(self.known, mark, self.lineage.terms, self.last_lsn)

    def frames(self, data: bytes, term_id: bytes, begun: int) -> tuple[list[Decision], int]:
        """What to do with whole frames of one term: append, ignore repetitions, ask anew, alarm.

        Also gives the last LSN they are known to share with this log, 0 for none. Frames behind
        one that cannot be used are not looked at. Raises `LinkError` when nothing of `data` can be
        used because it is damaged; behind good frames damage is `Broken`.
        """
        out: list[Decision] = []
        at = shared = 0
        while at < len(data) or not at:
            run = _Run(data, at, begun)
            found: Decision | None = None
            error = ""
            try:
                found = self._gather(run, term_id)
            except FrameError as damage:
                error = damage.reason
            if run.frames:
                out.append(self._append(run))
                shared = run.last_lsn
            if run.repeated:
                shared = max(shared, run.repeated)
            if error and not out and not shared:
                raise LinkError(error)
            if error:
                out.append(Broken(error))
            elif found is not None:
                out.append(found)
            if error or found is not None:
                break
            at = run.end
        return out, shared

    def _gather(self, run: _Run, term_id: bytes) -> Decision | None:
        """Add frames that go on where this log ends to `run`, up to the first that does not.

        `last_lsn` goes along. Repetitions in front are passed over. Raises `FrameError`.
        """
        data, size, at, records = run.data, len(run.data), run.end, run.records
        recent = self._recent
        last = self.lineage.last
        while at < size or not at:
            try:
                header = decode_header(data, at)
            except FrameError as error:
                raise FrameError(f"a frame: {error.reason}") from error
            length, crc, number, first_lsn, count, commit_lsn = header
            if not count:
                raise FrameError(f"frame of LSN {first_lsn} holds no record")
            try:
                body = frame_body(data, at, header, term_id)
                last_lsn = first_lsn + count - 1
                if first_lsn != self.last_lsn + 1:
                    if run.frames:
                        # Judged on its own, once these are taken.
                        return None
                    if last_lsn > self.last_lsn:
                        return Resubscribe(
                            f"LSN {first_lsn} came, the log here ends at {self.last_lsn}"
                        )
                    if (differs := self._repetition(header, term_id, begun=run.begun)) is not None:
                        return differs
                    run.repeated = last_lsn
                    at += HEADER_SIZE + length
                    run.start = run.end = at
                    continue
                found = decode_body(body, count)
            except FrameError as error:
                raise FrameError(f"frame of LSN {first_lsn}: {error.reason}") from error
            if last is None or last.id != term_id or last.number != number:
                if run.frames:
                    return None
                try:
                    last = self._opened_by(header, found, term_id)
                except LineageError as error:
                    return _outranked(header, last, run.begun) or Alarm(first_lsn, error.reason)
                run.opens = True
            if not run.frames:
                run.first_lsn, run.term = first_lsn, last
            records += found
            recent[first_lsn] = (last_lsn, crc)
            self.last_lsn = run.last_lsn = last_lsn
            run.commit_lsn = max(run.commit_lsn, commit_lsn)
            run.frames += 1
            at += HEADER_SIZE + length
            run.end = at
        return None

    def _append(self, run: _Run) -> Append:
        assert run.term is not None
        if len(self._recent) > 2 * RECENT_FRAMES:
            for old in list(islice(self._recent, len(self._recent) - RECENT_FRAMES)):
                del self._recent[old]
        size = (run.end - run.start) / (run.last_lsn - run.first_lsn + 1)
        self.record_bytes += (size - self.record_bytes) / 16 if self.record_bytes else size
        if run.opens:
            # What an older term acknowledged from here on lost against the one that now leads.
            self.acked_mark = min(self.acked_mark, run.term.start_lsn - 1)
        self.commit_lsn = max(self.commit_lsn, min(run.commit_lsn, self.last_lsn))
        self.acked_mark = max(self.acked_mark, run.commit_lsn)
        whole = run.start == 0 and run.end == len(run.data)
        return Append(
            run.data if whole else run.data[run.start : run.end],
            Span(run.first_lsn, run.last_lsn),
            run.frames,
            run.records,
            run.term,
            run.opens,
        )

    def _opened_by(self, header: FrameHeader, records: list[Record], term_id: bytes) -> Term:
        """The term a frame opens, added to the lineage. Raises `LineageError` if it opens none."""
        op = _first_op(records[0])
        if not op or op[0] != TERM:
            raise LineageError(
                f"LSN {header.first_lsn} is of term {header.term} ({term_id.hex()}), "
                "which no record has opened"
            )
        longer = self.lineage.extend(op[1:])
        term = longer.terms[-1]
        if (term.id, term.number, term.start_lsn) != (term_id, header.term, header.first_lsn):
            raise LineageError(
                f"term {term.number} from LSN {term.start_lsn} is opened by the record of "
                f"LSN {header.first_lsn} in a frame of term {header.term}"
            )
        self.lineage = longer
        return term

    def _repetition(
        self, header: FrameHeader, term_id: bytes, begun: int
    ) -> Alarm | Resubscribe | None:
        """All of it is here already: is it the same?"""
        self.repeated += 1
        own = self.lineage.term_at(header.first_lsn)
        if own is None or own.id != term_id:
            number = own.number if own is not None else "none"
            if own is not None and (own.number != header.term or own.start_lsn >= begun):
                # Another link brought this log up to here since this one was asked for: whose
                # records stand is for the handshake to say, which knows both lineages. Two terms
                # may have one number, one of them opened by force.
                return _asked_anew(header, own)
            return Alarm(
                header.first_lsn,
                f"LSN {header.first_lsn} is of term {number} here and of term {header.term} "
                f"({term_id.hex()}) there",
            )
        known = self._recent.get(header.first_lsn) or self._lookup(header.first_lsn)
        if known is None or known[0] != header.last_lsn:
            # Not at hand, or cut into frames elsewhere: the term agrees, that must do.
            self.unchecked += 1
        elif known[1] != header.crc:
            reason = (
                f"records {header.first_lsn}..{header.last_lsn} have CRC {known[1]:08x} here and "
                f"{header.crc:08x} there"
            )
            return Alarm(header.first_lsn, reason)
        return None

    def position_term(self, lsn: int) -> bytes:
        """The id of the term that the record of `lsn` belongs to; zeros for none."""
        term = self.lineage.term_at(lsn) if lsn else None
        return term.id if term is not None else bytes(ID_BYTES)


def _outranked(header: FrameHeader, own: Term | None, begun: int) -> Resubscribe | None:
    """A master that lost fed this node when the term here came over another link.

    It went on from what they shared; what it sends now is to be cut there, and is no fork here.
    """
    if own is None or own.number < header.term:
        return None
    if own.number == header.term and own.start_lsn < begun:
        return None
    return _asked_anew(header, own)


def _asked_anew(header: FrameHeader, own: Term) -> Resubscribe:
    return Resubscribe(
        f"LSN {header.first_lsn} is of term {header.term} there and of term {own.number} here"
    )


def _first_op(record: Any) -> list[Any]:
    """The first op of what should be a record; empty when it has none, or is none."""
    if isinstance(record, list) and len(record) == 4 and isinstance(record[3], list):
        first = record[3][0] if record[3] else None
        return first if isinstance(first, list) else []
    return []
