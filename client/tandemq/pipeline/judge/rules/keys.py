"""Rules about idempotency keys: one task for each key within its window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.model.record import KIND_CREATE_TUBE, KIND_DROP_TUBE, KIND_OTHER, KIND_TRUNCATE
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import Breach, Rule, of_record
from tandemq.pipeline.judge.table import Ints
from tandemq.pipeline.judge.tasks import TaskChanges
from tandemq.pipeline.judge.world import KEYS, ChunkView

TUBE, TEXT, TASK, EXPIRES = range(4)


def _keys(view: ChunkView) -> Ints:
    others = view.others
    if not len(others):
        return np.empty(0, np.int64)
    chosen = others.real & ~others.swept & (others.of_line(w.SPACE) == KEYS)
    return np.flatnonzero(chosen & (others.existed | others.exists))


class KeyTwice(Rule):
    """A key was used for a second task within its window: one put became two."""

    name = "key_twice"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, chosen = view.others, _keys(view)
        for at in chosen.tolist():
            again = others.existed[at] and others.inserted[at] and others.exists[at]
            if again and others.before(EXPIRES)[at] > others.of_line(w.TIME)[at]:
                text = f"first task {others.before(TASK)[at]}, now {others.after(TASK)[at]}"
                yield of_record(self, view, int(others.rec[at]), text)


class KeyForgotten(Rule):
    """A key was forgotten before its window was over."""

    name = "key_early"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, chosen = view.others, _keys(view)
        gone = chosen[others.existed[chosen] & ~others.exists[chosen]] if len(chosen) else chosen
        kinds, time = others.of_line(w.KIND), others.of_line(w.TIME)
        for at in gone.tolist():
            swept = kinds[at] in (KIND_TRUNCATE, KIND_DROP_TUBE, KIND_CREATE_TUBE)
            if not swept and (kinds[at] != KIND_OTHER or others.before(EXPIRES)[at] > time[at]):
                yield of_record(self, view, int(others.rec[at]), "")


class KeyOfNoTask(Rule):
    """A key came without the task it is for, or its window is over before it begins."""

    name = "key_of_no_task"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        others, chosen = view.others, _keys(view)
        fresh = chosen[others.inserted[chosen] & others.exists[chosen]] if len(chosen) else chosen
        if not len(fresh):
            return
        ids = view.of_tubes(lambda tube: tube.tube_id)
        made = np.flatnonzero(tasks.real & tasks.inserted)
        recs = np.isin(tasks.rec[made], others.rec[fresh])
        made = made[recs]
        known = set(
            zip(
                tasks.rec[made].tolist(),
                ids[tasks.tube[made]].tolist(),
                tasks.task[made].tolist(),
                strict=True,
            )
        )
        for at in fresh.tolist():
            place = (int(others.rec[at]), int(others.after(TUBE)[at]), int(others.after(TASK)[at]))
            over = others.after(EXPIRES)[at] <= others.of_line(w.TIME)[at]
            if place not in known or over:
                yield of_record(self, view, place[0], f"task {place[2]}")


class KeyChanged(Rule):
    """What is known of a key changed in place."""

    name = "key_changed"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        others, chosen = view.others, _keys(view)
        for at in chosen.tolist():
            if others.existed[at] and others.exists[at] and not others.inserted[at]:
                yield of_record(self, view, int(others.rec[at]), "")


RULES = (KeyTwice, KeyForgotten, KeyOfNoTask, KeyChanged)
