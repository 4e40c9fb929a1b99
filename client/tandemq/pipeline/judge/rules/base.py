"""What a rule is: a named class that finds what breaks it in a replayed chunk.

A rule's docstring is its page: the first sentence says what is broken, the rest why it matters and
what it cannot see. `catalogue.py` lists all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tandemq.pipeline.judge.table import Bits, Ints
from tandemq.pipeline.judge.tasks import TaskChanges
from tandemq.pipeline.judge.world import ChunkView

ERROR, WARNING = "error", "warning"


@dataclass
class Breach:
    """One breach of a rule. rec: its record in the chunk, -1 where it is about no single one."""

    rule: str
    severity: str = ERROR
    lsn: int | None = None
    tube: str | None = None
    task: int | None = None
    node: str | None = None
    text: str = ""
    rec: int = -1
    more: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As tables and JSON show it."""
        return {
            "check": self.rule,
            "severity": self.severity,
            "tube": self.tube,
            "task": self.task,
            "lsn": self.lsn,
            "node": self.node,
            "evidence": self.text,
        }


class Rule(ABC):
    """name: what findings are called. needs_complete: it means nothing on part of a log."""

    name: ClassVar[str] = ""
    severity: ClassVar[str] = ERROR
    needs_complete: ClassVar[bool] = False

    @abstractmethod
    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        """What breaks the rule in this chunk."""

    @classmethod
    def summary(cls) -> str:
        text = " ".join((cls.__doc__ or "").split())
        return text.split(". ")[0].rstrip(".")


class TaskRule(Rule):
    """A rule about one change of one task."""

    def find(self, view: ChunkView, tasks: TaskChanges) -> Iterator[Breach]:
        if not len(tasks):
            return
        for at in np.flatnonzero(self.broken(tasks) & tasks.real).tolist():
            yield of_task(self, tasks, at, self.words(tasks, at))

    @abstractmethod
    def broken(self, t: TaskChanges) -> Bits:
        """Of each change whether it breaks the rule."""

    def words(self, t: TaskChanges, at: int) -> str:
        """What there is to say of one that does."""
        del t, at
        return ""


def of_task(rule: Rule, t: TaskChanges, at: int, text: str) -> Breach:
    task, prev = int(t.task[at]), t.table.prev[at]
    states = [chr(one) if 0 < one < 256 else "-" for one in (int(t.sb[at]), int(t.sa[at]))]
    more: dict[str, Any] = {"from": states[0], "to": states[1]}
    if prev >= 0:
        more |= {"before_lsn": int(t.lsn[prev]), "before_kind": int(t.kind[prev])}
    return Breach(
        rule.name,
        rule.severity,
        int(t.lsn[at]),
        t.view.world.tubes[int(t.tube[at])].name,
        task if abs(task) < 1 << 62 else None,
        None,
        text,
        int(t.rec[at]),
        more,
    )


def of_record(rule: Rule, view: ChunkView, rec: int, text: str, tube: str | None = None) -> Breach:
    return Breach(rule.name, rule.severity, view.chunk.lsn_of(rec), tube, None, None, text, rec)


def sorted_by(*keys: Ints) -> Ints:
    """Order by the first key, then the second, and so on."""
    return np.lexsort(keys[::-1])
