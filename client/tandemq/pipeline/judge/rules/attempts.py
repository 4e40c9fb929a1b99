"""Rules about failed attempts and dead letters: counted once each, given up when it is time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.model.record import KIND_BURY, KIND_KICK
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import Breach, Rule, TaskRule, of_record, of_task
from tandemq.pipeline.judge.rules.tasks import FAILURES, JUDGED
from tandemq.pipeline.judge.table import Bits, Ints, linked
from tandemq.pipeline.judge.tasks import (
    BURIED,
    NOTE_FROM,
    NOTE_FROM_ATTEMPTS,
    NOTE_FROM_ID,
    NOTE_TIME,
    TAKEN,
    TaskChanges,
)
from tandemq.pipeline.judge.world import ChunkView


def _counting(t: TaskChanges) -> Bits:
    found: Bits = t.view.of_tubes(lambda tube: tube.counts_attempts, bool)[t.tube]
    return found & t.of(*JUDGED) & ~t.of("queue15")


def _failed(t: TaskChanges) -> Bits:
    """Attempts that ended badly: xqueue's own release and bury are not counted."""
    found = t.by(*FAILURES, KIND_BURY) & (t.sb == TAKEN) & (t.sa != TAKEN) & t.known
    return found & ~(t.of("xqueue") & t.by(KIND_BURY, 4))


class AttemptsCount(TaskRule):
    """A failed attempt was not counted, or counted more than once, or none failed."""

    name = "attempts_count"

    def broken(self, t: TaskChanges) -> Bits:
        before, after = t.attempts()
        counting, failed = _counting(t), _failed(t)
        # xqueue's own release and bury count nothing, an operator's release of a record does.
        stays = t.exists & counting & t.known & ~(t.of("xqueue") & t.by(4, KIND_BURY))
        wrong = failed & stays & (after != before + 1)
        kicked = t.by(KIND_KICK) & (t.sb == BURIED)
        wrong |= ~failed & stays & t.existed & ~kicked & (after != before)
        wrong |= kicked & stays & (after != 0)
        return wrong & ~t.imported & (t.known & ~t.unknown)

    def words(self, t: TaskChanges, at: int) -> str:
        before, after = t.attempts()
        return f"{before[at]} attempts before, {after[at]} after"


class NoteTime(TaskRule):
    """The note of a failed attempt has another moment than its record."""

    name = "note_time"

    def broken(self, t: TaskChanges) -> Bits:
        noted = _failed(t) & _counting(t) & t.exists & (t.note >= 0)
        return noted & (t.noted(t.note, NOTE_TIME) != t.time)


class GaveUpEarly(TaskRule):
    """A task was given up before its last attempt, or tried again after it.

    Given up: buried, or a dead letter, by the end of an attempt.
    """

    name = "gave_up"

    def broken(self, t: TaskChanges) -> Bits:
        most = t.view.of_tubes(lambda tube: tube.max_attempts)[t.tube]
        before, _ = t.attempts()
        failed = _failed(t) & t.by(*FAILURES) & _counting(t) & ~t.unknown
        over = (most > 0) & (before + 1 >= most)
        given_up = (t.sa == BURIED) | ~t.exists
        return failed & (over != given_up)


class DeadLetterLost(TaskRule):
    """A task was given up as a dead letter and never entered the tube for them."""

    name = "dead_letter_lost"

    def broken(self, t: TaskChanges) -> Bits:
        gone = t.by(*FAILURES) & t.existed & ~t.exists & t.known
        if not gone.any():
            return gone
        return gone & (_letters(t)[1] < 0)

    def words(self, t: TaskChanges, at: int) -> str:
        tube = t.view.world.tubes[int(t.tube[at])]
        return f"its dead letters go to {tube.opts.get('dead_letter')}"


def _letters(t: TaskChanges) -> tuple[Ints, Ints]:
    """(changes, of each the change that put it elsewhere, by record, tube's name and id).

    The tube is known by the note that came with it; -1 for none.
    """
    notes, view = t.view.notes, t.view
    found = np.full(len(t), -1, np.int64)
    everything = np.arange(len(t))
    if not len(notes):
        return everything, found
    fresh = np.flatnonzero(notes.real & notes.inserted & notes.exists)
    fresh = fresh[notes.after(NOTE_FROM)[fresh] != w.text_word("")]
    names = {w.text_word(tube.name): tube.number for tube in view.world.tubes}
    back = linked(notes, t.table)
    by_origin: dict[tuple[int, int, int], int] = {}
    for at in fresh.tolist():
        origin = names.get(int(notes.after(NOTE_FROM)[at]), -1)
        by_origin[int(notes.rec[at]), origin, int(notes.after(NOTE_FROM_ID)[at])] = int(back[at])
    gone = np.flatnonzero(t.real & t.existed & ~t.exists)
    for at in gone.tolist():
        key = (int(t.rec[at]), int(t.tube[at]), int(t.task[at]))
        found[at] = by_origin.get(key, -1)
    return everything, found


class DeadLetterChanged(TaskRule):
    """A dead letter is not what was given up: another payload, tube or count of attempts."""

    name = "dead_letter_changed"

    def broken(self, t: TaskChanges) -> Bits:
        gone = t.by(*FAILURES) & t.existed & ~t.exists & t.known
        if not gone.any():
            return gone
        _, letters = _letters(t)
        gone &= letters >= 0
        wanted = t.view.of_tubes(lambda tube: w.text_word(tube.opts.get("dead_letter") or ""))
        names = t.view.of_tubes(lambda tube: w.text_word(tube.name))
        found = np.zeros(len(t), bool)
        before, _ = t.attempts()
        for at in np.flatnonzero(gone).tolist():
            letter = int(letters[at])
            noted = t.note[letter : letter + 1]
            fits = names[t.tube[letter]] == wanted[t.tube[at]]
            fits &= t.noted(noted, NOTE_FROM_ATTEMPTS)[0] == before[at] + 1
            fits &= _payload(t, at, before=True) == _payload(t, letter, before=False)
            found[at] = not fits
        return found


def _payload(t: TaskChanges, at: int, before: bool) -> int:
    """The word of a task's payload; 0 where its layout is not known."""
    last = {1: 2, 2: 3, 3: 7, 4: 7, 5: 8}.get(int(t.driver[at]))
    if last is None:
        return 0
    return int((t.before if before else t.after)(last)[at])


class NoteLeft(TaskRule):
    """A task is gone and the note on it is still there: the next one of its id would inherit it."""

    name = "note_left"

    def broken(self, t: TaskChanges) -> Bits:
        notes = t.view.notes
        gone = t.existed & ~t.exists & t.known
        if not len(notes):
            return np.zeros(len(t), bool)
        before = np.where(t.note_before >= 0, t.note_before, 0)
        had = (t.note_before >= 0) & notes.exists[before]
        at = np.where(t.note >= 0, t.note, 0)
        return gone & had & ~((t.note >= 0) & ~notes.exists[at])


class StrayNote(Rule):
    """A note came, went or changed without anything happening to its task."""

    name = "stray_note"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        notes = view.notes
        if not len(notes):
            return
        same = linked(notes, tasks.table)
        alone = notes.real & (same < 0) & ~notes.swept & (notes.existed | notes.exists)
        # A tube that goes takes its notes along.
        alone &= ~np.isin(notes.of_line(w.KIND), (12, 15))
        for at in np.flatnonzero(alone).tolist():
            found = of_record(self, view, int(notes.rec[at]), "")
            found.task = int(notes.of_line(w.K1)[at])
            yield found


class NoteChanged(Rule):
    """What a note says of a task's origin or headers changed, or a field nobody changes."""

    name = "note_changed"
    #: Fields that are set together: the attempts, and with them reason, time and all failures.
    _SETS = (0b100, 0b11100, 0b1000011100)

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        notes = view.notes
        if not len(notes):
            return
        stays = notes.real & notes.existed & notes.exists & ~notes.inserted
        task = linked(notes, tasks.table)
        odd = stays & ~notes.same(0, 1, 5, 6, 7, 8)
        odd |= stays & ~np.isin(notes.of_line(w.MASK), self._SETS)
        # One that is written anew when an attempt fails keeps where its task came from.
        mine = np.where(task >= 0, task, 0)
        if len(tasks):
            again = notes.real & notes.inserted & notes.exists & (task >= 0) & tasks.existed[mine]
            for field, none in ((NOTE_FROM, w.text_word("")), (6, 0), (NOTE_FROM_ATTEMPTS, 0)):
                before = np.where(notes.existed, notes.before(field), none)
                odd |= again & (notes.after(field) != before)
        for at in np.flatnonzero(odd).tolist():
            if task[at] >= 0:
                yield of_task(self, tasks, int(task[at]), "")


RULES = (
    AttemptsCount, NoteTime, GaveUpEarly, DeadLetterLost, DeadLetterChanged, NoteLeft, StrayNote,
    NoteChanged,
)  # fmt: skip
