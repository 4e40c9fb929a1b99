"""Rules about sessions: kept as long as they may be claimed, and their tasks with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.model.record import KIND_CONFIG, KIND_SESSION, KIND_TERM
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import WARNING, Breach, Rule, TaskRule, of_record
from tandemq.pipeline.judge.rules.tasks import GIVEN_BACK, TAKES
from tandemq.pipeline.judge.table import Bits, Ints
from tandemq.pipeline.judge.tasks import TAKEN, TaskChanges
from tandemq.pipeline.judge.world import SHARED, ChunkView

EXPIRES, ACTIVE = 1, 2


def _sessions(view: ChunkView) -> Ints:
    """Changes of rows of sessions."""
    others = view.others
    if not len(others):
        return np.empty(0, np.int64)
    chosen = others.real & ~others.swept & (others.of_line(w.SPACE) == SHARED)
    return np.flatnonzero(chosen & (others.existed | others.exists))


def _claimable(view: ChunkView, others_at: Ints, time: Ints) -> Bits:
    """Sessions that could still be claimed when this change removed them."""
    others = view.others
    rec = others.rec[others_at]
    ttr, later = view.ttr.before(rec), view.later.before(rec)
    active = others.before(ACTIVE)[others_at] == w.TRUE
    waiting = others.before(EXPIRES)[others_at] + later > time
    return (ttr > 0) & ~active & waiting


class SessionEnded(Rule):
    """A session ended before the time for which it may be claimed again was over.

    A session whose last connection went and that holds nothing may end at once.
    """

    name = "session_early"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, chosen = view.others, _sessions(view)
        gone = chosen[others.existed[chosen] & ~others.exists[chosen]] if len(chosen) else chosen
        if not len(gone):
            return
        kinds = others.of_line(w.KIND)[gone]
        gone = gone[kinds != KIND_CONFIG]
        time = others.of_line(w.TIME)[gone]
        for at in gone[_claimable(view, gone, time)].tolist():
            yield of_record(self, view, int(others.rec[at]), "")


class SessionEndMoved(Rule):
    """A session ends at another moment than its last connection's end and its ttr make it."""

    name = "session_times"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, chosen = view.others, _sessions(view)
        if not len(chosen):
            return
        rec, time = others.rec[chosen], others.of_line(w.TIME)[chosen]
        there, was = others.exists[chosen], others.existed[chosen]
        active = others.after(ACTIVE)[chosen] == w.TRUE
        was_active = others.before(ACTIVE)[chosen] == w.TRUE
        expires, before = others.after(EXPIRES)[chosen], others.before(EXPIRES)[chosen]
        later, earlier = view.later.at(rec), view.later.before(rec)
        fresh = others.inserted[chosen] & ~(others.of_line(w.KIND)[chosen] == KIND_CONFIG)
        wrong = there & active & (expires != 0)
        retired = there & was & was_active & ~active
        wrong |= retired & (expires + later != time + view.ttr.at(rec))
        waits = there & was & ~was_active & ~active
        wrong |= waits & (expires + later != before + earlier)
        wrong |= fresh & ~was & ~active
        for at in chosen[wrong].tolist():
            yield of_record(self, view, int(others.rec[at]), "")


class ReleasedEarly(TaskRule):
    """A promotion gave back a task whose shared session could still be claimed.

    Its worker may come back within the ttr of sessions and finish it: two would work on it.
    """

    name = "released_early"

    def broken(self, t: TaskChanges) -> Bits:
        back = t.by(KIND_TERM) & (t.sb == TAKEN) & (t.sa != TAKEN) & t.known
        back &= (t.view.logged.before(t.rec) == 1) & (t.view.ttr.before(t.rec) > 0)
        if not back.any():
            return back
        return back & _alive(t, t.holder)


class HeldByNobody(TaskRule):
    """A session ended and a task that it held stays taken: nobody can ack it.

    Also a promotion that leaves tasks with sessions that nobody can claim.
    """

    name = "held_by_nobody"
    needs_complete = True

    def broken(self, t: TaskChanges) -> Bits:
        found = np.zeros(len(t), bool)
        others, chosen = t.view.others, _sessions(t.view)
        gone = chosen[others.existed[chosen] & ~others.exists[chosen]] if len(chosen) else chosen
        if not len(gone):
            return found
        gone = gone[np.isin(others.of_line(w.KIND)[gone], GIVEN_BACK)]
        ended = {int(others.of_line(w.K0)[at]): int(others.rec[at]) for at in gone.tolist()}
        # What stays taken: the last change of each task at the moment its session ended.
        taken = np.flatnonzero((t.sa == TAKEN) & t.exists)
        for at in taken[np.isin(t.holder_after[taken], list(ended))].tolist():
            rec = ended[int(t.holder_after[at])]
            follows = at + 1 < len(t) and not t.table.first[at + 1] and t.rec[at + 1] <= rec
            found[at] = bool(t.rec[at] < rec and not follows)
        return found


def _alive(t: TaskChanges, sessions: Ints) -> Bits:
    """Whether the session's row is there after the record of the change."""
    others, view = t.view.others, t.view
    found = np.zeros(len(t), bool)
    if not len(others):
        return found
    mine = np.flatnonzero(others.of_line(w.SPACE) == SHARED)
    by_session: dict[int, list[int]] = {}
    for at in mine.tolist():
        by_session.setdefault(int(others.of_line(w.K0)[at]), []).append(at)
    del view
    back = np.flatnonzero(t.by(KIND_TERM) & (t.sb == TAKEN) & (t.sa != TAKEN))
    for at in back.tolist():
        changes = [c for c in by_session.get(int(sessions[at]), ()) if others.rec[c] <= t.rec[at]]
        found[at] = bool(changes) and bool(others.exists[changes[-1]])
    return found


class UnknownSession(Rule):
    """A task was taken for a session that is not among those that are logged."""

    name = "unknown_session"
    severity = WARNING
    needs_complete = True

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, records = view.others, view.records
        takes = np.flatnonzero(np.isin(records[w.R_KIND], TAKES))
        takes = takes[view.logged.at(takes) == 1] if len(takes) else takes
        if not len(takes):
            return
        mine: Ints = np.flatnonzero(others.of_line(w.SPACE) == SHARED) if len(others) else []
        by_session: dict[int, list[int]] = {}
        for at in mine:
            by_session.setdefault(int(others.of_line(w.K0)[at]), []).append(int(at))
        seen = records[w.R_SESSION][takes]
        for session in np.unique(seen).tolist():
            changes = by_session.get(session, [])
            recs = np.array([int(others.rec[at]) for at in changes], np.int64)
            there = np.array([bool(others.exists[at]) for at in changes] + [False])
            wanted = takes[seen == session]
            at = np.searchsorted(recs, wanted, "right") - 1
            for rec in wanted[~np.where(at >= 0, there[at], False)].tolist():
                yield of_record(self, view, rec, "")


class SessionUntouched(Rule):
    """A record says that a session changed, or ended, and changes none and gives nothing back."""

    name = "empty_session"
    severity = WARNING

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        records = view.records
        kinds = records[w.R_KIND]
        lines = np.bincount(view.lines[w.REC], minlength=records.shape[1])
        for rec in np.flatnonzero((kinds == KIND_SESSION) & (lines == 0)).tolist():
            yield of_record(self, view, rec, "")


RULES = (
    SessionEnded, SessionEndMoved, ReleasedEarly, HeldByNobody, UnknownSession, SessionUntouched,
)  # fmt: skip
