"""How tasks fared, each in exactly one number; and tubes' statistics beside the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandemq.model.record import KIND_NAMES
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.rules.base import Breach
from tandemq.pipeline.judge.rules.tasks import FAILURES
from tandemq.pipeline.judge.tasks import BURIED, DELAYED, READY, TAKEN, TaskChanges
from tandemq.pipeline.judge.verdict import Collector
from tandemq.pipeline.judge.world import ChunkView, World

_ENDED = {"ack": "acked", "ack_many": "acked", "delete": "deleted", "ttl": "expired",
          "finish": "finished", "other": "moved"}  # fmt: skip
STATES = {"ready": READY, "taken": TAKEN, "buried": BURIED, "delayed": DELAYED}


@dataclass
class Counts:
    """Tasks put, and how they ended, so far."""

    tasks: int = 0
    ended: dict[str, int] = field(default_factory=dict)

    def add(self, view: ChunkView, t: TaskChanges) -> None:
        if not len(t):
            return
        del view
        self.tasks += int(np.count_nonzero(t.real & t.inserted & ~t.existed))
        if self.tasks == 0:
            self.tasks = int(np.count_nonzero(~t.table.real))
        gone = t.existed & ~t.exists & t.table.real
        for kind, count in zip(*np.unique(t.kind[gone], return_counts=True), strict=True):
            name = KIND_NAMES.get(int(kind), "other")
            said = "dead" if int(kind) in FAILURES else _ENDED.get(name, "other")
            self.ended[said] = self.ended.get(said, 0) + int(count)

    def told(self, world: World) -> dict[str, int]:
        """Numbers by name."""
        names = ("acked", "deleted", "expired", "dead", "finished", "moved", "other")
        states = statuses(world)
        here = {"still_there": 0, "buried": 0, "taken": 0}
        for (_, status), count in states.items():
            name = {BURIED: "buried", TAKEN: "taken"}.get(status, "still_there")
            here[name] += count
        return {"tasks": self.tasks, **{name: self.ended.get(name, 0) for name in names}, **here}


def statuses(world: World) -> dict[tuple[int, int], int]:
    """How many tasks of each space are in each state."""
    lines = world.states.get("tasks")
    if lines is None or not lines.shape[1]:
        return {}
    pairs = np.stack((lines[w.SPACE], lines[w.F0 + 1]))
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return {
        (int(space), int(status)): int(count)
        for (space, status), count in zip(found.T, counts, strict=True)
    }


def compare_statistics(world: World, told: dict[str, Any], collector: Collector) -> None:
    """told: by tube, what `queue.statistics` says of a node that has the log's end."""
    counted = statuses(world)
    for tube in world.tubes:
        if tube.opts.get(":gone") or tube.name not in told:
            continue
        said = told[tube.name].get("tasks", told[tube.name])
        for name, status in STATES.items():
            here = counted.get((tube.space, status), 0)
            if name in said and said[name] != here:
                text = f"{name}: statistics say {said[name]}, the log {here}"
                collector.add(Breach("statistics_differ", tube=tube.name, text=text))
