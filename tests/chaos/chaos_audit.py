"""What `tandemq audit --engine local` says of a story: both data directories, and what clients
were told of their puts. It reads nothing else: not the checkers, not what nodes say of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from tandemq.pipeline.judge.local import AuditRequest, audit
from tandemq.pipeline.judge.outputs import line_of
from tests.chaos.chaos_history import History


class Judged(NamedTuple):
    """What breaks a rule, a line each; which rules; records looked at."""

    findings: list[str]
    rules: set[str]
    records: int


def told(history: History) -> Iterator[dict[str, Any]]:
    """Puts that were acknowledged and that no forced promotion may have undone since."""
    for put in history.puts:
        if put.outcome != "ok" or history.may_be_undone(put.node, put.done):
            continue
        row = {"process": put.node, "f": "put", "tube": put.tube, "task_id": put.task}
        if not put.padded:
            row["digest"] = sha256(msgpack.packb(put.value)).hexdigest()
        yield row | {"outcome": "ok"}


def judged(directories: list[Path], clients: list[dict[str, Any]]) -> Judged:
    verdict = audit([str(path) for path in directories], AuditRequest(clients=clients))
    rules = {*verdict.broken, *verdict.warnings}
    return Judged([line_of(row) for row in verdict.rows], rules, verdict.counts["records"])
