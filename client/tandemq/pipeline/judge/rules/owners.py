"""Rules about who holds what: sessions that act on tasks, and the rows that say whose they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.model.record import (
    KIND_BURY,
    KIND_CONFIG,
    KIND_DELAY,
    KIND_OTHER,
    KIND_SESSION,
    KIND_TERM,
    KIND_TOUCH,
    KIND_TTL,
    KIND_TTR,
)
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import Breach, Rule, TaskRule, of_record
from tandemq.pipeline.judge.rules.tasks import ACKS, TAKES
from tandemq.pipeline.judge.table import Bits, Ints, linked
from tandemq.pipeline.judge.tasks import TAKEN, TaskChanges
from tandemq.pipeline.judge.world import ChunkView

RELEASED_BY_CLIENTS = (4, 24)


def _other(t: TaskChanges) -> Bits:
    return (t.sb == TAKEN) & t.known & (t.holder != 0) & (t.session != t.holder)


class AckByOther(TaskRule):
    """A task was acked by another session than the one that held it."""

    name = "ack_by_other"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*ACKS) & _other(t)


class ReleaseByOther(TaskRule):
    """A task was released by a session that did not hold it.

    An operator's release has no session and may name any task.
    """

    name = "release_by_other"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*RELEASED_BY_CLIENTS) & _other(t) & (t.session != 0)


class TouchByOther(TaskRule):
    """A task was touched by a session that did not hold it."""

    name = "touch_by_other"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(KIND_TOUCH) & _other(t)


class BuryByOther(TaskRule):
    """A task was buried by a session that did not hold it.

    Only queue15 and xqueue ask who buries; in other tubes anybody may, as in the original.
    """

    name = "bury_by_other"

    def broken(self, t: TaskChanges) -> Bits:
        asked = t.of("queue15", "xqueue") & (t.session != 0)
        return t.by(KIND_BURY) & asked & _other(t)


class NoSession(TaskRule):
    """A task was taken on behalf of no session, or a deadline was handled on behalf of one."""

    name = "no_session"

    def broken(self, t: TaskChanges) -> Bits:
        timers = t.by(KIND_TTR, KIND_TTL, KIND_DELAY, KIND_TERM)
        return t.known & ((t.by(*TAKES, *ACKS) & (t.session == 0)) | (timers & (t.session != 0)))


class SystemSession(Rule):
    """A record of the node itself, or about tubes and rights, is on behalf of a session."""

    name = "system_session"
    _NODES = (KIND_TTR, KIND_TTL, KIND_DELAY, KIND_TERM, 14, 15, 19, 25)

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        kinds, session = view.records[w.R_KIND], view.records[w.R_SESSION]
        for rec in np.flatnonzero(np.isin(kinds, self._NODES) & (session != 0)).tolist():
            yield of_record(self, view, rec, f"kind {kinds[rec]}")


class ReleasedOfOther(TaskRule):
    """A session ended and a task was given back that another one held."""

    name = "released_of_other"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(KIND_SESSION) & _other(t)


class OwnerMissing(TaskRule):
    """A task was taken and nobody is written down as its owner, or another session is.

    Only where ownership is logged (`in_replicaset`): after a switch-over nobody could ack it.
    """

    name = "owner_wrong"

    def broken(self, t: TaskChanges) -> Bits:
        took = t.by(*TAKES) & (t.sa == TAKEN) & (t.view.logged.at(t.rec) == 1)
        owners = t.view.owners
        if not len(owners):
            return took
        at = np.where(t.owner >= 0, t.owner, 0)
        fits = (t.owner >= 0) & owners.exists[at] & (owners.after(3)[at] == t.session)
        fits &= (owners.after(4)[at] >= t.time) & (owners.after(2)[at] > 0)
        return took & ~fits


class OwnerLeft(TaskRule):
    """A task is no longer taken and its owner's row is still there."""

    name = "owner_left"

    def broken(self, t: TaskChanges) -> Bits:
        owners = t.view.owners
        left = (t.sb == TAKEN) & (t.sa != TAKEN) & t.known
        if not len(owners):
            return np.zeros(len(t), bool)
        before = np.where(t.owner_before >= 0, t.owner_before, 0)
        had = (t.owner_before >= 0) & owners.exists[before]
        at = np.where(t.owner >= 0, t.owner, 0)
        gone = (t.owner >= 0) & ~owners.exists[at]
        return left & had & ~gone


class StrayOwner(Rule):
    """An owner's row came, went or changed without anything happening to its task."""

    name = "stray_owner"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        owners = view.owners
        if not len(owners):
            return
        same = linked(owners, tasks.table)
        kind, rec = owners.of_line(w.KIND), owners.rec
        alone = owners.real & (same < 0) & ~np.isin(kind, (KIND_CONFIG,)) & ~owners.swept
        # A promotion sweeps what nobody holds, and ownership begins to be logged at once.
        alone &= ~((kind == KIND_TERM) & (~owners.exists | owners.inserted))
        alone &= ~((kind == KIND_OTHER) & ~owners.exists)
        alone &= owners.existed | owners.exists
        for at in np.flatnonzero(alone).tolist():
            found = of_record(self, view, int(rec[at]), "")
            found.task = int(owners.of_line(w.K1)[at])
            yield found


class TokenRepeated(Rule):
    """A delivery's token is not above all before it, or neither its moment nor the next number."""

    name = "token_repeated"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        owners = view.owners
        chosen: Ints = np.flatnonzero(owners.real & owners.inserted) if len(owners) else []
        if not len(chosen):
            return
        kinds = np.isin(owners.of_line(w.KIND)[chosen], TAKES)
        chosen = chosen[kinds]
        at = owners.at[chosen]
        order = np.argsort(at, kind="stable")
        chosen = chosen[order]
        token = owners.after(4)[chosen]
        last = view.world.settings.get(":token", 0)
        before = np.maximum.accumulate(np.append(last, token))[:-1]
        # A token is the moment, or the one behind the token before it.
        follows = (token == before + 1) | (token == np.roll(token, 1) + 1)
        exact = (token == owners.of_line(w.TIME)[chosen]) | follows
        for place in np.flatnonzero((token <= before) | ~exact).tolist():
            rec = int(owners.rec[chosen[place]])
            yield of_record(self, view, rec, f"token {token[place]}, before it {before[place]}")
        if len(token):
            view.world.settings[":token"] = max(last, int(token.max()))


RULES = (
    AckByOther, ReleaseByOther, TouchByOther, BuryByOther, NoSession, SystemSession,
    ReleasedOfOther, OwnerMissing, OwnerLeft, StrayOwner, TokenRepeated,
)  # fmt: skip
