"""Rules about the log itself: whole, in order, one lineage, the same on every node.

Most of these are found while files are read and compared (`read.py`, `compare.py`, `clients.py`);
their classes say what is meant, and switch them on and off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import Breach, Rule, of_record
from tandemq.pipeline.judge.tasks import TaskChanges
from tandemq.pipeline.judge.world import CATALOGUE, FIRST_TUBE_SPACE, ChunkView

#: Of the system spaces those that are logged.
SYSTEM = (512, 514, 516, 517, 518, 519, 521, 523)


class Told(Rule):
    """A rule whose breaches are found before the replay."""

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del view, tasks
        yield from ()


class Damaged(Told):
    """Bytes of the log that cannot be read."""

    name = "damaged"


class LsnGap(Told):
    """Records are missing in the middle of a log."""

    name = "lsn_gap"


class LsnTwice(Told):
    """One LSN, two records of different terms, outside the rescue files."""

    name = "lsn_twice"


class TermOrder(Told):
    """A record of an older term stands behind one of a newer term."""

    name = "term_order"


class ForkedLineage(Told):
    """A term's parent is not the term before it, or two terms have one number."""

    name = "forked_lineage"


class TermMissing(Told):
    """A term's opening record is missing, or another record opens it than its segments say."""

    name = "term_missing"


class ClockBackwards(Rule):
    """A record is older than the one before it: the log's clock never runs backwards."""

    name = "clock"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        times = view.records[w.R_TIME]
        last = view.world.settings.get(":time", 0)
        before = np.append(last, times)[:-1]
        for rec in np.flatnonzero(times < before).tolist():
            text = f"{before[rec] - times[rec]} us before the record before it"
            yield of_record(self, view, rec, text)
        if len(times):
            view.world.settings[":time"] = int(times.max())


class StrangeOp(Rule):
    """A record changes a space that is not there, or in a way nobody knows."""

    name = "strange_op"
    needs_complete = True

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        lines = view.lines
        space, code = lines[w.SPACE], lines[w.CODE]
        known = {tube.space for tube in view.world.tubes if tube.driver}
        for rec, said in view.strange:
            yield of_record(self, view, rec, said)
        wrong = ~np.isin(code, (1, 2, 3, 4, 5, 6, 7, 8))
        spaces = [*known, *SYSTEM]
        wrong |= np.isin(code, (1, 2, 3, 6)) & ~np.isin(space, spaces)
        for line in np.flatnonzero(wrong).tolist():
            text = f"op {code[line]} of space {space[line]}"
            yield of_record(self, view, int(lines[w.REC][line]), text)


class StrangeTube(Rule):
    """A tube was made without its row in the list of tubes, or two tubes have one id."""

    name = "strange_tube"
    needs_complete = True

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        for rec, tube in view.created:
            twice = [
                one.name
                for one in view.world.tubes
                if one.number < tube.number
                and one.tube_id == tube.tube_id
                and one.space not in {space for _, space in view.sweeps}
                and not one.opts.get(":gone")
            ]
            if tube.tube_id < 0 or twice or tube.space < FIRST_TUBE_SPACE:
                text = f"tube {tube.name}, id {tube.tube_id}, space {tube.space} {twice}"
                yield of_record(self, view, rec, text, tube.name)


class SystemKind(Rule):
    """A record about settings, rights or tubes that is of another kind, or on behalf of a call
    that changes none.
    """

    name = "system_kind"

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        del tasks
        lines = view.lines
        kinds = lines[w.KIND]
        wrong = (lines[w.SPACE] == CATALOGUE[0]) & ~np.isin(kinds, (14, 15, 17))
        wrong |= (lines[w.SPACE] == CATALOGUE[1]) & ~np.isin(kinds, (14, 15, 16, 17, 18, 25, 26))
        wrong |= (lines[w.SPACE] == 518) & ~np.isin(kinds, (19, 15))
        wrong |= (lines[w.SPACE] == 523) & ~np.isin(kinds, (17, 15))
        wrong |= (lines[w.SPACE] == 519) & ~np.isin(kinds, (1, 21, 27, 26, 12, 15))
        wrong |= (lines[w.CODE] == 7) & (kinds != 18)
        wrong |= (lines[w.CODE] == 4) & (kinds != 14)
        wrong |= (lines[w.CODE] == 5) & (kinds != 15)
        for line in np.flatnonzero(wrong).tolist():
            rec = int(lines[w.REC][line])
            yield of_record(self, view, rec, f"kind {kinds[line]}, space {lines[w.SPACE][line]}")


class NodesDiffer(Told):
    """Two nodes have different records at one LSN below the commit LSN, in any byte."""

    name = "nodes_differ"


class NodeLacks(Told):
    """A node lacks records below the commit LSN that another one has."""

    name = "node_lacks"


class RescueKept(Told):
    """A rescued record is also in the log."""

    name = "rescue_kept"


class RescueUnaccounted(Told):
    """A rescued record of a term that goes on, whose place nothing has taken."""

    name = "rescue_unaccounted"


class SnapshotDiffers(Told):
    """A snapshot's rows are not what the log says at the same LSN."""

    name = "snapshot_differs"


class StatisticsDiffer(Told):
    """A tube's statistics are not the numbers of tasks that the log says there are."""

    name = "statistics_differ"


class LostPut(Told):
    """A put that a client saw acknowledged and the log does not have."""

    name = "lost_put"


class UndonePut(Told):
    """A put that a client saw acknowledged and only a rescue file has."""

    name = "undone_put"


class OtherPayload(Told):
    """A put that a client saw acknowledged and the log has with another payload."""

    name = "other_payload"


RULES = (
    Damaged, LsnGap, LsnTwice, TermOrder, ForkedLineage, TermMissing, ClockBackwards, StrangeOp,
    StrangeTube, SystemKind, NodesDiffer, NodeLacks, RescueKept, RescueUnaccounted, SnapshotDiffers,
    StatisticsDiffer, LostPut, UndonePut, OtherPayload,
)  # fmt: skip
