"""Rules about the life of one task: put once, taken, ended once, by what ends tasks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tandemq.model.record import (
    KIND_ACK,
    KIND_ACK_MANY,
    KIND_BURY,
    KIND_DELAY,
    KIND_DELETE,
    KIND_FINISH,
    KIND_KICK,
    KIND_OTHER,
    KIND_PUT,
    KIND_PUT_MANY,
    KIND_RELEASE,
    KIND_RELEASE_ALL,
    KIND_RELEASE_MANY,
    KIND_SESSION,
    KIND_STARTUP,
    KIND_TAKE,
    KIND_TAKE_MANY,
    KIND_TERM,
    KIND_TOUCH,
    KIND_TRUNCATE,
    KIND_TTL,
    KIND_TTR,
)
from tandemq.pipeline.judge.rules.base import TaskRule
from tandemq.pipeline.judge.table import Bits
from tandemq.pipeline.judge.tasks import (
    BURIED,
    DELAYED,
    DONE15,
    KEPT,
    READY,
    TAKEN,
    ZOMBIE,
    TaskChanges,
)

PUTS = (KIND_PUT, KIND_PUT_MANY)
TAKES = (KIND_TAKE, KIND_TAKE_MANY)
ACKS = (KIND_ACK, KIND_ACK_MANY, KIND_FINISH)
RELEASES = (KIND_RELEASE, KIND_RELEASE_MANY, KIND_RELEASE_ALL)
#: Given back for somebody who is gone.
GIVEN_BACK = (KIND_SESSION, KIND_TERM, KIND_STARTUP)
FAILURES = (*RELEASES, *GIVEN_BACK, KIND_TTR)
#: What may remove a task's row.
ENDS = (*ACKS, KIND_DELETE, KIND_TTL, KIND_TRUNCATE, KIND_OTHER)
JUDGED = ("fifo", "utube", "fifottl", "limfifottl", "utubettl", "queue15", "xqueue")


class PutTwice(TaskRule):
    """A task was put while one of the same id was there."""

    name = "put_twice"

    def broken(self, t: TaskChanges) -> Bits:
        return t.table.replaced & t.existed


class UnknownTask(TaskRule):
    """Something happened to a task that was never put."""

    name = "unknown_task"

    def broken(self, t: TaskChanges) -> Bits:
        return t.missing & ~_was_there(t)


class DoubleAck(TaskRule):
    """A task was acked again after its end."""

    name = "double_ack"

    def broken(self, t: TaskChanges) -> Bits:
        return t.missing & _was_there(t) & t.by(*ACKS)


class Revived(TaskRule):
    """Something else than an ack happened to a task after its end."""

    name = "revived"

    def broken(self, t: TaskChanges) -> Bits:
        return t.missing & _was_there(t) & ~t.by(*ACKS)


def _was_there(t: TaskChanges) -> Bits:
    """Tasks that are gone: seen in this chunk, or of an id that was given."""
    if not t.missing.any():
        return t.missing
    known = t.view.of_tubes(lambda tube: tube.next_id or 0)[t.tube]
    return (t.table.prev >= 0) | ((t.task >= 0) & (t.task < known))


class Vanished(TaskRule):
    """A task left its tube by an operation that ends none."""

    name = "vanished"

    def broken(self, t: TaskChanges) -> Bits:
        gone = t.existed & ~t.exists
        return gone & ~t.by(*ENDS, *FAILURES)


class TwoHolders(TaskRule):
    """A task was handed out while somebody held it."""

    name = "two_holders"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*TAKES) & (t.sb == TAKEN) & t.known


class TookBuried(TaskRule):
    """A buried task was handed out."""

    name = "took_buried"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*TAKES) & (t.sb == BURIED)


class TookDelayed(TaskRule):
    """A task was handed out before its delay was over."""

    name = "took_delayed"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*TAKES) & (t.sb == DELAYED)


class TookFinished(TaskRule):
    """A task that was executed and kept was handed out."""

    name = "took_finished"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(*TAKES) & np.isin(t.sb, (ZOMBIE, KEPT, DONE15)) & t.existed


class NotHeld(TaskRule):
    """A task was acked, released, touched or out of its ttr that nobody held."""

    name = "not_held"

    def broken(self, t: TaskChanges) -> Bits:
        asked = t.by(*ACKS, *RELEASES, KIND_TTR) | (t.by(KIND_TOUCH) & ~t.of("xqueue"))
        return asked & t.existed & (t.sb != TAKEN) & t.of(*JUDGED)


class NotBuried(TaskRule):
    """A task was kicked that was neither buried nor, in a tube with delays, delayed."""

    name = "not_buried"

    def broken(self, t: TaskChanges) -> Bits:
        waited = t.ttl_tube & (t.sb == DELAYED)
        return t.by(KIND_KICK) & t.existed & (t.sb != BURIED) & ~waited


class NotDelayed(TaskRule):
    """The end of a delay came for a task that was not delayed."""

    name = "not_delayed"

    def broken(self, t: TaskChanges) -> Bits:
        return t.by(KIND_DELAY) & t.existed & (t.sb != DELAYED)


class WrongState(TaskRule):
    """A task is in a state that this operation does not lead to."""

    name = "wrong_state"

    def broken(self, t: TaskChanges) -> Bits:
        built_in = ~t.of("xqueue", "queue15")
        record, lanes = t.of("xqueue"), t.of("queue15")
        back = np.isin(t.sa, (READY, DELAYED, BURIED, 0))
        wrong = t.by(*PUTS, KIND_FINISH) & t.inserted & ~np.isin(t.sa, (READY, DELAYED))
        wrong |= t.by(*TAKES) & (t.sa != TAKEN)
        wrong |= t.by(*ACKS) & t.existed & t.exists & ~(record & np.isin(t.sa, (KEPT, ZOMBIE)))
        wrong |= t.by(*FAILURES) & t.existed & ~back & ~(t.by(KIND_TERM) & (t.sa == TAKEN))
        wrong |= t.by(KIND_BURY) & t.existed & (t.sa != BURIED)
        wrong |= t.by(KIND_KICK) & t.existed & (t.sa != READY) & ~(record & (t.sa == DELAYED))
        wrong |= t.by(KIND_TOUCH) & t.existed & (t.sa != t.sb)
        wrong |= t.by(KIND_DELAY) & t.existed & (t.sa != READY)
        wrong |= t.by(KIND_TTL, KIND_DELETE, KIND_TRUNCATE) & t.exists
        wrong |= t.by(KIND_TTL) & built_in & ~np.isin(t.sb, (READY, BURIED)) & t.existed
        wrong |= (
            t.by(KIND_OTHER)
            & t.existed
            & t.exists
            & (t.sa != t.sb)
            & ~(lanes & (t.sb == TAKEN) & (t.sa == DONE15))
        )
        # Tubes without delays.
        wrong |= t.of("fifo", "utube") & (t.sa == DELAYED)
        return wrong & t.known & t.of(*JUDGED)


class WrongKind(TaskRule):
    """A task changed, or came into being, in a record of a kind that does not do that."""

    name = "wrong_kind"

    def broken(self, t: TaskChanges) -> Bits:
        touching = (*PUTS, *TAKES, *ACKS, *FAILURES, KIND_BURY, KIND_KICK, KIND_DELETE)
        known = t.by(*touching, KIND_TOUCH, KIND_TTL, KIND_DELAY, KIND_OTHER, KIND_TRUNCATE)
        fresh = t.inserted & ~t.existed
        # A record that gives tasks up puts dead letters, one that moves them puts them elsewhere.
        puts = t.by(*PUTS, KIND_FINISH, KIND_OTHER, *FAILURES)
        changed = t.existed & t.by(*PUTS)
        return t.known & t.of(*JUDGED) & (~known | (fresh & ~puts) | changed)


class StrangeRow(TaskRule):
    """A task's row is not of its driver's layout, or has a state that driver does not know."""

    name = "strange_row"

    _WIDTHS: ClassVar[dict[str, int]] = {
        "fifo": 3,
        "utube": 4,
        "fifottl": 8,
        "limfifottl": 8,
        "utubettl": 9,
        "queue15": 14,
    }
    _STATES: ClassVar[dict[str, str]] = {"queue15": "r~t!*", "xqueue": "rt~!zd"}

    def broken(self, t: TaskChanges) -> Bits:
        found = np.zeros(len(t), bool)
        width = t.table.of_line(6)
        for name in JUDGED:
            mine = t.of(name) & t.exists & t.known
            if not mine.any():
                continue
            states = [ord(one) for one in self._STATES.get(name, "rt~!")]
            found |= mine & ~np.isin(t.sa, states)
            if name in self._WIDTHS:
                found |= mine & t.inserted & (width != self._WIDTHS[name])
        return found


RULES = (
    PutTwice, UnknownTask, DoubleAck, Revived, Vanished, TwoHolders, TookBuried, TookDelayed,
    TookFinished, NotHeld, NotBuried, NotDelayed, WrongState, WrongKind, StrangeRow,
)  # fmt: skip
