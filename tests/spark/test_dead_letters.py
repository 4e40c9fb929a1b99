"""The SQL of docs/spark.md over dead letters, statement by statement, against a real node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.spark import tasks
from tests.spark.spark_node import Node

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.integration,
    pytest.mark.timeout(180),
]
PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node(tmp_path / "node").start()
    yield one
    one.stop()


def section() -> str:
    return PAGE.partition("## Dead letters as a table")[2].partition("\n## ")[0]


def statements(address: str) -> list[str]:
    (block,) = re.findall(r"```sql\n(.*?)```", section(), re.DOTALL)
    return [one for one in block.replace("a:3301,b:3301", address).split(";") if one.strip()]


def failing(node: Node) -> None:
    """Four tasks of `mail`, of which three become dead letters and one goes on."""
    node.create("dead", "utubettl")
    node.call("queue.create_tube", "mail", "utubettl", {"max_attempts": 1, "dead_letter": "dead"})
    for number, why in enumerate(["timeout: 5 s", "no such host", "timeout: 9 s", None]):
        payload = {"to": f"A{number}@B", "size": number}
        node.call("queue.tube.mail:put", payload, {"utube": f"u{number}"})
        if why is not None:
            node.failed("mail", why)


def test_the_page_names_all_columns() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", section(), re.MULTILINE)
    assert rows == list(tasks.COLUMNS)
    with pytest.raises(ValueError, match="a tube has no column 'key'; its columns are tube, "):
        tasks.check_columns(["payload", "key"])


def test_dead_letters_go_out_as_a_table_and_come_back_by_sql(spark: Any, node: Node) -> None:
    failing(node)
    dead, keep, look, again, insert, mended, insert_mended = statements(node.address)
    for one in (dead, keep):
        spark.sql(one)
    try:
        found = sorted(tuple(row) for row in spark.sql(look).drop("min(failed)").collect())
        assert found == [
            ("mail", "no such host", 1),
            ("mail", "timeout: 5 s", 1),
            ("mail", "timeout: 9 s", 1),
        ]
        letters = spark.sql("SELECT * FROM letters ORDER BY task_id").collect()
        assert [(row["from_id"], row["from_attempts"], row["utube"]) for row in letters] == [
            (0, 1, "u0"), (1, 1, "u1"), (2, 1, "u2"),
        ]  # fmt: skip
        assert letters[1]["payload_json"] == '{"to": "A1@B", "size": 1}'
        assert spark.sql("SELECT max(failed) <= now() AS past FROM letters").first()["past"]
        for one in (again, mended):
            spark.sql(one)
        for one in (insert, insert_mended, insert):
            spark.sql(one)
        rows = spark.read.format("tandemq").options(servers=node.address, tube="mail").load()
        back = sorted((row["payload_json"], row["utube"]) for row in rows.collect())
        assert back == [
            ('{"to": "A0@B", "size": 0}', "u0"),
            ('{"to": "A2@B", "size": 2}', "u2"),
            ('{"to": "A3@B", "size": 3}', "u3"),
            ('{"to": "a1@b", "size": 1}', "u1"),
        ]
        assert node.count("dead") == 3
    finally:
        spark.sql("DROP TABLE letters")
        for view in ("dead", "again", "mended"):
            spark.catalog.dropTempView(view)
