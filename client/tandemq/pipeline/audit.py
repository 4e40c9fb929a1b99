"""The checkers: every rule a queue's history must obey, over any amount of log.

Each check (`checks.py`) gives rows (check, tube, task, lsn, node, evidence); no rows means
the rule holds. `judge` runs them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tandemq.log.meta import read_commit
from tandemq.model.errors import StorageError
from tandemq.pipeline.checks import (
    check_clients,
    check_lineage,
    check_lsns,
    check_nodes,
    check_queues,
    check_rescue,
    check_tasks,
    finding,
    in_sequence,
)
from tandemq.pipeline.events import Survey, kept, read_log, survey, survey_frame
from tandemq.pipeline.judge.verdict import part_of
from tandemq.pipeline.packing import SURVEYED
from tandemq.pipeline.rules import COUNT, KINDS, SEEN, Rules, everything, nothing, stretch_of
from tandemq.spark.disk import ArrowDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tandemq.pipeline.notes import Notes

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
class SparkVerdict:
    """ok: no rule is broken. counts: of everything looked at; broken: rows by check.

    judged: the rules this engine knows, fewer than that of one machine.
    """

    ok: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    warnings: dict[str, int] = field(default_factory=dict)
    engine: str = "spark"
    judged: tuple[str, ...] = tuple(CHECKS)

    def text(self) -> str:
        """One line for the end of a run."""
        counts = f"{self.counts.get('records', 0)} records, {self.counts.get('tasks', 0)} tasks"
        found = ", ".join(f"{name} {count}" for name, count in self.broken.items())
        said = f"ok: {counts}" if self.ok else f"violated: {found}"
        return said + part_of(self.judged)


def judge(
    log: DataFrame,
    clients: DataFrame | None = None,
    commit_lsn: int | None = None,
    limit: int = 1000,
) -> SparkVerdict:
    """All checks over a log of one or several nodes, read with `rescue` and mode PERMISSIVE.

    clients: what clients were told (process, f, tube, task_id, outcome, digest). limit: offending
    rows kept of each check; all are counted.
    """
    with kept(log), survey_frame(log) as seen:
        return _judge(seen, nullcontext(log), clients, commit_lsn, limit)


def run(
    spark: SparkSession,
    paths: Sequence[str],
    clients: DataFrame | None = None,
    commit_lsn: int | None = None,
    limit: int = 1000,
) -> SparkVerdict:
    """`judge` over directories and archives; commit_lsn: default is `common_commit`."""
    upto = commit_lsn if commit_lsn is not None else common_commit(paths)
    options = {"rescue": "true", "mode": "PERMISSIVE"}
    with survey(spark, paths, SURVEYED, **options) as seen:
        return _judge(
            seen, kept(read_log(spark, paths, columns(), **options)), clients, upto, limit
        )


def _judge(
    seen: Survey,
    reading: AbstractContextManager[DataFrame],
    clients: DataFrame | None,
    commit_lsn: int | None,
    limit: int,
) -> SparkVerdict:
    """`judge`; the log itself is only read where the survey does not tell all."""
    alone = seen.furthest
    from_start = min((log.first for log in seen.logs if log.first is not None), default=1) <= 1
    rules = Rules(
        alone.cleared if alone is not None else {},
        types_of(alone) if alone is not None else {},
        everything if from_start else nothing,
        seen.buckets,
        stretch_of(alone.last or 0 if alone is not None else 0, seen.buckets),
    )
    with ExitStack() as kept_for_now:
        keep = kept_for_now.enter_context
        looked_at = keep(kept(seen.by_task(rules, SEEN)))
        rows = alone.rows if alone is not None else 0
        tables = [check_tasks(looked_at), check_queues(looked_at, seen.buckets, rows)]
        asked = _asked(seen, clients)
        if asked:
            tables += _of_the_log(keep(reading), asked, clients, commit_lsn, alone)
        verdict = SparkVerdict()
        findings = keep(kept(reduce(DataFrame.unionByName, tables)))
        _sum_up(verdict, findings, check_lineage(seen.logs), limit)
        fared = task_counts(looked_at)
    verdict.counts = {
        "records": max(
            (log.last - (log.first or 0) + 1 for log in seen.logs if log.last), default=0
        ),
        "rows": sum(log.rows for log in seen.logs),
        "nodes": len(seen.logs),
        "rescued_rows": sum(one.rows for one in seen.notes if one.rescue and one.node is not None),
        **fared,
    }
    return verdict


def _asked(seen: Survey, clients: DataFrame | None) -> set[str]:
    """What only the log itself can answer."""
    found = {
        "lsns": not in_sequence(seen.logs),
        "damaged": any(one.damaged for one in seen.notes),
        "nodes": len(seen.logs) > 1,
        "rescue": any(one.rescue and one.node is not None for one in seen.notes),
        "clients": clients is not None,
    }
    return {name for name, there in found.items() if there}


def _of_the_log(
    log: DataFrame,
    asked: set[str],
    clients: DataFrame | None,
    commit_lsn: int | None,
    alone: Notes | None,
) -> list[DataFrame]:
    """Findings about what was asked. alone: the node whose log goes furthest."""
    tables = []
    if "lsns" in asked:
        tables.append(check_lsns(log))
    if "damaged" in asked:
        broken = log.where("operation = 'damaged'")
        tables.append(broken.select(*finding("damaged", F.col("detail"), node=F.col("node"))))
    if "nodes" in asked:
        tables.append(check_nodes(log, commit_lsn))
    if "rescue" in asked:
        tables.append(check_rescue(log))
    if clients is not None:
        whole = log.where("not rescue")
        if alone is not None:
            whole = whole.where(F.col("node") == F.lit(alone.node))
        tables.append(check_clients(whole, clients, log.where("rescue")))
    return tables


def types_of(log: Notes) -> dict[str, frozenset[str]]:
    """The drivers of each tube that was put into."""
    return {tube: frozenset(types) for tube, types in log.types.items()}


def _sum_up(
    verdict: SparkVerdict, findings: DataFrame, lineage: list[dict[str, Any]], limit: int
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
            lsn, problem = read_commit(ArrowDisk(path))
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
