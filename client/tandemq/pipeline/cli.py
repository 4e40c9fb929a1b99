"""`tandemq pipeline ...`: each job as a command; the same file runs under spark-submit.

Here: flags, the session, output, exit codes. Must not be here: what a job does.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from types import ModuleType
from typing import Annotated, Any

import typer

from tandemq.model.errors import StorageError
from tandemq.pipeline.audit_command import audit
from tandemq.pipeline.engines import EngineOption, JobEngine, choice, without_pandas

app = typer.Typer(
    name="pipeline",
    no_args_is_help=True,
    add_completion=False,
    help="Jobs over the log: history, report, audit, compact, load, follow, keep (extra `spark`).",
)
EXIT_VIOLATED, EXIT_USAGE = 1, 2
#: A traceback's line that names the exception: no module, for it says nothing to a user.
RAISED = re.compile(r"(?:[a-z_]\w*\.)*([A-Z]\w*(?:: .*)?)$")
JAVA_NAME = re.compile(r"^(?:[a-z]\w*\.)+\w+: ")
app.command()(audit)


class ChangesTable(StrEnum):
    """What `follow` writes."""

    parquet = "parquet"
    delta = "delta"


Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Data directories and archives.")
]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark master, or sc://host:port; default local[*].")
]
Memory = Annotated[str, typer.Option("--memory", help="Memory of the driver.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(commands: typer.Typer) -> None:
    """As a group of commands of `tandemq`."""
    commands.add_typer(app, name="pipeline", rich_help_panel="Data")


def session(master: str | None, memory: str, lean: bool) -> tuple[Any, bool]:
    """(a Spark session, whether it was there before), or exit code 2 and what is missing."""
    try:
        from tandemq.pipeline.session import build_session, is_there

        there = is_there()
        name = "tandemq pipeline"
        return build_session(master, name, driver_memory=memory, lean=lean), there
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'tandemq[spark]'")
    except RuntimeError as error:
        fail(str(error))
    raise AssertionError


def fail(text: str, code: int = EXIT_USAGE) -> None:
    print(f"error: {text}", file=sys.stderr)
    raise typer.Exit(code)


def plain(error: Exception) -> str:
    """The line that says what is wrong, out of a stack of two languages."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        for name in ("StorageError: ", "ValueError: ", "TargetError: "):
            if name in line:
                return line.split(name, 1)[1]
    raised = _raised(text)
    if raised:
        return raised
    for line in lines:
        # Spark's own account of a task: where it ran, and behind that what became of it.
        _, found, story = line.partition("most recent failure: ")
        if found:
            return JAVA_NAME.sub("", story.partition("): ")[2] or story)
    return lines[0] if lines else type(error).__name__


def _raised(text: str) -> str:
    """What a Python worker's traceback ends with; of exceptions that follow from each other, the
    last one. Empty where there is no traceback."""
    found, inside = "", False
    for line in text.splitlines():
        if "Traceback (most recent call last):" in line:
            inside = True
        elif line.startswith("\tat ") or "Driver stacktrace:" in line:
            break  # of Java; what comes behind says the same again
        elif inside and (match := RAISED.match(line)):
            found, inside = match[1], False
    return found


def run(master: str | None, memory: str, job: Any, lean: bool = True) -> Any:
    """`job(spark)`; its failure is one line and exit code 1. Ends a session it began.

    lean: see `tandemq.pipeline.session.build_session`.
    """
    spark, there = session(master, memory, lean)
    try:
        return job(spark)
    except Exception as error:
        fail(plain(error), EXIT_VIOLATED)
    finally:
        if not there:
            spark.stop()


def run_here(job: Callable[[ModuleType], Any]) -> Any:
    """`job` with the engine of one process; its failure is one line and exit code 1."""
    try:
        without_pandas()
        from tandemq.pipeline import local

        return job(local)
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'tandemq[spark]'")
    except (StorageError, ValueError, OSError) as error:
        fail(plain(error), EXIT_VIOLATED)


def show(values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(values))
        return
    for name, value in values.items():
        print(f"{name.replace('_', ' '):16} {value}")


@app.command()
def history(
    paths: Paths,
    out: Annotated[str, typer.Option("--out", help="Folder of the tables.")],
    engine: EngineOption = JobEngine.auto,
    master: Master = None,
    memory: Memory = "2g",
    as_json: AsJson = False,
) -> None:
    """Write one row per task and per delivery as Parquet; again: only what is new."""
    if choice(engine, paths, master) is JobEngine.local:
        show(run_here(lambda local: local.history(paths, out)), as_json)
        return
    from tandemq.pipeline import history as job

    show(run(master, memory, lambda spark: job.run(spark, paths, out)), as_json)


@app.command()
def compact(
    paths: Paths,
    archive: Annotated[str, typer.Option("--archive", help="Folder of the archive.")],
    include_open: Annotated[
        bool, typer.Option("--include-open", help="The open segment, too, as far as committed.")
    ] = False,
    engine: EngineOption = JobEngine.auto,
    master: Master = None,
    memory: Memory = "2g",
    as_json: AsJson = False,
) -> None:
    """Copy sealed segments to a Parquet archive; again: only what is new."""
    if choice(engine, paths, master) is JobEngine.local:
        show(run_here(lambda local: local.compact(paths, archive, include_open)), as_json)
        return
    from tandemq.pipeline import compact as job

    def work(spark: Any) -> Any:
        return job.run(spark, paths, archive, include_open)

    show(run(master, memory, work), as_json)


@app.command()
def follow(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A data directory.")],
    out: Annotated[str, typer.Option("--out", help="Folder of the batches, or of the table.")],
    table: Annotated[
        ChangesTable, typer.Option("--table", help="delta: a Delta table, on any file system.")
    ] = ChangesTable.parquet,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Of a Delta table: a folder here, if the table is not."),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", min=0, help="Seconds from one batch to the next.")
    ] = 10,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then end.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Only what no rewind can take back.")
    ] = False,
    starting: Annotated[
        str, typer.Option("--from", help="The first time: earliest, latest or an LSN.")
    ] = "earliest",
    records: Annotated[
        int, typer.Option("--records", min=1, help="Records of a batch, at most.")
    ] = 250_000,
    master: Master = None,
    memory: Memory = "2g",
    as_json: AsJson = False,
) -> None:
    """Write what happens to Parquet or Delta as it happens, each record once; again: goes on."""
    from tandemq.pipeline import follow as job

    options = {"startingLsn": starting, "maxRecordsPerBatch": records}
    options |= {"until": "commit"} if committed else {}

    def told(batch: int, rows: int, lsn: int) -> None:
        print(f"batch {batch}: {rows:,} rows, up to LSN {lsn:,}", flush=True)

    def work(spark: Any) -> Any:
        into = job.output(path, out, table.value, checkpoint)
        return job.run(
            spark, path, into, None if once else every, options, None if as_json else told
        )

    show(run(master, memory, work), as_json)


@app.command()
def report(
    paths: Paths,
    out: Annotated[str, typer.Option("--out", help="Folder of the page and the tables.")],
    field: Annotated[
        str | None, typer.Option("--key", help="Field of the payload to group failures by.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option("--history", help="Folder of `history`: brought up to date and used."),
    ] = None,
    engine: EngineOption = JobEngine.auto,
    master: Master = None,
    memory: Memory = "2g",
    as_json: AsJson = False,
) -> None:
    """Write an HTML page with charts, and its tables as Parquet and CSV."""
    if choice(engine, paths, master) is JobEngine.local:
        show(run_here(lambda _: _report(paths, out, field, history)), as_json)
        return
    from tandemq.pipeline import report as job

    show(run(master, memory, lambda spark: job.run(spark, paths, out, field, history)), as_json)


def _report(paths: list[str], out: str, field: str | None, history: str | None) -> dict[str, Any]:
    from tandemq.pipeline import report_local

    return report_local.run(paths, out, field, history)


@app.command()
def keep(
    out: Annotated[str, typer.Argument(metavar="DIR", help="Folder of `history` or `follow`.")],
    days: Annotated[
        int | None, typer.Option("--days", min=0, help="Remove what is older than so many days.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Merge the many small files of `history` or `follow`, and remove what is old."""
    from tandemq.pipeline import keep as job

    try:
        show(job.run(out, days), as_json)
    except ValueError as error:
        fail(str(error))


@app.command()
def load(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Parquet, CSV or JSON lines.")],
    servers: Annotated[str, typer.Option("--servers", help="host:port,host:port")],
    tube: Annotated[str, typer.Option("--tube", help="The tube; it must be there.")],
    kind: Annotated[str | None, typer.Option("--format", help="Spark's name of it.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OPTION=COLUMN", help="key, utube, pri, ttl, ttr, delay."),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", help="Columns of the payload, commas between.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", help="Name of the load; the same one resumes it.")
    ] = None,
    rejects: Annotated[
        str | None, typer.Option("--rejects", help="Folder for refused rows and the reasons.")
    ] = None,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds to wait.")] = 60,
    user: Annotated[str | None, typer.Option("--user")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Put nothing; show some rows.")] = False,
    master: Master = None,
    memory: Memory = "2g",
    as_json: AsJson = False,
) -> None:
    """Put the rows of a file as tasks, each once, however often it is tried."""
    from tandemq.pipeline import load as work

    pairs = [text.partition("=") for text in option or []]
    sink = {"timeout": str(timeout)}
    sink |= {"rejects": rejects} if rejects else {}
    sink |= {"user": user} if user else {}

    def put(spark: Any) -> dict[str, Any]:
        names = [name.strip() for name in payload.split(",")] if payload else None
        rows = work.mapped(
            work.read(spark, source, kind), {name: column for name, _, column in pairs}, names
        )
        name = job or work.job_of(source, tube)
        return work.run(spark, rows, servers, tube, name, sink, dry, told)

    def told(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done} of {total} partitions", end="", file=sys.stderr)

    show(run(master, memory, put, lean=False), as_json)


def main() -> None:
    """For spark-submit and `python -m tandemq.pipeline`."""
    app(prog_name="tandemq pipeline")


if __name__ == "__main__":
    main()
