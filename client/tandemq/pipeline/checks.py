"""The checks of the audit: each a function of DataFrames that gives the rows breaking one rule.

What is about tasks and queues is found in Python workers and comes here as rows; what is about two
logs at once, in SQL. What the checks mean stands in `tandemq.pipeline.audit.CHECKS`.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline.arrays import plain
from tandemq.pipeline.events import parts_for, spread
from tandemq.pipeline.exchange import packed, unpacked
from tandemq.pipeline.notes import RUNS_MAX, Notes, Run
from tandemq.pipeline.queues import TAKEN, Queues, across, edges, in_order
from tandemq.pipeline.rules import COUNT, EDGES, SEEN, TAKES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Records of one slice when LSNs are checked.
SLICE = 200_000
#: Takes of more rows of a log than this are sorted by Spark, which can lay them down on disk.
SORTED_ROWS = 40_000_000


def finding(
    check: Column | str,
    evidence: Column,
    tube: Column | None = None,
    task: Column | None = None,
    node: Column | None = None,
) -> list[Column]:
    """The columns of a finding; lsn is the row's own."""
    null = F.lit(None)
    return [
        (F.lit(check) if isinstance(check, str) else check).alias("check"),
        (null if tube is None else tube).cast("string").alias("tube"),
        (null if task is None else task).cast("bigint").alias("task"),
        F.col("lsn").cast("bigint").alias("lsn"),
        (null if node is None else node).cast("string").alias("node"),
        evidence.cast("string").alias("evidence"),
    ]


def check_tasks(seen: DataFrame) -> DataFrame:
    """Rules about one task at a time. seen: rows of `tandemq.pipeline.rules.SEEN`."""
    broken = seen.where(~F.col("check").isin(TAKES, COUNT))
    return broken.select(*finding(F.col("check"), F.col("evidence"), F.col("tube"), F.col("task")))


def check_queues(seen: DataFrame, buckets: int, rows: int) -> DataFrame:
    """Rules about the order of a tube, or of each sub-queue where a tube has them.

    buckets: see `tandemq.pipeline.rules.Rules`. rows: of the log.
    """
    takes = seen.where(F.col("check") == TAKES)
    parts = parts_for(seen.sparkSession, buckets, rows)
    if rows <= SORTED_ROWS:
        found = spread(takes, parts).mapInArrow(_queues, from_arrow_schema(SEEN))
    else:
        lines = takes.select("body").mapInArrow(_lines, from_arrow_schema(plain(TAKEN)))
        lines = lines.repartition(parts, "queue").sortWithinPartitions("queue", "lsn", "task")
        found = lines.mapInArrow(_queues_in_order, from_arrow_schema(SEEN))
    # Findings and edges are few.
    return check_tasks(found.repartition(1).mapInArrow(_joined, from_arrow_schema(SEEN)))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The findings, and those of the edges."""
    bodies = []
    for batch in batches:
        told = pc.equal(batch["check"], EDGES)
        bodies.append(batch.filter(told)["body"])
        yield batch.filter(pc.invert(told))
    tables = list(unpacked(bodies))
    if tables:
        cuts = across(pa.concat_tables(tables).unify_dictionaries())
        yield from pa.Table.from_pylist(Queues().findings(cuts), SEEN).to_batches()


def _queues(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Findings of packed takes, and edges: all of a queue's piece are here."""
    tables = list(unpacked(batch.column(0) for batch in batches))
    if tables:
        yield from _found([in_order(pa.concat_tables(tables).unify_dictionaries())])


def _lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in unpacked(batch.column(0) for batch in batches):
        yield from table.cast(plain(TAKEN)).to_batches()


def _queues_in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Findings of sorted takes, and edges."""
    tables = (pa.Table.from_batches([batch]).cast(plain(TAKEN)).cast(TAKEN) for batch in batches)
    yield from _found(tables)


def _found(stretches: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    rules = Queues()
    for takes in stretches:
        yield from pa.Table.from_pylist(rules.findings(takes), SEEN).to_batches()
        ends = edges(takes)
        _, bodies = packed(ends, np.zeros(ends.num_rows, np.int64), 1)
        rows = [{"check": EDGES, "body": body.as_py()} for body in bodies]
        yield from pa.Table.from_pylist(rows, SEEN).to_batches()


def in_sequence(logs: Sequence[Notes]) -> bool:
    """No rule about LSNs, terms and the clock is broken; False: ask `check_lsns`.

    Each part of a log is a few runs of records that follow each other; the runs of all parts must
    follow each other, too.
    """
    return all(
        len(log.runs) <= RUNS_MAX and all(_follows(*pair) for pair in pairwise(sorted(log.runs)))
        for log in logs
    )


def _follows(one: Run, other: Run) -> bool:
    """The other run begins right behind the one, or goes on with its last record."""
    (*_, lsn, term, us), (next_lsn, next_term, next_us, *_) = one, other
    in_time = next_term >= term and next_us >= us
    return in_time and (next_lsn == lsn + 1 or (next_lsn == lsn and next_term == term))


def _recorded(log: DataFrame) -> DataFrame:
    return log.where(
        "not rescue and node is not null and lsn is not null and operation != 'damaged'"
    ).select("node", "lsn", "term", F.unix_micros("time").alias("us"))


def check_lsns(log: DataFrame) -> DataFrame:
    """Gaps, order of terms and clock of every node, slice by slice, then between slices."""
    rows = _recorded(log)
    rows = rows.withColumn("slice", F.floor(F.col("lsn") / SLICE))
    order = Window.partitionBy("node", "slice").orderBy("lsn", "term")
    slices = rows.groupBy("node", "slice").agg(
        F.min("lsn").alias("lsn"),
        F.max("lsn").alias("last"),
        F.min_by("term", "lsn").alias("term"),
        F.max_by("term", "lsn").alias("last_term"),
        F.min_by("us", "lsn").alias("us"),
        F.max_by("us", "lsn").alias("last_us"),
    )
    between = Window.partitionBy("node").orderBy("slice")
    edges = slices.select(
        "node",
        "lsn",
        "term",
        "us",
        F.lag("last").over(between).alias("prev_lsn"),
        F.lag("last_term").over(between).alias("prev_term"),
        F.lag("last_us").over(between).alias("prev_us"),
    )
    inside = rows.select(
        "node",
        "lsn",
        "term",
        "us",
        F.lag("lsn").over(order).alias("prev_lsn"),
        F.lag("term").over(order).alias("prev_term"),
        F.lag("us").over(order).alias("prev_us"),
    )
    found = (
        F.when(F.col("lsn") > F.col("prev_lsn") + 1, "lsn_gap")
        .when(
            (F.col("lsn") == F.col("prev_lsn")) & (F.col("term") != F.col("prev_term")),
            "lsn_twice",
        )
        .when(F.col("term") < F.col("prev_term"), "term_order")
        .when(F.col("us") < F.col("prev_us"), "clock")
    )
    return (
        inside.unionByName(edges)
        .withColumn("check", found)
        .where("check is not null")
        .select(
            *finding(
                F.col("check"),
                F.to_json(F.struct("prev_lsn", "term", "prev_term", "us", "prev_us")),
                node=F.col("node"),
            )
        )
    )


def check_lineage(logs: Sequence[Notes], apart: int = 2**62) -> list[dict[str, Any]]:
    """Parents of terms, from the few records that open one; in Python.

    apart: LSNs of several clusters in one log begin this far from each other.
    """
    found: list[dict[str, Any]] = []
    ids: dict[tuple[int, int], str] = {}
    for log in sorted(logs, key=lambda one: str(one.node)):
        held = sorted(log.held)
        for lsn, detail in sorted(log.terms):
            term: dict[str, Any] = json.loads(detail)
            reasons = []
            at = bisect(held, lsn - 1, key=lambda one: one[0]) - 1
            there = held[at][2] if at >= 0 and lsn - 1 <= held[at][1] else None
            if there is not None and term["parent"] != there:
                reasons.append(f"parent is {term['parent']}, the term before is {there}")
            number = (lsn // apart, term["number"])
            if ids.setdefault(number, term["id"]) != term["id"]:
                reasons.append(f"term {term['number']} is also {ids[number]}")
            if term["start_lsn"] != lsn % apart:
                reasons.append(f"says it starts at LSN {term['start_lsn']}")
            if reasons:
                found.append(row_of("forked_lineage", lsn, log.node, "; ".join(reasons)))
    return found


def row_of(check: str, lsn: int | None, node: str | None, evidence: str) -> dict[str, Any]:
    return {
        "check": check,
        "tube": None,
        "task": None,
        "lsn": lsn,
        "node": node,
        "evidence": evidence,
    }


def check_nodes(log: DataFrame, commit_lsn: int | None) -> DataFrame:
    """Where two nodes hold the same LSN up to the commit LSN, they must hold the same record."""
    parts = ("term_id", "time", "tube", "task_id", "operation", "state_to", "session", "payload")
    rows = log.where("not rescue and operation != 'damaged'")
    if commit_lsn is not None:
        rows = rows.where(F.col("lsn") <= commit_lsn)
    sums = rows.groupBy("node", "lsn").agg(
        F.sum(F.xxhash64(*parts).cast("decimal(38,0)")).alias("sum"), F.count("*").alias("rows")
    )
    return (
        sums.groupBy("lsn")
        .agg(
            F.count_distinct("sum", "rows").alias("kinds"),
            F.collect_list(F.struct("node", "rows", "sum")).alias("nodes"),
        )
        .where("kinds > 1")
        .select(*finding("nodes_differ", F.to_json("nodes")))
    )


def check_rescue(log: DataFrame) -> DataFrame:
    """What a rewind cut off is not in that node's log, and another term has taken its place."""
    cut = log.where("rescue and operation != 'damaged'")
    cut = cut.select("node", "lsn", "term_id").distinct()
    whole = log.where("not rescue and operation != 'damaged'")
    kept = whole.select("node", "lsn", "term_id").distinct()
    # Where each term ends in the log; the newest one has not ended.
    lasts = whole.groupBy("node", "term_id").agg(F.max("lsn").alias("last"))
    ends = Window.partitionBy("node")
    lasts = lasts.withColumn("open", F.col("last") == F.max("last").over(ends))
    term = F.concat(F.lit("term "), "term_id")
    twice = cut.join(kept, ["node", "lsn", "term_id"]).select(
        *finding("rescue_kept", term, node=F.col("node"))
    )
    story = F.concat(term, F.lit(" is in the log up to LSN "), F.col("last"))
    alive = (
        cut.join(F.broadcast(lasts.where("open")), ["node", "term_id"])
        .where("lsn > last")
        .select(*finding("rescue_unaccounted", story, node=F.col("node")))
    )
    return twice.unionByName(alive)


def check_clients(
    log: DataFrame, clients: DataFrame, rescued: DataFrame | None = None
) -> DataFrame:
    """Puts that a client saw succeed (f = put, outcome = ok) and the log has not, or not so.

    clients may have a column `digest`: SHA-256 of the payload's MessagePack, 64 hex digits, NULL
    where it is not known. rescued: rows of rescue files; a put that is there is undone, not lost.
    """
    digest = F.lower("digest") if "digest" in clients.columns else F.lit(None).cast("string")
    told = clients.where("f = 'put' and outcome = 'ok'").select(
        "tube", F.col("task_id").alias("task"), "process", digest.alias("digest")
    )
    puts = log.where("operation = 'put'").groupBy("tube", F.col("task_id").alias("task"))
    # An id is given again after a truncate: any of its puts may be the one.
    known = puts.agg(
        F.max("lsn").alias("lsn"),
        F.collect_set(F.sha2("payload", 256)).alias("digests"),
    )
    met = told.join(known, ["tube", "task"], "left")
    other = met.where("size(digests) > 0 and not array_contains(digests, digest)")
    lost = met.where("lsn is null").drop("lsn")
    check, lsn = F.lit("lost_put"), F.lit(None).cast("bigint")
    if rescued is not None:
        cut = rescued.where("operation = 'put'")
        cut = cut.groupBy("tube", F.col("task_id").alias("task")).agg(F.min("lsn").alias("cut"))
        lost = lost.join(cut, ["tube", "task"], "left")
        check = F.when(F.col("cut").isNull(), check).otherwise("undone_put")
        lsn = F.col("cut")
    story = F.concat(F.lit("told to process "), F.col("process").cast("string"))
    there = F.concat_ws(", ", F.sort_array("digests"))
    payloads = F.concat(F.lit(": "), "digest", F.lit(", the log has "), there)
    key = (F.col("tube"), F.col("task"))
    return (
        lost.withColumn("lsn", lsn)
        .select(*finding(check, story, *key))
        .unionByName(other.select(*finding("other_payload", F.concat(story, payloads), *key)))
    )
