"""The questions of docs/cookbook.md have the answers that stand below them.

WRITE_EXAMPLES=1 writes the answers of this run into the page instead of comparing them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import functions as F

from tandemq.pipeline import history, local
from tandemq.pipeline.events import read_log
from tests.spark import cookbook_log

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cookbook.md"
VIEWS = re.compile(r'^```sql title="views.sql"\n(.+?)^```$', re.MULTILINE | re.DOTALL)
#: A question's SQL, and the answer behind it.
QUESTION = re.compile(r"(^```sql\n(.+?)^```$\n)((?:^\|[^\n]*\n)*)", re.MULTILINE | re.DOTALL)
#: The views as Spark has them.
SPARK_TERMS = """
SELECT term, lsn, time, get_json_object(detail, '$.node') AS node
FROM records WHERE operation = 'term' AND tube IS NULL
"""
Ask = Callable[[str], tuple[Sequence[str], Iterable[Sequence[Any]]]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the page's first commands make."""
    made = tmp_path_factory.mktemp("cookbook")
    cookbook_log.write(made / "data")
    local.history([str(made / "data")], str(made / "history"))
    local.compact([str(made / "data")], str(made / "archive"), include_open=True)
    return made


def answer(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as a table of Markdown."""
    lines = [[*names], ["---"] * len(names), *([text(one) for one in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text(value: Any) -> str:
    """A second is fine enough."""
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def answered(page: str, ask: Ask) -> str:
    """The page with the answers that somebody gives to its questions."""
    return QUESTION.sub(lambda found: found[1] + answer(*ask(found[2])), page)


def test_the_answers_are_those_of_the_page(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text(encoding="utf-8")
    views = VIEWS.search(page)
    assert views is not None
    monkeypatch.chdir(home)
    with duckdb.connect() as duck:
        duck.execute(views[1])
        names = {row[0] for row in duck.execute("SHOW TABLES").fetchall()}
        assert {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)} == names

        def ask(query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            found = duck.execute(query)
            return [column[0] for column in found.description or ()], found.fetchall()

        made = answered(page, ask)
    if os.environ.get("WRITE_EXAMPLES"):
        PAGE.write_text(made, encoding="utf-8")
        page = made
    assert made == page
    assert len(QUESTION.findall(page)) == 10
    assert all(found[2] for found in QUESTION.findall(page))


def test_spark_gives_the_same_answers(spark: Any, home: Path) -> None:
    tasks, deliveries = history.read(spark, str(home / "history"))
    log = read_log(spark, [str(home / "data")], ("*",)).selectExpr("*", "unix_micros(time) AS us")
    # As they are in UTC, whatever time this machine has.
    at = F.expr("CAST(timestamp_micros(put_us) AS TIMESTAMP_NTZ)")
    tables = {
        "tasks": tasks.withColumn("put_at", at),
        "deliveries": deliveries,
        "records": log.withColumn("time", F.expr("CAST(time AS TIMESTAMP_NTZ)")).cache(),
    }
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    spark.sql(SPARK_TERMS).createOrReplaceTempView("terms")

    def ask(query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = spark.sql(query)
        return found.columns, [tuple(row) for row in found.collect()]

    page = PAGE.read_text(encoding="utf-8")
    try:
        assert answered(page, ask) == page
    finally:
        for name in (*tables, "terms"):
            spark.catalog.dropTempView(name)
        tables["records"].unpersist()
