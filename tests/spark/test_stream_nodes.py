"""One query over the life of a real node: rolls, rewind, switch-overs, restarts, a trim."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tandemq.pipeline import compact
from tests.cluster.cluster_nodes import Member, pair, until

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.integration,
    pytest.mark.timeout(240),
]
COLUMNS = ("lsn", "term", "term_id", "tube", "task_id", "operation", "state_to", "payload")


class Stream:
    """A query from a node's log into Parquet; each run ends when it has read what is there."""

    def __init__(self, spark: Any, log: Path, home: Path, start: str = "earliest") -> None:
        self.spark, self.log, self.start = spark, log, start
        self.out, self.checkpoint = home / "out", home / "checkpoint"

    def query(self, **trigger: Any) -> Any:
        return (
            self.spark.readStream.format("tandemq_log")
            .option("columns", ",".join((*COLUMNS, "rescue", "retracted")))
            .option("maxRecordsPerBatch", "400")
            .option("startingLsn", self.start)
            .load(str(self.log))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start(str(self.out))
        )

    def run(self) -> None:
        assert self.query(availableNow=True).awaitTermination(120)

    def forget_last_commit(self) -> None:
        """As after a kill between writing a batch and noting that it is done."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    def rows(self) -> tuple[Counter[Any], Counter[Any]]:
        """(emitted, taken back)."""
        emitted: Counter[Any] = Counter()
        back: Counter[Any] = Counter()
        for row in self.spark.read.parquet(str(self.out)).collect():
            (back if row["retracted"] else emitted)[keyed(row)] += 1
        return emitted, back


def keyed(row: Any) -> tuple[Any, ...]:
    values = [row[name] for name in COLUMNS]
    return tuple(bytes(one) if isinstance(one, bytearray) else one for one in values)


def batch(spark: Any, *paths: Path, **options: str) -> Counter[Any]:
    reader = spark.read.format("tandemq_log").option("path", ",".join(map(str, paths)))
    reader = reader.option("columns", "*")
    return Counter(keyed(row) for row in reader.options(**options).load().collect())


def work(member: Member, first: int, count: int) -> None:
    """Puts, ten at a time; of each ten, one is taken and acked."""
    client = member.connect()
    for number in range(first, first + count, 10):
        rows = [[{"n": n, "body": "x" * 300}, {}] for n in range(number, number + 10)]
        client.call("queue.tube.t:put_many", (rows,))
        task = client.call("queue.tube.t:take", (0,)).data[0][0]
        client.call("queue.tube.t:ack", (task,))


def test_a_query_over_rolls_a_rewind_restarts_and_a_trim(spark: Any, tmp_path: Path) -> None:
    flags = ("--set", "wal.segment_bytes=64KiB", "--set", "snapshot.keep=1", "--in-replicaset")
    with pair(tmp_path, *flags) as nodes:
        data = nodes.a.data
        nodes.a.connect().call("queue.create_tube", ("t", "fifo"))
        late = Stream(spark, data, tmp_path / "late")
        late.run()
        stream = Stream(spark, data, tmp_path / "stream")

        # The node writes, rolls its log and the query runs behind it.
        tail = stream.query(processingTime="0 seconds")
        work(nodes.a, 0, 600)
        tail.processAllAvailable()
        tail.stop()
        assert len(list(data.glob("*.wal"))) > 2
        assert stream.rows() == (batch(spark, data), Counter())

        # A suffix that only node a has is emitted, then cut off: node b won.
        nodes.b.end()
        client = nodes.a.connect()
        for number in range(40):
            client.call("queue.tube.t:put", ({"n": 10_000 + number, "body": "only here"},))
        stream.run()
        nodes.a.end(9)
        nodes.b.start("--read-only")
        assert nodes.b.role(read_only=False, force=True)[0] == 200
        work(nodes.b, 20_000, 30)
        nodes.a.start("--read-only")
        until(lambda: nodes.a.caught_up_with(nodes.b), 60)
        stream.run()
        emitted, back = stream.rows()
        cut = batch(spark, data, rescue="true") - batch(spark, data)
        assert back == cut
        assert len([key for key in back if key[5] == "put"]) == 40
        assert emitted - back == batch(spark, data)

        # A snapshot trims the log. Who has read it goes on, though its last batch comes again; who
        # has not is told what is gone.
        nodes.b.switch_to(nodes.a)
        work(nodes.a, 30_000, 10)
        until(lambda: nodes.b.caught_up_with(nodes.a), 60)
        archive = tmp_path / "archive"
        compact.run(spark, [str(data)], str(archive))
        before = {path.name for path in data.glob("*.wal")}
        # The second of two: the log goes back to the older one.
        assert nodes.a.ask("/v1/snapshot", {})[0] == 200
        work(nodes.a, 35_000, 1)
        assert nodes.a.ask("/v1/snapshot", {})[0] == 200
        assert {path.name for path in data.glob("*.wal")} < before
        work(nodes.a, 40_000, 10)
        stream.forget_last_commit()
        stream.run()
        emitted, back = stream.rows()
        assert (max(emitted.values()), back) == (1, cut), "nothing stands there twice"
        assert emitted - back == batch(spark, archive, data)
        first = min(int(path.stem) for path in data.glob("*.wal"))
        last = max(key[0] for key in late.rows()[0])
        with pytest.raises(
            Exception, match=rf"LSN {last + 1} up to {first - 1} were trimmed before the stream"
        ):
            late.run()
