"""Tables of a catalog over the log and over tubes, in a session that registered nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as t

from benchmarks.logmaker import LogMaker, fill
from tandemq.spark import tables
from tests.spark.spark_node import Node

pytestmark = pytest.mark.timeout(180)
PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


@pytest.fixture
def sql(spark: Any) -> Iterator[Callable[[str], Any]]:
    """Statements of a session of its own; its tables go when the test ends."""
    fresh = spark.newSession()
    yield fresh.sql
    for name in ("log", "tasks", "mail", "bare"):
        fresh.sql(f"DROP TABLE IF EXISTS {name}")


def documented() -> list[str]:
    section = PAGE.partition("## As a table of a catalog")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return [one for one in block.split(";") if one.strip()]


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_s_tables_keep_what_they_were_made_with(
    sql: Callable[[str], Any], maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 60)
    maker.close()
    node = Node(tmp_path / "node").start()
    try:
        node.create("mail", "fifo")
        places = {"/var/lib/tandem": str(maker.directory), "a:3301,b:3301": node.address}
        found = []
        for one in documented():
            for there, here in places.items():
                one = one.replace(there, here)
            found.append(sql(one).collect())
        assert {"put", "take", "ack"} <= {row[0] for row in found[1]}
        (narrowed,) = found[2]
        assert 0 < narrowed[0] < sum(row[1] for row in found[1])
        rows = sql("SELECT state, payload_json FROM tasks").collect()
        assert [tuple(row) for row in rows] == [("r", '{"recipient": "someone", "size": 17}')]
        # A key once, also when the INSERT is run again; other columns of a row are the payload.
        sql(documented()[-1])
        assert node.count("mail") == 1
        log = sql("SELECT a.lsn FROM log a JOIN log b USING (lsn) WHERE a.lsn <= 3").collect()
        assert {row["lsn"] for row in log} == {1, 2, 3}
        sql("DROP TABLE log")
        assert list(maker.directory.iterdir())
        with pytest.raises(Exception, match="without the option columns is read, never written to"):
            sql("INSERT INTO tasks SELECT * FROM tasks")
        with pytest.raises(Exception, match="with the option columns is written to, never read"):
            sql("SELECT * FROM mail").collect()
    finally:
        node.stop()


def test_columns_of_its_own_cost_a_table_its_options(
    sql: Callable[[str], Any], tmp_path: Path
) -> None:
    sql(f"CREATE TABLE bare (lsn BIGINT) USING tandemq_log OPTIONS (path '{tmp_path}')")
    with pytest.raises(Exception, match="keeps no options: use the option columns"):
        sql("SELECT * FROM bare").collect()
    with pytest.raises(Exception, match="tandemq_log has no option 'lines'"):
        sql(f"CREATE TABLE other USING tandemq_log OPTIONS (path '{tmp_path}', lines '1')")


def test_a_query_that_says_where_it_goes_asks_no_table() -> None:
    made = {"owner": "me", "provider": "tandemq", "option.tube": "t", "tube": "t"}
    made |= {"option.servers": "a:1", "servers": "a:1"}
    schema = tables.keeping("n BIGINT, at TIMESTAMP", made)
    assert [field.dataType for field in schema] == [t.LongType(), t.TimestampType()]
    assert tables.kept(schema) == {"tube": "t", "servers": "a:1"}
    known = tuple(tables.opt.Option(name, None, "") for name in ("servers", "tube", "user"))
    for given, values in (
        ({}, {"servers": "a:1", "tube": "t", "user": None}),
        ({"user": "u"}, {"servers": "a:1", "tube": "t", "user": "u"}),
        ({"Servers": "b:1"}, {"servers": "b:1", "tube": None, "user": None}),
    ):
        assert tables.values_of("tandemq", known, given, schema, ("servers",)) == values
    with pytest.raises(ValueError, match=r"one of STRING, .* not 'n STRUCT<a: INT>'"):
        tables.columns("n STRUCT<a: INT>")
