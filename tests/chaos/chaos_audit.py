"""The pipeline's audit as judge of the stories' logs: all of them at once, in one Spark session.

Every story is a cluster of its own. Its tubes get its number in front and its LSNs go far away
from the others', so that the checks, which know one cluster, see each alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tandemq.pipeline import audit, checks
from tandemq.pipeline.events import read_log, survey_frame
from tandemq.pipeline.notes import Notes
from tandemq.pipeline.rules import SEEN, Rules
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import meta_of, node_name

APART = 10**9


def story_of(directories: Iterable[tuple[int, Path]]) -> dict[str, int]:
    """Number of the story by id of the node."""
    found: dict[str, int] = {}
    for number, path in directories:
        disk = ArrowDisk(str(path))
        found[node_name(meta_of(disk, disk.list()).node)] = number
    return found


def findings(spark: Any, stories: dict[str, list[Path]]) -> tuple[list[str], int]:
    """(what breaks a rule, a line each; records looked at)."""
    names = list(stories)
    directories = [(at, path) for at, name in enumerate(names) for path in stories[name]]
    numbers = story_of(directories)
    paths = [str(path) for _, path in directories]
    log = read_log(spark, paths, audit.columns(), rescue="true", mode="PERMISSIVE")
    number = F.create_map(*(F.lit(one) for pair in numbers.items() for one in pair))[F.col("node")]
    log = (
        log.withColumn("story", number.cast("bigint"))
        .withColumn("lsn", F.col("lsn") + F.col("story") * APART)
        .withColumn("tube", F.concat(F.col("story").cast("string"), F.lit("/"), F.col("tube")))
        # Hundreds of small segments: as many tasks for each job would take most of the time.
        .coalesce(4)
        .persist()
    )
    with survey_frame(log) as seen:
        best: dict[int, Notes] = {}
        for one in sorted(seen.logs, key=lambda one: (one.last, -one.first)):
            best[numbers[one.node]] = one
        alone = [one.node for one in best.values()]
        # Of a log that begins with a snapshot, tasks may be older than the log.
        begun = {f"{at}" for at, one in best.items() if one.first == at * APART + 1}
        swept, types = {}, {}
        for one in best.values():
            swept |= one.cleared
            types |= audit.types_of(one)
        rules = Rules(swept, types, lambda tube: tube.partition("/")[0] in begun, seen.buckets)
        looked_at = seen.by_task(rules, SEEN, alone).persist()
        rows_of_all = sum(one.rows for one in seen.logs)
        tables = [
            checks.check_tasks(looked_at),
            checks.check_queues(looked_at, seen.buckets, rows_of_all),
            checks.check_lsns(log),
            checks.check_nodes(log, None),
            checks.check_rescue(log),
            log.where("operation = 'damaged'").select(
                *checks.finding("damaged", F.col("detail"), node=F.col("node"))
            ),
        ]
        rows = [row.asDict() for row in reduce(DataFrame.unionByName, tables).collect()]
        rows += checks.check_lineage(seen.logs, APART)
        looked_at.unpersist()
    found = [said(names[(row["lsn"] or 0) // APART], row) for row in rows]
    records = sum(one.last - one.first + 1 for one in best.values())
    log.unpersist()
    return found, records


def said(story: str, row: dict[str, Any]) -> str:
    lsn = None if row["lsn"] is None else row["lsn"] % APART
    place = f"tube {row['tube']} task {row['task']} LSN {lsn} node {row['node']}"
    return f"{story}: {row['check']}: {place}: {row['evidence']}"
