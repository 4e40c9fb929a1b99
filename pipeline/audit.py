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
    in_sequence,
    looked_at,
)
from pipeline.events import cleared, events, kept, one_lineage, read_log
from pipeline.rules import COUNT, KINDS, Rules, everything, nothing
from pipeline.staged import staged
from storage.meta import read_commit
from tandemq.spark.logs import ArrowDisk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


#: Words in what Spark says of a Parquet file it cannot read.
UNREADABLE = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")


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
    """`judge` of a log that is quickly read several times."""
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
    sound = alone.where("operation != 'damaged'")
    count = max((row["rows"] for row in nodes), default=0)
    rules = Rules(cleared(alone), types_of(alone), everything if from_start else nothing)
    events_seen = looked_at(events(sound, timed=True), rules, count)
    tables = [check_tasks(events_seen), check_queues(events_seen)]
    if not in_sequence(log):
        tables.append(check_lsns(log))
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
    with (
        kept(events_seen),
        kept(reduce(lambda one, other: one.unionByName(other), tables)) as findings,
    ):
        _sum_up(verdict, findings, lineage, limit)
        fared = task_counts(events_seen)
    verdict.counts = {
        "records": max((row["last"] - row["first"] + 1 for row in nodes), default=0),
        "rows": sum(row["rows"] for row in nodes),
        "nodes": len(nodes),
        "rescued_rows": sum(row["rows"] for row in seen if row["rescue"]),
        **fared,
    }
    return verdict


def run(
    spark: SparkSession,
    paths: Sequence[str],
    clients: DataFrame | None = None,
    commit_lsn: int | None = None,
    limit: int = 1000,
) -> Verdict:
    """`judge` over directories and archives; commit_lsn: default is `common_commit`."""
    upto = commit_lsn if commit_lsn is not None else common_commit(paths)
    try:
        with staged(spark, paths, columns(), rescue=True, permissive=True) as log:
            return _judge(log, clients, upto, limit)
    except Exception as error:
        if not any(word in str(error) for word in UNREADABLE):
            raise
    # Spark's own reader does not go on behind a damaged file of an archive; ours makes it a row.
    damaged = read_log(spark, paths, columns(), rescue="true", mode="PERMISSIVE")
    return judge(damaged, clients, upto, limit)


def types_of(log: DataFrame) -> dict[str, frozenset[str]]:
    """The drivers of each tube that was put into."""
    rows = log.where("operation = 'put'").select("tube", "tube_type").distinct().collect()
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        found[row["tube"]] = found.get(row["tube"], frozenset()) | {row["tube_type"] or ""}
    return found


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


def task_counts(seen: DataFrame) -> dict[str, int]:
    """How the tasks of a history fared: every one is in exactly one of these numbers."""
    found = {"tasks": 0, **dict.fromkeys(KINDS, 0)}
    counted = seen.where(F.col("check") == COUNT)
    for row in counted.groupBy("evidence").agg(F.sum("task").alias("tasks")).collect():
        found[row["evidence"]] = row["tasks"]
        found["tasks"] += row["tasks"]
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
