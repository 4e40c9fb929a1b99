"""The sink against real nodes: batches, streams, refusals, a node killed in mid-job."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tandemq.pipeline import load
from tandemq.spark import options as opt
from tandemq.spark.sink import TUBE_OPTIONS, TandemTube
from tandemq.spark.target import addresses
from tests.spark.spark_node import Node

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node(tmp_path / "node").start()
    yield one
    one.stop()


def put(spark: Any, rows: Any, node: Node, tube: str, **more: str) -> None:
    writer = rows.write.format("tandemq").mode("append")
    for name, value in {"servers": node.address, "tube": tube, **more}.items():
        writer = writer.option(name, value)
    writer.save()


def test_rows_become_tasks_once_and_are_read_back(spark: Any, node: Node, tmp_path: Path) -> None:
    node.create("t", "utubettl")
    source = tmp_path / "rows.jsonl"
    source.write_text(
        "".join(json.dumps({"n": n, "host": f"h{n % 3}", "p": n % 5}) + "\n" for n in range(2500))
    )
    rows = load.mapped(load.read(spark, str(source)), {"utube": "host", "pri": "p"})
    dry = load.run(spark, rows, node.address, "t", "job", dry=True)
    assert (dry["rows"], node.count("t")) == (2500, 0)
    for _ in range(2):
        done = load.run(spark, rows, node.address, "t", load.job_of(str(source), "t"))
        assert (done["stored"], done["refused"]) == (2500, 0)
    tasks = (
        spark.read.format("tandemq").option("servers", node.address).option("tube", "t").load()
    ).collect()
    assert sorted(msgpack.unpackb(task["payload"])["n"] for task in tasks) == list(range(2500))
    assert {(task["utube"], task["priority"] < 5, task["state"]) for task in tasks} == {
        (f"h{n}", True, "r") for n in range(3)
    }


def test_what_is_refused_is_written_down_or_fails_by_name(
    spark: Any, node: Node, tmp_path: Path
) -> None:
    node.create("t", "fifottl")
    rows = spark.createDataFrame(
        [(n, -1.0 if n == 7 else 60.0) for n in range(20)], "n int, ttl double"
    )
    with pytest.raises(Exception, match=r"1 rows were refused, the first: .*ttl"):
        put(spark, rows, node, "t")
    told = r"1 rows were refused, .*; of 20 rows at least \d+ are stored$"
    with pytest.raises(load.LoadError, match=told):
        load.run(spark, load.mapped(rows, {"ttl": "ttl"}), node.address, "t", "job")
    put(spark, rows, node, "t", rejects=str(tmp_path / "rejects"))
    lines = [
        json.loads(line)
        for path in (tmp_path / "rejects").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert [line["payload"] for line in lines] == [{"n": 7}]
    with pytest.raises(Exception, match=r"no writable node among 127\.0\.0\.1:1 for 1 s"):
        put(spark, rows.limit(1), node, "t", servers="127.0.0.1:1", timeout="1")
    with pytest.raises(ValueError, match="has no option 'nope'; its options are servers"):
        opt.parse("tandemq", TUBE_OPTIONS, {"nope": ""})
    with pytest.raises(ValueError, match="needs the option tube"):
        TandemTube({"servers": "a:1"}).schema()
    with pytest.raises(ValueError, match="host:port with commas between, not 'a'"):
        addresses("a")


def test_a_killed_node_gets_every_row_once(spark: Any, node: Node, tmp_path: Path) -> None:
    node.create("t", "fifo")
    total = 60_000
    rows = spark.range(total, numPartitions=4).selectExpr("id as n")
    kills: list[int] = []
    over = threading.Event()

    def kill() -> None:
        for _ in range(2):
            seen = node.count("t")
            while node.count("t") < seen + 2000:
                if over.wait(0.005):
                    return
            kills.append(node.count("t"))
            node.kill()
            node.start()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        put(spark, rows, node, "t", frameRows="50", window="2", jobId="k")
    finally:
        over.set()
        killer.join(60)
    assert len(kills) == 2, "both kills fell into the middle of the job"
    assert max(kills) < total
    payloads = [msgpack.unpackb(value)[b"n"] for value in node.payloads("t")]
    assert len(payloads) == total
    assert len(set(payloads)) == total


def test_a_stream_puts_each_row_once_over_restarts(spark: Any, node: Node, tmp_path: Path) -> None:
    node.create("t", "fifo")
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        query = (
            spark.readStream.schema("n bigint")
            .json(str(source))
            .writeStream.format("tandemq")
            .option("servers", node.address)
            .option("tube", "t")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    for number in range(2):
        lines = [json.dumps({"n": 100 * number + n}) for n in range(100)]
        (source / f"{number}.json").write_text("\n".join(lines))
        run()
    # As after a crash between the put and Spark's own commit: the last batch comes again.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert sorted(msgpack.unpackb(value)[b"n"] for value in node.payloads("t")) == list(range(200))
