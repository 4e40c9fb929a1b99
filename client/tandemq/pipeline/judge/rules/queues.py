"""Rules about a tube as a whole: ids, order, sub-queues, room and pauses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.model.record import KIND_FINISH, KIND_PUT, KIND_PUT_MANY
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.order import Passed, passed_over
from tandemq.pipeline.judge.rules.base import Breach, Rule, of_record, of_task, sorted_by
from tandemq.pipeline.judge.rules.tasks import TAKES
from tandemq.pipeline.judge.table import Ints
from tandemq.pipeline.judge.tasks import TAKEN, TaskChanges
from tandemq.pipeline.judge.world import BUILT_IN, PAUSED, ChunkView

_NUMBERED = (*BUILT_IN, "queue15")


class Ids(Rule):
    """An id was left out: a task is gone without a trace, or was never written.

    Ids of a tube have no holes: a put that fails takes its id back.
    """

    name = "id_hole"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        for at, expected, holes in _steps(view, tasks):
            if holes:
                yield of_task(self, tasks, at, f"expected id {expected}")


class IdReused(Rule):
    """An id was given again after its task had ended."""

    name = "id_reused"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        for at, expected, holes in _steps(view, tasks):
            if not holes and not tasks.existed[at]:
                yield of_task(self, tasks, at, f"expected id {expected}")


def _steps(view: ChunkView, t: TaskChanges) -> list[tuple[int, int, bool]]:
    """(change, id that was due, whether it skips some) of puts whose id is not the next one."""
    if not hasattr(view, "id_steps"):
        view.id_steps = _find_steps(view, t)  # type: ignore[attr-defined]
    return view.id_steps  # type: ignore[attr-defined,no-any-return]


def _find_steps(view: ChunkView, t: TaskChanges) -> list[tuple[int, int, bool]]:
    found: list[tuple[int, int, bool]] = []
    puts = np.flatnonzero(t.real & t.inserted & t.of(*_NUMBERED, "xqueue") & ~t.table.swept)
    if not len(puts):
        return found
    epoch = view.epochs(t.space[puts], t.at[puts])
    order = sorted_by(t.tube[puts], epoch, t.at[puts])
    puts, epoch = puts[order], epoch[order]
    tube, task = t.tube[puts], t.task[puts]
    starts = np.flatnonzero(np.append(True, (tube[1:] != tube[:-1]) | (epoch[1:] != epoch[:-1])))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(puts)], strict=True):
        one = view.world.tubes[int(tube[start])]
        ids = task[start:stop]
        first = 0 if epoch[start] else one.next_id
        if one.driver == "xqueue":
            if one.opts.get("features", {}).get("id") != "auto_increment" or one.next_id is None:
                continue
            first = max(first or 0, 1)
        due = np.maximum.accumulate(np.append(0 if first is None else first, ids + 1))[:-1]
        wrong = ids != due
        if first is None:
            wrong[0] = False
        imported = np.isin(t.rec[puts[start:stop]], list(view.imports))
        found += [
            (int(puts[start + place]), int(due[place]), bool(ids[place] > due[place]))
            for place in np.flatnonzero(wrong & ~imported).tolist()
        ]
    return found


class OrderBreak(Rule):
    """A task was handed out before one that was due earlier: by priority, then by id.

    The one passed over was ready all the time, and was handed out or ended later. Sub-queues are
    judged each by itself.
    """

    name = "order_break"
    over = False

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        if not hasattr(view, "passed"):
            view.passed = passed_over(view, tasks)  # type: ignore[attr-defined]
        one: Passed
        for one in view.passed:  # type: ignore[attr-defined]
            if one.still_there == self.over:
                said = f"LSN {tasks.lsn[one.by]} handed out task {tasks.task[one.by]} instead"
                yield of_task(self, tasks, one.change, said)


class PassedOver(OrderBreak):
    """A ready task is passed over: later ones are handed out and it is not, to the log's end."""

    name = "passed_over"
    over = True


class UtubeOverlap(Rule):
    """Two tasks of one sub-queue were out at once."""

    name = "utube_overlap"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        t = tasks
        subs = t.of("utube", "utubettl") & t.known
        moved = np.flatnonzero(
            subs & ((t.sb == TAKEN) != (t.sa == TAKEN)) & ~(t.table.swept & ~t.existed)
        )
        state = np.flatnonzero(t.of("utube", "utubettl") & ~t.table.real & (t.sa == TAKEN))
        moved = np.concatenate((state, moved))
        if not len(moved):
            return
        name = _sub_queue(t)[moved]
        step = np.where(t.sa[moved] == TAKEN, 1, -1)
        # What is given back in a record is free for what is taken in it.
        order = sorted_by(t.tube[moved], name, t.rec[moved], step)
        moved, name, step = moved[order], name[order], step[order]
        out = np.cumsum(step)
        new = np.append(True, (name[1:] != name[:-1]) | (t.tube[moved][1:] != t.tube[moved][:-1]))
        base = np.where(new, out - step, 0)
        start = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        out = out - base[start]
        wrong = (step > 0) & (out > 1) & t.real[moved] & t.by(*TAKES)[moved]
        for place in np.flatnonzero(wrong).tolist():
            yield of_task(self, t, int(moved[place]), "another task of its sub-queue is out")


def _sub_queue(t: TaskChanges) -> Ints:
    """The word of each task's sub-queue."""
    found = np.zeros(len(t), np.int64)
    for name, field in (("utube", 2), ("utubettl", 7), ("queue15", 2)):
        mine = t.of(name)
        if mine.any():
            words = np.where(t.exists, t.after(field), t.before(field))
            found = np.where(mine, words, found)
    return found


class OverCapacity(Rule):
    """A tube holds more tasks than its capacity after a put.

    Dead letters and tasks moved by hand always find room.
    """

    name = "over_capacity"
    needs_complete = True

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        t = tasks
        limits = view.of_tubes(lambda tube: int(tube.opts.get("capacity") or 0))
        mine = (limits[t.tube] > 0) & (t.table.real | t.exists)
        chosen = np.flatnonzero(mine & (t.exists != t.existed) | (mine & ~t.table.real))
        if not len(chosen):
            return
        step = t.exists[chosen].astype(np.int64) - t.existed[chosen]
        order = sorted_by(t.tube[chosen], t.rec[chosen], step)
        chosen, step = chosen[order], step[order]
        tube = t.tube[chosen]
        new = np.append(True, tube[1:] != tube[:-1])
        total = np.cumsum(step)
        start = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        total -= (total - step)[start]
        puts = np.isin(t.kind[chosen], (KIND_PUT, KIND_PUT_MANY, KIND_FINISH)) & (step > 0)
        wrong = puts & t.real[chosen] & (total > limits[tube]) & ~t.imported[chosen]
        for place in np.flatnonzero(wrong).tolist():
            said = f"{total[place]} tasks, capacity {limits[tube[place]]}"
            yield of_task(self, t, int(chosen[place]), said)


class Paused(Rule):
    """A task was taken, or put, while the tube was paused for that."""

    name = "paused"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        others, t = view.others, tasks
        rows: Ints = np.flatnonzero(others.of_line(w.SPACE) == PAUSED) if len(others) else []
        for tube_id in {int(others.of_line(w.K0)[row]) for row in rows}:
            changes = [row for row in rows if int(others.of_line(w.K0)[row]) == tube_id]
            recs = np.array([int(others.rec[row]) for row in changes])
            for field, kinds in ((1, (KIND_PUT, KIND_PUT_MANY)), (2, TAKES)):
                flags = [
                    bool(others.exists[row]) and others.after(field)[row] == w.TRUE
                    for row in changes
                ]
                yield from self._during(t, view, tube_id, recs, np.array(flags), kinds)

    def _during(
        self,
        t: TaskChanges,
        view: ChunkView,
        tube_id: int,
        recs: Ints,
        flags: Ints,
        kinds: tuple[int, ...],
    ) -> Iterator[Breach]:
        mine = view.of_tubes(lambda tube: tube.tube_id == tube_id, bool)[t.tube]
        asked = np.flatnonzero(mine & t.real & t.by(*kinds) & (t.exists | t.inserted))
        at = np.searchsorted(recs, t.rec[asked], "right") - 1
        for place in asked[(at >= 0) & flags[np.maximum(at, 0)]].tolist():
            yield of_task(
                self, t, place, f"paused since LSN {int(view.records[w.R_LSN][0])} or later"
            )


class Counted(Rule):
    """A record does less, or more, than its kind says."""

    name = "wrong_number"
    _SINGLE = (1, 2, 3, 4, 5, 8, 9, 10, 11)

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        t, records = tasks, view.records
        kinds = records[w.R_KIND]
        touched = np.zeros(records.shape[1] + 1, np.int64)
        fresh = np.zeros(records.shape[1] + 1, np.int64)
        mine = t.real
        np.add.at(touched, t.rec[mine], 1)
        np.add.at(fresh, t.rec[mine & t.inserted & ~t.existed], 1)
        touched, fresh = touched[:-1], fresh[:-1]
        # A task that is given up enters another tube.
        own = touched - np.where(np.isin(kinds, (4, 9)), fresh, 0)
        wrong = np.isin(kinds, self._SINGLE) & (own != 1)
        wrong |= np.isin(kinds, (6, 7, 21, 22, 23)) & (own < 1)
        wrong |= (kinds == KIND_FINISH) & (touched - fresh != 1)
        wrong |= np.isin(kinds, (14, 19)) & (own != 0)
        wrong |= (kinds < 1) | (kinds > 27)
        for rec in np.flatnonzero(wrong).tolist():
            yield of_record(self, view, rec, f"kind {kinds[rec]}: {own[rec]} tasks")


RULES = (Ids, IdReused, OrderBreak, PassedOver, UtubeOverlap, OverCapacity, Paused, Counted)
