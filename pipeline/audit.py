"""The checkers: every rule a queue's history must obey, over any amount of log.

Each check (pipeline/checks.py) gives rows (check, tube, task, lsn, node, evidence); no rows means
the rule holds. `judge` runs them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from model.errors import StorageError
from pipeline.checks import (
    check_clients,
    check_lineage,
    check_lsns,
    check_nodes,
    check_queues,
    check_rescue,
    check_tasks,
    finding,
    with_put,
)
from pipeline.events import (
    ACK,
    BURY,
    DEAD,
    DELETE,
    FINISH,
    MOVE,
    TAKE,
    TTL,
    cleared,
    events,
    kept,
    one_lineage,
)
from storage.meta import read_commit
from tandemq.spark.logs import ArrowDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What each check means, in the order of the report.
CHECKS = {
    "damaged": "bytes of the log that cannot be read",
    "lsn_gap": "records missing in the middle of a log",
    "lsn_twice": "one LSN, two records of different terms, outside the rescue files",
    "term_order": "a record of an older term behind one of a newer term",
    "forked_lineage": "a term whose parent is not the term before it, or two terms of one number",
    "clock": "a record that is older than the one before it",
    "put_twice": "a task put while one of the same id was there",
    "unknown_task": "something happened to a task that was never put",
    "lost_put": "a put that a client saw acknowledged and the log does not have",
    "undone_put": "a put that a client saw acknowledged and only a rescue file has",
    "other_payload": "a put that a client saw acknowledged and the log has with another payload",
    "vanished": "a task that left its tube by an operation that ends none",
    "double_ack": "a task acked again after its end",
    "revived": "something else happened to a task after its end",
    "two_holders": "a task handed out while somebody held it",
    "not_held": "a task acked, released or out of its ttr that nobody held",
    "ack_by_other": "a task acked by another session than the one that held it",
    "too_early": "a task expired before its ttl, or its holder lost it before its ttr",
    "utube_overlap": "two tasks of one sub-queue out at once",
    "order_break": "a task handed out before one that was due earlier",
    "nodes_differ": "two nodes' logs differ below the commit LSN",
    "rescue_kept": "a rescued record that is also in the log",
    "rescue_unaccounted": "a rescued record of a term that goes on, whose place nothing has taken",
}


@dataclass
class Verdict:
    """ok: no rule is broken. counts: of everything looked at; broken: rows by check."""

    ok: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def text(self) -> str:
        """One line for the end of a run."""
        if self.ok:
            return (
                f"ok: {self.counts.get('records', 0)} records, {self.counts.get('tasks', 0)} tasks"
            )
        found = ", ".join(f"{name} {count}" for name, count in self.broken.items())
        return f"violated: {found}"


def judge(
    log: DataFrame,
    clients: DataFrame | None = None,
    commit_lsn: int | None = None,
    limit: int = 1000,
) -> Verdict:
    """All checks over a log of one or several nodes, read with `rescue` and mode PERMISSIVE.

    clients: what clients were told (process, f, tube, task_id, outcome, digest). limit: offending
    rows kept of each check; all are counted.
    """
    with kept(log):
        return _judge(log, clients, commit_lsn, limit)


def _judge(
    log: DataFrame, clients: DataFrame | None, commit_lsn: int | None, limit: int
) -> Verdict:
    totals = log.groupBy("node", "rescue").agg(
        F.min("lsn").alias("first"),
        F.max("lsn").alias("last"),
        F.count("*").alias("rows"),
        F.sum((F.col("operation") == "damaged").cast("int")).alias("damaged"),
    )
    counted_rows = totals.collect()
    seen = [row for row in counted_rows if row["node"] is not None]
    nodes = [row for row in seen if not row["rescue"]]
    alone = one_lineage(log) if len(nodes) > 1 else log.where("not rescue")
    from_start = min((row["first"] for row in nodes), default=1) <= 1
    verdict = Verdict()
    # Without the payload: only the comparison of nodes reads it, and it is most of the bytes.
    told_apart = with_put(events(alone.where("operation != 'damaged'"))).drop("payload")
    with kept(told_apart) as happened:
        tables = [
            check_tasks(happened, from_start, cleared(alone)),
            check_queues(happened),
            check_lsns(log),
        ]
        if any(row["damaged"] for row in counted_rows):
            broken = log.where("operation = 'damaged'")
            tables.append(broken.select(*finding("damaged", F.col("detail"), node=F.col("node"))))
        if len(nodes) > 1:
            tables.append(check_nodes(log, commit_lsn))
        if any(row["rescue"] for row in seen):
            tables.append(check_rescue(log))
        if clients is not None:
            tables.append(check_clients(alone, clients, log.where("rescue")))
        lineage = check_lineage(log)
        with kept(reduce(lambda one, other: one.unionByName(other), tables)) as everything:
            _sum_up(verdict, everything, lineage, limit)
        verdict.counts = {
            "records": max((row["last"] - row["first"] + 1 for row in nodes), default=0),
            "rows": sum(row["rows"] for row in nodes),
            "nodes": len(nodes),
            "rescued_rows": sum(row["rows"] for row in seen if row["rescue"]),
            **task_counts(happened),
        }
    return verdict


def _sum_up(
    verdict: Verdict, findings: DataFrame, lineage: list[dict[str, Any]], limit: int
) -> None:
    """Count the findings by check and keep the first of each."""
    counted = {row["check"]: row["count"] for row in findings.groupBy("check").count().collect()}
    if lineage:
        counted["forked_lineage"] = len(lineage)
    verdict.broken = {name: counted[name] for name in CHECKS if name in counted}
    verdict.ok = not verdict.broken
    if not verdict.ok:
        order = Window.partitionBy("check").orderBy("lsn")
        chosen = findings.withColumn("n", F.row_number().over(order)).where(F.col("n") <= limit)
        rows = [row.asDict() for row in chosen.drop("n").collect()]
        verdict.rows = sorted([*rows, *lineage], key=_place)


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return list(CHECKS).index(row["check"]), row["lsn"] or 0


def task_counts(happened: DataFrame) -> dict[str, int]:
    """How the tasks of a history fared: every one is in exactly one of these numbers."""
    last = happened.where("next_op is null or next_op = 1").groupBy("op", "ends").count().collect()
    names = {ACK: "acked", DELETE: "deleted", TTL: "expired", DEAD: "dead", FINISH: "finished"}
    names[MOVE] = "moved"
    found: dict[str, int] = {"tasks": 0, **dict.fromkeys(names.values(), 0)}
    found |= {"still_there": 0, "buried": 0, "taken": 0, "other": 0}
    for row in last:
        found["tasks"] += row["count"]
        if row["ends"]:
            found[names.get(row["op"], "other")] += row["count"]
        else:
            state = {BURY: "buried", TAKE: "taken"}.get(row["op"], "still_there")
            found[state] += row["count"]
    return found


def common_commit(paths: Sequence[str]) -> int | None:
    """The lowest commit LSN the directories published; None where none did."""
    found = []
    for path in paths:
        try:
            lsn, problem = read_commit(ArrowDisk(path))  # type: ignore[arg-type]
        except StorageError:
            continue
        if problem is None and lsn:
            found.append(lsn)
    return min(found, default=None)


def columns() -> Sequence[str]:
    """The columns of the log the checks read."""
    return (
        "lsn", "term", "node", "time", "tube", "tube_type", "task_id", "operation", "state_to",
        "session", "ttl", "ttr", "priority", "utube", "payload", "term_id", "detail", "rescue",
    )  # fmt: skip
