"""The log of a node that follows: where it ends, what of it is durable, which terms it holds.

Shared by all links of the node, so that two of them can never apply one record twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from model.record import TERM, FrameError, FrameHeader, Record, decode_body, frame_body
from replication.decisions import Alarm, Append, Decision, Resubscribe
from replication.lineage import ID_BYTES, Lineage, LineageError, Term
from replication.messages import LinkError
from replication.snapshot_in import SnapshotReceiver

#: CRCs of this many recent frames are kept to tell a repetition from a divergence.
RECENT_FRAMES = 4096
#: (last LSN, CRC) of the frame that starts at an LSN, if it is at hand.
Lookup = Callable[[int], tuple[int, int] | None]


def _nothing_known(_first_lsn: int) -> tuple[int, int] | None:
    return None


class FollowedLog:
    """Position of a follower. The owner keeps it true by the three reports below.

    last_lsn: appended; applied_lsn: visible in the spaces; durable_lsn: survives a power cut;
    commit_lsn: how much of the own log is known to be committed; acked_mark: the highest LSN
    known to be acknowledged, which may be past `last_lsn` on a follower that lags. generation
    counts the times the log was cut or replaced: a flush that began before one proves nothing.
    """

    def __init__(
        self,
        lineage: Lineage,
        last_lsn: int,
        durable_lsn: int,
        commit_lsn: int = 0,
        acked_mark: int = 0,
        lookup: Lookup = _nothing_known,
    ) -> None:
        """`lookup` finds the CRC of an own frame in the log, for repetitions of old frames."""
        assert 0 <= durable_lsn <= last_lsn
        self.lineage = lineage
        self.last_lsn = self.applied_lsn = last_lsn
        self.durable_lsn = durable_lsn
        self.commit_lsn = min(commit_lsn, last_lsn)
        self.acked_mark = max(acked_mark, commit_lsn)
        self.generation = 0
        self.snapshot = SnapshotReceiver()
        self.repeated = self.unchecked = 0
        #: Mean bytes per record of what came, for a lag in bytes.
        self.record_bytes = 0.0
        self._lookup = lookup
        self._recent: OrderedDict[int, tuple[int, int]] = OrderedDict()

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

    def frame(self, header: FrameHeader, data: bytes, term_id: bytes) -> list[Decision]:
        """What to do with a frame: append it, ignore a repetition, ask anew, or raise the alarm.

        Raises `LinkError` when the frame is damaged.
        """
        try:
            body = frame_body(data, 0, header, term_id)
        except FrameError as error:
            raise LinkError(f"frame of LSN {header.first_lsn}: {error.reason}") from error
        if header.last_lsn <= self.last_lsn:
            return self._repetition(header, term_id)
        if header.first_lsn != self.last_lsn + 1:
            return [
                Resubscribe(f"LSN {header.first_lsn} came, the log here ends at {self.last_lsn}")
            ]
        try:
            records = decode_body(body, header.count)
        except FrameError as error:
            raise LinkError(f"frame of LSN {header.first_lsn}: {error.reason}") from error
        last = self.lineage.last
        if last is not None and last.id == term_id and last.number == header.term:
            return [self._append(header, data, records, last, False)]
        try:
            term = self._opened_by(header, records, term_id)
        except LineageError as error:
            return [Alarm(header.first_lsn, error.reason)]
        return [self._append(header, data, records, term, True)]

    def _append(
        self, header: FrameHeader, data: bytes, records: list[Record], term: Term, opens: bool
    ) -> Append:
        self.last_lsn = header.last_lsn
        self._recent[header.first_lsn] = (header.last_lsn, header.crc)
        if len(self._recent) > RECENT_FRAMES:
            self._recent.popitem(last=False)
        size = len(data) / header.count
        self.record_bytes += (size - self.record_bytes) / 16 if self.record_bytes else size
        if opens:
            # What an older term acknowledged from here on lost against the one that now reigns.
            self.acked_mark = min(self.acked_mark, term.start_lsn - 1)
        self.commit_lsn = max(self.commit_lsn, min(header.commit_lsn, self.last_lsn))
        self.acked_mark = max(self.acked_mark, header.commit_lsn)
        return Append(data, header, records, term, opens)

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

    def _repetition(self, header: FrameHeader, term_id: bytes) -> list[Decision]:
        """All of it is here already: is it the same?"""
        self.repeated += 1
        own = self.lineage.term_at(header.first_lsn)
        if own is None or own.id != term_id:
            number = own.number if own is not None else "none"
            return [
                Alarm(
                    header.first_lsn,
                    f"LSN {header.first_lsn} is of term {number} here and of term {header.term} "
                    f"({term_id.hex()}) there",
                )
            ]
        known = self._recent.get(header.first_lsn) or self._lookup(header.first_lsn)
        if known is None or known[0] != header.last_lsn:
            # Not at hand, or cut into frames elsewhere: the term agrees, that must do.
            self.unchecked += 1
        elif known[1] != header.crc:
            reason = (
                f"records {header.first_lsn}..{header.last_lsn} have CRC {known[1]:08x} here and "
                f"{header.crc:08x} there"
            )
            return [Alarm(header.first_lsn, reason)]
        return []

    def position_term(self, lsn: int) -> bytes:
        """The id of the term that the record of `lsn` belongs to; zeros for none."""
        term = self.lineage.term_at(lsn) if lsn else None
        return term.id if term is not None else bytes(ID_BYTES)


def _first_op(record: Any) -> list[Any]:
    """The first op of what should be a record; empty when it has none, or is none."""
    if isinstance(record, list) and len(record) == 4 and isinstance(record[3], list):
        first = record[3][0] if record[3] else None
        return first if isinstance(first, list) else []
    return []
