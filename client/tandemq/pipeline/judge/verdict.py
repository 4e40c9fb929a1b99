"""What an audit found: counted by rule, the first of each told in full."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tandemq.pipeline.judge.chunks import SourceChunk
from tandemq.pipeline.judge.rules.base import ERROR, Breach
from tandemq.pipeline.judge.rules.catalogue import ALL

#: Bytes of a record that are shown.
SHOWN = 600


@dataclass
class Verdict:
    """ok: no rule of severity error is broken. counts: of everything looked at; broken: by rule.

    judged: the rules that were asked, in their order; of no other does the verdict say anything.
    """

    ok: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    warnings: dict[str, int] = field(default_factory=dict)
    engine: str = "local"
    judged: tuple[str, ...] = ()

    def text(self) -> str:
        """One line for the end of a run."""
        if self.ok:
            found = (
                f"ok: {self.counts.get('records', 0)} records, {self.counts.get('tasks', 0)} tasks"
            )
            found += f"; warnings: {_listed(self.warnings)}" if self.warnings else ""
        else:
            found = f"violated: {_listed({**self.broken, **self.warnings})}"
        return found + part_of(self.judged)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "counts": self.counts,
            "broken": self.broken,
            "warnings": self.warnings,
            "rows": self.rows,
        }


def part_of(judged: Collection[str]) -> str:
    """What a line says of rules that were not asked: nothing if all were."""
    if len(judged) == len(ALL):
        return ""
    return f" (by {len(judged)} of {len(ALL)} rules)"


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.items())


class Collector:
    """Findings as they come. `limit` of each rule are kept, all are counted."""

    def __init__(self, order: Iterable[str], limit: int) -> None:
        self.limit = limit
        self.counted: dict[str, int] = {}
        self.severity: dict[str, str] = {}
        self.kept: list[Breach] = []
        self.order = {name: at for at, name in enumerate(order)}
        self._told: set[tuple[str, str | None, int | None]] = set()

    def add(self, finding: Breach, chunk: SourceChunk | None = None, node: str = "") -> None:
        """A finding; what the record holds is looked up for those that are kept."""
        if finding.rule not in self.order:
            return
        if finding.rule in ("passed_over", "order_break"):
            # A task that stays passed over is found anew in each chunk.
            told = ("order", finding.tube, finding.task)
            if told in self._told:
                return
            self._told.add(told)
        count = self.counted[finding.rule] = self.counted.get(finding.rule, 0) + 1
        self.severity[finding.rule] = finding.severity
        if count > self.limit:
            return
        finding.node = finding.node or node or None
        if chunk is not None and finding.rec >= 0:
            finding.text = _evidence(finding, chunk)
        self.kept.append(finding)

    def verdict(self, counts: dict[str, int]) -> Verdict:
        names = sorted(self.counted, key=lambda name: self.order[name])
        broken = {n: self.counted[n] for n in names if self.severity[n] == ERROR}
        warnings = {n: self.counted[n] for n in names if self.severity[n] != ERROR}
        self.kept.sort(key=lambda one: (self.order[one.rule], one.lsn or 0))
        rows = [finding.row() for finding in self.kept]
        return Verdict(not broken, counts, broken, rows, warnings, judged=tuple(self.order))


def _evidence(finding: Breach, chunk: SourceChunk) -> str:
    told: dict[str, Any] = {"said": finding.text} if finding.text else {}
    told |= finding.more
    try:
        text = json.dumps(chunk.record(finding.rec), default=_plain)
    except (ValueError, TypeError):
        text = "?"
    told["record"] = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return json.dumps(told)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 32 else f"{value[:32].hex()}... {len(value)} bytes"
    return repr(value)
