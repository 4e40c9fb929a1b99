"""Rules about moments: what came too early or too late, and deadlines that follow from nothing.

All times are the log's own, in µs; a rule never asks a clock.
"""

from __future__ import annotations

import datetime

import numpy as np

from tandemq.model.record import (
    KIND_DELAY,
    KIND_KICK,
    KIND_OTHER,
    KIND_RELEASE,
    KIND_TERM,
    KIND_TOUCH,
    KIND_TTL,
    KIND_TTR,
)
from tandemq.model.units import DAY_US, SECOND_US
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import WARNING, TaskRule
from tandemq.pipeline.judge.rules.tasks import ACKS, FAILURES, PUTS, RELEASES, TAKES
from tandemq.pipeline.judge.table import Bits, Ints
from tandemq.pipeline.judge.tasks import (
    BURIED,
    CREATED,
    CREATED15,
    DELAYED,
    DONE15,
    EVENT15,
    EXPIRES_X,
    KIND_X,
    NEXT,
    READY,
    RUNAT_X,
    TAKEN,
    TTL,
    TTL15,
    TTR,
    TTR15,
    ZOMBIE,
    TaskChanges,
    plus,
)

#: Deadlines are handled a thousand at a time: after a flood of them a call may still be in time.
SLACK_US = 2 * SECOND_US


def moment(us: int) -> str:
    if not 0 <= us < 1 << 57:
        return "no moment" if us < 0 else "never"
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (epoch + datetime.timedelta(microseconds=us)).isoformat()


class TooEarly(TaskRule):
    """A task expired before its ttl, its holder lost it before its ttr, or its delay was cut short.

    Also after a release, whose ttl still counts from the put.
    """

    name = "too_early"

    def broken(self, t: TaskChanges) -> Bits:
        timed = t.by(KIND_TTL, KIND_TTR, KIND_DELAY) & t.existed & t.known
        early = t.time < t.deadline(after=False)
        early |= t.by(KIND_TTL) & t.ttl_tube & (t.time < t.end_of_life(after=False))
        zombies = t.by(KIND_OTHER) & t.of("xqueue") & (t.sb == ZOMBIE) & ~t.exists
        return (timed | (zombies & t.existed)) & early

    def words(self, t: TaskChanges, at: int) -> str:
        return (
            f"due at {moment(int(t.deadline(after=False)[at]))}, came at {moment(int(t.time[at]))}"
        )


class LateAck(TaskRule):
    """A task was acked, released or touched after its ttr was over.

    Its lease had ended: it should have gone back first. Two seconds are let pass, for deadlines are
    handled a thousand at a time.
    """

    name = "late_ack"

    def broken(self, t: TaskChanges) -> Bits:
        held = t.by(*ACKS, *RELEASES, KIND_TOUCH) & (t.sb == TAKEN)
        over = t.deadline(after=False)
        timed = (over > 0) & (over < w.LARGEST - SLACK_US) & ~t.imported
        return held & timed & t.known & (t.time > over + SLACK_US)

    words = TooEarly.words


class LateTake(TaskRule):
    """A task was handed out after its ttl was over."""

    name = "late_take"

    def broken(self, t: TaskChanges) -> Bits:
        taken = t.by(*TAKES) & t.existed & t.known & (t.sb == READY)
        over = t.end_of_life(after=False)
        late = t.time >= over
        runat = t.before(RUNAT_X)
        return taken & np.where(t.of("xqueue"), (runat > 0) & (runat <= t.time), late)


class WrongDeadline(TaskRule):
    """The moment a task is looked at again does not follow from its ttl, ttr and delay."""

    name = "wrong_deadline"

    def broken(self, t: TaskChanges) -> Bits:
        wrong = np.zeros(len(t), bool)
        for mine, judged in (
            (t.ttl_tube & ~t.imported, _of_ttl),
            (t.of("queue15") & ~t.imported, _of_15),
            (t.of("xqueue") & ~t.imported, _of_records),
        ):
            if mine.any():
                wrong |= mine & judged(t)
        return wrong & t.exists & t.known

    def words(self, t: TaskChanges, at: int) -> str:
        return f"next event {int(t.deadline(after=True)[at])}, record of {int(t.time[at])}"


def _of_ttl(t: TaskChanges) -> Bits:
    next_event, ends = t.after(NEXT), plus(t.after(CREATED), t.after(TTL))
    wrong = np.isin(t.sa, (READY, BURIED)) & (next_event != ends)
    wrong |= t.by(*TAKES) & (next_event != np.minimum(plus(t.time, t.after(TTR)), ends))
    delayed = (t.sa == DELAYED) & t.inserted
    waits = next_event - t.time
    wrong |= delayed & ((waits <= 0) | (t.after(TTL) < waits))
    again = (t.sa == DELAYED) & t.existed & ~t.inserted
    longer = t.after(TTL) - t.before(TTL)
    far = t.after(TTL) == w.LARGEST
    wrong |= again & ((waits < 0) | ((longer != waits) & ~far))
    touched = t.by(KIND_TOUCH) & t.existed
    more = t.after(TTR) - t.before(TTR)
    # At the last moment there is, one of them may have met its limit.
    bounded = (t.after(TTL) == w.LARGEST) | (t.after(TTR) == w.LARGEST) | (next_event == w.LARGEST)
    moved = next_event - t.before(NEXT)
    wrong |= touched & ~bounded & ((more != moved) | (longer != moved) | (moved <= 0))
    prolonged = t.by(KIND_OTHER, KIND_TERM) & (t.sb == TAKEN) & (t.sa == TAKEN)
    wrong |= prolonged & ((moved < 0) | (next_event > ends))
    return wrong


def _of_15(t: TaskChanges) -> Bits:
    event, ends = t.after(EVENT15), plus(t.after(CREATED15), t.after(TTL15))
    wrong = np.isin(t.sa, (READY, BURIED, DONE15)) & (event != ends)
    leased = np.minimum(plus(t.time, t.after(TTR15)), ends)
    wrong |= t.by(*TAKES) & (event != leased)
    wrong |= t.by(KIND_TOUCH) & (event > ends)
    wrong |= (t.sa == DELAYED) & ((event < t.time) | (event > ends))
    wrong |= t.by(KIND_OTHER, KIND_TERM) & (t.sb == TAKEN) & (t.sa == TAKEN) & (event > ends)
    return wrong


def _of_records(t: TaskChanges) -> Bits:
    runat, kind, expires = t.after(RUNAT_X), t.after(KIND_X), t.after(EXPIRES_X)
    none = kind == w.text_word("")
    wrong = none != (runat == 0)
    wrong |= (t.sa == READY) & ((runat != expires) | (~none & (kind != ord("x"))))
    wrong |= (t.sa == TAKEN) & ~none & (kind != ord("t"))
    wrong |= (t.sa == DELAYED) & ~none & (kind != ord("w"))
    wrong |= (t.sa == ZOMBIE) & ~none & (kind != ord("z"))
    wrong |= np.isin(t.sa, (BURIED, ord("d"))) & ~none
    wrong |= t.by(*TAKES) & ~none & (runat < t.time)
    wrong |= (t.sb == TAKEN) & (t.sa == TAKEN) & (expires != t.before(EXPIRES_X))
    return wrong


class WrongCreation(TaskRule):
    """A task says that it was made at another moment than its record."""

    name = "wrong_creation"

    def broken(self, t: TaskChanges) -> Bits:
        fresh = t.inserted & t.exists & ~t.imported
        found = t.ttl_tube & (t.after(CREATED) != t.time)
        return fresh & (found | (t.of("queue15") & (t.after(CREATED15) != t.time)))


class FieldChanged(TaskRule):
    """A field changed that this operation leaves alone: payload, priority, ttl and so on."""

    name = "field_changed"

    def broken(self, t: TaskChanges) -> Bits:
        stays = t.existed & t.exists & ~t.inserted & t.known
        wrong = np.zeros(len(t), bool)
        same = t.table.same
        plain = t.of("fifo", "utube")
        if plain.any():
            wrong |= plain & ~same(2, 3)
        if t.ttl_tube.any():
            wrong |= t.ttl_tube & ~same(5, 6, 7, 8)
            wrong |= t.ttl_tube & ~same(TTR) & ~t.by(KIND_TOUCH)
            later = t.by(KIND_TOUCH) | (t.sa == DELAYED)
            wrong |= t.ttl_tube & ~same(TTL) & ~later
            wrong |= t.ttl_tube & ~same(NEXT) & t.by(KIND_KICK) & (t.sb == BURIED)
        lanes = t.of("queue15")
        if lanes.any():
            wrong |= lanes & self._of_15(t)
        records = t.of("xqueue")
        if records.any():
            edits = t.by(*ACKS, *RELEASES, KIND_KICK, 5)
            wrong |= records & ~edits & ~same(*range(5, w.FIELDS + 1))
        return wrong & stays

    @staticmethod
    def _of_15(t: TaskChanges) -> Bits:
        same = t.table.same
        wrong = ~same(2, 3, 6, 8, 10)
        wrong |= ~same(5, 7) & ~t.by(KIND_RELEASE)
        wrong |= ~same(TTL15) & ~t.by(KIND_RELEASE)
        wrong |= ~same(13) & ~(t.by(KIND_OTHER) & (t.sa == DONE15))
        return wrong

    def words(self, t: TaskChanges, at: int) -> str:
        changed = [f for f in range(1, w.FIELDS) if t.after(f)[at] != t.before(f)[at]]
        return f"fields {', '.join(map(str, changed))} of the row, counted from 0"


class WrongCount(TaskRule):
    """queue15 did not count a delivery or a burial, or counted one that was none."""

    name = "wrong_count"

    def broken(self, t: TaskChanges) -> Bits:
        lanes = t.of("queue15") & t.exists & t.known & ~t.imported
        if not lanes.any():
            return lanes
        taken = _step(t, 12) != t.by(*TAKES)
        buried = _step(t, 11) != (t.by(5, KIND_KICK) & t.existed)
        fresh = t.inserted & ((t.after(11) != 0) | (t.after(12) != 0))
        return lanes & np.where(t.existed & ~t.inserted, taken | buried, fresh)


def _step(t: TaskChanges, field: int) -> Ints:
    return t.after(field) - t.before(field)


class Early(TaskRule):
    """A moment of a row lies outside what any call can ask for."""

    name = "strange_moment"
    severity = WARNING

    def broken(self, t: TaskChanges) -> Bits:
        fresh = t.inserted & t.exists & t.by(*PUTS, *FAILURES) & ~t.imported
        most = 2 * 36_500 * DAY_US
        wrong = t.ttl_tube & ((t.after(TTL) < 0) | (t.after(TTR) < 0) | (t.after(TTR) > most))
        return fresh & (wrong | (t.ttl_tube & (t.after(TTL) > most)))


RULES = (
    TooEarly, LateAck, LateTake, WrongDeadline, WrongCreation, FieldChanged, WrongCount, Early,
)  # fmt: skip
