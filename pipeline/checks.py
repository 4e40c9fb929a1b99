"""The checks of the audit: each a function of DataFrames that gives the rows breaking one rule.

Facts about tasks need one shuffle, about sub-queues another, about LSNs a third; everything else
is small. What the checks mean stands in `pipeline.audit.CHECKS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.events import by_task
from pipeline.lives import encoded, numbers
from pipeline.rules import COUNT, SEEN, TAKEN, Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Records of one slice when LSNs are checked.
SLICE = 200_000
#: A run of records that follow each other: its first and its last one.
RUN = pa.schema(
    [("node", pa.string())]
    + [(f"{end}_{name}", pa.int64()) for end in ("first", "last") for name in ("lsn", "term", "us")]
)
#: Of more runs than this in a part or in all no more is asked: something is broken.
RUNS_MAX = 100_000


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


def looked_at(happened: DataFrame, rules: Rules, count: int = 0) -> DataFrame:
    """Rows of `pipeline.rules.SEEN`, of events. count: see `by_task`."""
    return by_task(happened, rules, SEEN, count)


def check_tasks(seen: DataFrame) -> DataFrame:
    """Rules about one task at a time. seen: see `looked_at`."""
    broken = seen.where(~F.col("check").isin(TAKEN, COUNT))
    return broken.select(*finding(F.col("check"), F.col("evidence"), F.col("tube"), F.col("task")))


def check_queues(seen: DataFrame) -> DataFrame:
    """Rules about the order of a tube, or of each sub-queue where a tube has them."""
    queue = Window.partitionBy("queue").orderBy("lsn", "task")
    rank, last_rank = F.struct("rank", "task"), F.lag(F.struct("rank", "task")).over(queue)
    before = queue.rowsBetween(Window.unboundedPreceding, -1)
    # A holder lets go by whatever follows its take: both ends are in one row.
    placed = seen.where(F.col("check") == TAKEN).select(
        "*",
        last_rank.alias("last"),
        F.lag("lsn").over(queue).alias("last_take"),
        F.max(F.struct("until", "task")).over(before).alias("others"),
    )
    broken = (F.col("last") > rank) & (F.col("last_take") > F.col("due"))
    other = F.col("others")
    overlap = F.col("sub") & (other.until > F.col("lsn")) & (other.task != F.col("task"))
    name = F.coalesce("utube", F.lit("")).alias("queue")
    # One pass over the takes finds both; a take may break both rules.
    both = F.array(
        F.when(
            broken,
            F.struct(
                F.lit("order_break").alias("check"),
                F.to_json(F.struct(name, "last", "last_take", "due")).alias("evidence"),
            ),
        ),
        F.when(
            overlap,
            F.struct(
                F.lit("utube_overlap").alias("check"),
                F.to_json(F.struct(name, "others")).alias("evidence"),
            ),
        ),
    )
    found = placed.where(broken | overlap).select("tube", "task", "lsn", F.explode(both).alias("f"))
    return found.where("f is not null").select(
        *finding(F.col("f.check"), F.col("f.evidence"), F.col("tube"), F.col("task"))
    )


def in_sequence(log: DataFrame) -> bool:
    """No rule about LSNs, terms and the clock is broken; False: ask `check_lsns`. No shuffle.

    Each part of the log, sorted, is a few runs of records that follow each other; the runs of all
    parts must follow each other, too.
    """
    rows = _recorded(log).mapInArrow(_runs, from_arrow_schema(RUN))
    runs = sorted(tuple(row) for row in rows.collect())
    return len(runs) <= RUNS_MAX and all(_follows(*pair) for pair in pairwise(runs))


def _follows(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Runs of one node: the other begins right behind the one, or goes on with its last record."""
    (node, *_, lsn, term, us), (next_node, next_lsn, next_term, next_us, *_) = one, other
    if node != next_node:
        return True
    in_time = next_term >= term and next_us >= us
    return in_time and (next_lsn == lsn + 1 or (next_lsn == lsn and next_term == term))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where the sorted records of a part do not follow each other, a new run begins."""
    found = list(batches)
    if not found:
        return
    table = pa.Table.from_batches(found)
    node, nodes = encoded(table["node"])
    lsn, term, us = (numbers(table[name]) for name in ("lsn", "term", "us"))
    order = np.lexsort((us, term, lsn, node))
    node, lsn, term, us = node[order], lsn[order], term[order], us[order]
    step = np.diff(lsn)
    apart = (np.diff(node) != 0) | (step > 1) | (np.diff(us) < 0) | (np.diff(term) < 0)
    apart |= (step == 0) & (np.diff(term) != 0)
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))[: RUNS_MAX + 1]
    ends = np.append(starts[1:], len(lsn)) - 1
    names = pa.array(nodes, pa.string()).take(pa.array(node[starts]))
    columns = [names, *(one[where] for where in (starts, ends) for one in (lsn, term, us))]
    yield from pa.table(columns, schema=RUN).to_batches()


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


def check_lineage(log: DataFrame, apart: int = 2**62) -> list[dict[str, Any]]:
    """Parents of terms, from the few records that open one; in Python.

    apart: LSNs of several clusters in one log begin this far from each other.
    """
    rows = log.where("operation = 'term' and not rescue").select("node", "lsn", "detail").collect()
    found: list[dict[str, Any]] = []
    ids: dict[tuple[int, int], str] = {}
    by_node: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for row in rows:
        by_node.setdefault(row["node"], []).append((row["lsn"], json.loads(row["detail"])))
    starts = {lsn - 1 for terms in by_node.values() for lsn, _ in terms}
    before = terms_at(log, starts) if len(ids_of(by_node)) > 1 else {}
    for node, terms in sorted(by_node.items()):
        for lsn, term in sorted(terms, key=lambda one: one[0]):
            reasons = []
            there = before.get((node, lsn - 1))
            if there is not None and term["parent"] != there:
                reasons.append(f"parent is {term['parent']}, the term before is {there}")
            number = (lsn // apart, term["number"])
            if ids.setdefault(number, term["id"]) != term["id"]:
                reasons.append(f"term {term['number']} is also {ids[number]}")
            if term["start_lsn"] != lsn % apart:
                reasons.append(f"says it starts at LSN {term['start_lsn']}")
            if reasons:
                found.append(row_of("forked_lineage", lsn, node, "; ".join(reasons)))
    return found


def ids_of(terms: dict[str, list[tuple[int, dict[str, Any]]]]) -> set[str]:
    return {term["id"] for found in terms.values() for _, term in found}


def terms_at(log: DataFrame, lsns: set[int]) -> dict[tuple[str, int], str]:
    """Id of the term of the records at these LSNs, by node."""
    rows = log.where(F.col("lsn").isin(sorted(lsns)) & ~F.col("rescue"))
    rows = rows.where("operation != 'damaged'").select("node", "lsn", "term_id").distinct()
    return {(row["node"], row["lsn"]): row["term_id"] for row in rows.collect()}


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
