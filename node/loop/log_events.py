"""Names of what the node logs, for programs that read it: one table, by the words of the lines.

Here: which line is which event, what its parts are called, how much it matters at least.
Must not be here: writing lines (log_lines.py). tests/node/test_log_events.py finds lines that
nobody named.
"""

from __future__ import annotations

from typing import NamedTuple

#: (event, the least level it has, the line with names of its parts). The first that fits is it.
SHAPES: tuple[tuple[str, str, str], ...] = (
    ("node.serving", "info", "{node} serves on {address} in state {state}"),
    ("node.ended", "info", "stopped cleanly"),
    ("node.stood_still", "warning", "this process stood still for {seconds} s: {effect}"),
    ("node.admin", "info", "admin API on {address}"),
    ("config.reloaded", "info", "reloaded: {changed}"),
    ("config.refused", "error", "reload refused: {reason}"),
    ("log.failed", "error", "the log failed, nothing more is acknowledged: {reason}"),
    ("log.recovered", "info", "recovered up to LSN {lsn}: {reason}"),
    ("log.mended", "info", "what was up to LSN {lsn} {reason}"),
    ("log.rewinding", "warning", "rewinding to LSN {lsn} as {peer} says: {reason}"),
    ("log.rewinding", "warning", "no snapshot here is old enough: {reason}"),
    ("snapshot.failed", "error", "snapshot failed: {reason}"),
    ("snapshot.bad", "error", "ALARM: the snapshot of {peer} cannot be read, put aside: {reason}"),
    ("snapshot.receiving", "info", "{peer} sends a snapshot of {reason}"),
    ("snapshot.dropped", "info", "the snapshot under way is dropped: {reason}"),
    ("snapshot.installed", "info", "installed the snapshot of {peer}, up to LSN {lsn}"),
    ("rescue.not_counted", "warning", "rescue files were not counted: {reason}"),
    ("audit.not_written", "error", "the audit trail is not written: {reason}"),
    ("role.changed", "info", "Queue state changed: {state} (from {reason}"),
    ("role.asked", "info", "asked to become {role}: {reason}"),
    ("role.asked_other", "info", "{peer} serves: asking it to stop first"),
    ("role.taken_back", "warning", "nobody has taken the lead from this node: {reason}"),
    ("role.stopped", "info", "{peer} stopped writing at LSN {lsn}"),
    ("role.without_proof", "warning", "compat.promotion is original: {reason}"),
    ("role.term_not_opened", "error", "term {term} was not opened: {reason}"),
    ("sessions.released", "info", "released {count} tasks nobody holds any more"),
    ("pair.alone", "warning", "pair mode: going on alone{reason}"),
    ("pair.confirmed", "info", "pair mode: confirmed again{reason}"),
    ("failover.step_down", "warning", "failover: this node steps down: {reason}"),
    ("failover.arbiter_back", "info", "failover: {arbiter} answers again"),
    (
        "failover.arbiter_gone",
        "warning",
        "failover: {arbiter}: {reason}; what runs goes on {effect}",
    ),
    ("failover.paused", "warning", "failover: paused: {reason}"),
    ("failover.resumed", "info", "failover: resumed"),
    ("failover.problem", "warning", "failover: {reason}"),
    ("link.joined", "info", "joined cluster {cluster} of {peer}"),
    ("link.ended", "info", "link to {peer} ended: {reason}"),
    ("link.problem", "info", "peer {peer}: {reason}"),
    ("link.in_order", "info", "{peer}: in order again"),
    ("link.refused", "warning", "SUBSCRIBE of {user} from {peer} without proof"),
    ("login.refused", "warning", "login of {user} from {peer} refused"),
    ("watch.refused", "warning", "{peer}: watch refused: {reason}"),
    ("connection.closed", "info", "{peer}: closed: {reason}"),
    ("memory.full", "warning", "{used}, memory.max is {limit}: puts are refused"),
    ("memory.high", "warning", "{used}; at memory.max puts will be refused"),
    ("memory.room", "info", "{used}, below memory.{mark} again{reason}"),
    ("admin.failed", "error", "admin {request} failed"),
    ("admin.refused", "warning", "admin {peer}: {reason}"),
    ("call.failed", "error", "call failed: {reason}"),
    ("task.callback_failed", "warning", "on_task_change of tube {tube} failed on {reason}"),
    ("task.inconsistent", "error", "Inconsistent queue state: {reason}"),
    ("task.deadline_dropped", "error", "deadline of task {reason}"),
    ("tube.problem", "warning", "tube {tube}: {reason}"),
    ("tube.problem", "warning", "tubes: {tube}: {reason}"),
    ("queue.refused", "warning", "Queue: {reason}"),
    ("witness.listening", "info", "listening on {address}"),
    ("witness.failed", "error", "the disk failed, the witness ends: {reason}"),
    ("witness.ended", "info", "ended"),
    ("effect.failed", "error", "{effect} failed: {reason}"),
)
OTHER = "other"


class LogEvent(NamedTuple):
    """What a line is about. level: the least; fields: its parts by name."""

    name: str
    level: str
    fields: dict[str, str]


def _cut(shape: str) -> tuple[str, list[tuple[str, str]]]:
    """What a line begins with, then the name of each part and the words behind it."""
    begin, *rest = shape.split("{")
    return begin, [(name, after) for name, _, after in (one.partition("}") for one in rest)]


# No regular expressions: to compile them took a fiftieth of a node's start.
_CUT = tuple((name, level, *_cut(shape)) for name, level, shape in SHAPES)


def _parts(text: str, begin: str, rest: list[tuple[str, str]]) -> dict[str, str] | None:
    """The parts of a line by name; None where it is not of this shape."""
    if not text.startswith(begin):
        return None
    found, at = {}, len(begin)
    for number, (name, after) in enumerate(rest, 1):
        if number == len(rest):
            end = len(text) - len(after)
            if end < at or not text.endswith(after):
                return None
        elif (end := text.find(after, at)) < 0:
            return None
        found[name] = text[at:end]
        at = end + len(after)
    return found if at == len(text) else None


def event_of(text: str) -> LogEvent:
    """The event of a line; OTHER for one that nobody named."""
    for name, level, begin, rest in _CUT:
        if (found := _parts(text, begin, rest)) is not None:
            fields = {key: value.strip(" ,:;()") for key, value in found.items()}
            return LogEvent(name, level, {key: value for key, value in fields.items() if value})
    return LogEvent(OTHER, "debug", {})
