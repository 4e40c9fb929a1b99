"""`tandemq pipeline audit`: flags, the choice of the engine, what is written where, exit codes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemq.model.errors import StorageError
from tandemq.pipeline.engines import EngineOption, JobEngine, choice

if TYPE_CHECKING:
    from tandemq.pipeline.judge.verdict import Verdict

EXIT_VIOLATED, EXIT_USAGE = 1, 2

Names = Annotated[list[str] | None, typer.Option("--rule", help="Only this rule; may be repeated.")]
Without = Annotated[
    list[str] | None, typer.Option("--without", help="Not this rule; may be repeated.")
]


def audit(  # noqa: PLR0913 - flags are arguments
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="Data directories and archives.")
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option("--clients", help="What clients were told: JSON lines or Parquet."),
    ] = None,
    commit_lsn: Annotated[
        int | None, typer.Option("--commit-lsn", help="Nodes must be equal up to here.")
    ] = None,
    statistics: Annotated[
        Path | None, typer.Option("--statistics", help="What queue.statistics() says, as JSON.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="File to go on from, and to leave where this audit ended."),
    ] = None,
    only: Names = None,
    without: Without = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="File for the offending rows, JSON lines.")
    ] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="The same as Parquet.")] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="File for a CI's test report.")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option("--prometheus", help="File for the textfile collector.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Rows shown of each check.")] = 20,
    engine: EngineOption = JobEngine.auto,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules, and end.")] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master, or sc://host:port; default local[*]."),
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="Memory of the driver.")] = "2g",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that nothing was lost, doubled or out of order.

    Exit code 0: no rule is broken; 1: one is; 2: nothing could be judged.
    """
    from tandemq.pipeline.cli import fail

    if rules:
        _list_rules()
        return
    if not paths:
        fail("name a data directory or an archive")
    assert paths is not None
    chosen = choice(engine, paths, master, alike=False)
    asked_local = (state, statistics, only, without)
    if chosen is JobEngine.spark and any(asked_local):
        fail("--state, --statistics, --rule and --without are for the local engine")
    verdict: Any
    if chosen is JobEngine.local:
        verdict = _local(paths, clients, commit_lsn, statistics, state, only, without)
    else:
        verdict = _spark(paths, clients, commit_lsn, master, memory)
    _write(verdict, rows, parquet, junit, prometheus)
    _print(verdict, limit, as_json)
    if not verdict.ok:
        raise typer.Exit(EXIT_VIOLATED)


def _local(
    paths: list[str],
    clients: str | None,
    commit_lsn: int | None,
    statistics: Path | None,
    state: Path | None,
    only: list[str] | None,
    without: list[str] | None,
) -> Verdict:
    from tandemq.pipeline.cli import fail

    try:
        from tandemq.pipeline.judge.local import AuditRequest, Replay
        from tandemq.pipeline.judge.local import audit as judge
        from tandemq.pipeline.judge.read import NodeLog
        from tandemq.pipeline.judge.state import load, save
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'tandemq[spark]'")
        raise
    try:
        wanted = AuditRequest(
            clients=None if clients is None else told(clients),
            commit_lsn=commit_lsn,
            statistics=None if statistics is None else json.loads(statistics.read_text()),
            only=only or (),
            without=without or (),
        )
        if state is None:
            return judge(paths, wanted)
        cluster = NodeLog(paths[0]).meta.cluster.hex()
        kept = load(state, cluster) if state.exists() else Replay()
        verdict = judge(paths, wanted, kept)
        save(kept, state, cluster)
        return verdict
    except (StorageError, ValueError, OSError) as error:
        fail(str(error))
        raise


def told(path: str) -> Iterator[dict[str, Any]]:
    """Rows of what clients were told, of JSON lines or Parquet. Raises `OSError`, `ValueError`."""
    if path.endswith(".parquet") or Path(path).is_dir():
        import pyarrow.parquet as pq

        yield from pq.read_table(path).to_pylist()
        return
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _spark(
    paths: list[str], clients: str | None, commit_lsn: int | None, master: str | None, memory: str
) -> Any:
    from tandemq.pipeline import audit as job
    from tandemq.pipeline.cli import run
    from tandemq.spark.logs import ARCHIVE_MARK

    def judge(spark: Any) -> Any:
        rows = None
        if clients is not None:
            kind = "parquet" if clients.endswith(".parquet") or Path(clients).is_dir() else "json"
            rows = spark.read.format(kind).load(clients)
        return job.run(spark, paths, rows, commit_lsn)

    # Logs are compared with each other, and with what clients say, row by row in the JVM.
    alone = sum(not (Path(path) / ARCHIVE_MARK).exists() for path in paths) <= 1
    return run(master, memory, judge, lean=alone and clients is None)


def _list_rules() -> None:
    from tandemq.pipeline.judge.rules.catalogue import ALL

    for rule in ALL:
        print(f"{rule.name:20} {rule.severity:8} {rule.summary()}")


def _write(
    verdict: Any,
    rows: Path | None,
    parquet: Path | None,
    junit: Path | None,
    prometheus: Path | None,
) -> None:
    from tandemq.pipeline.judge import outputs

    if rows is not None:
        outputs.write_lines(verdict, rows)
    if parquet is not None:
        outputs.write_parquet(verdict, parquet)
    if junit is not None:
        outputs.write_junit(verdict, junit)
    if prometheus is not None:
        outputs.write_prometheus(verdict, prometheus, time.time())


def _print(verdict: Any, limit: int, as_json: bool) -> None:
    from tandemq.pipeline.cli import show
    from tandemq.pipeline.judge.outputs import line_of

    if as_json:
        shown = {"ok": verdict.ok, "engine": verdict.engine, "rules": len(verdict.judged)}
        shown |= {"counts": verdict.counts, "broken": verdict.broken}
        shown |= {"warnings": verdict.warnings, "rows": verdict.rows}
        print(json.dumps(shown, default=str))
        return
    show(verdict.counts, False)
    seen: dict[str, int] = {}
    for row in verdict.rows:
        seen[row["check"]] = seen.get(row["check"], 0) + 1
        if seen[row["check"]] <= limit:
            print(line_of(row))
    print(verdict.text())
