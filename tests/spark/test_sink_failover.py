"""The sink while its master is killed: taken over by the second node, or gone for too long."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tandemq.spark import target
from tests.cluster.cluster_nodes import Pair, pair, until
from tests.spark import load_kills
from tests.spark.load_kills import TUBE, drained, total
from tests.spark.spark_node import Node

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.integration,
    pytest.mark.timeout(180),
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Pair]:
    """Two nodes; a put counts when both have it, so that a kill takes back nothing answered."""
    with pair(tmp_path, "--set", "replication.ack=pair", "--in-replicaset") as both:
        until(lambda: not both.a.status()["solo"], 30)
        both.a.connect().call("queue.create_tube", (TUBE, "fifo"))
        yield both


def servers(nodes: Pair) -> str:
    return f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"


def put(rows: Any, to: str, **more: str) -> None:
    writer = rows.write.format("tandemq").mode("append")
    options = {"servers": to, "tube": TUBE, "frameRows": "50", "window": "4", **more}
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def take_over(nodes: Pair, after: Callable[[], bool], over: threading.Event) -> list[int]:
    """kill -9 of node a once `after()`; node b is promoted. Tasks there were then, or nothing."""
    while not after():
        if over.wait(0.005):
            return []
    seen = total(nodes.a)
    nodes.a.end(9)
    code, answer = nodes.b.role(read_only=False, force=True)
    assert code == 200, answer
    return [seen]


def test_the_second_node_gets_what_the_killed_one_did_not(
    spark: Any, nodes: Pair, tmp_path: Path
) -> None:
    count, summary = 24_000, tmp_path / "summary.json"
    rows = spark.range(count, numPartitions=4).selectExpr("id as n")
    over, seen = threading.Event(), []
    killer = threading.Thread(
        target=lambda: seen.extend(take_over(nodes, lambda: total(nodes.a) > 3000, over))
    )
    killer.start()
    try:
        put(rows, servers(nodes), jobId="k", summary=str(summary))
    finally:
        over.set()
        killer.join(60)
    assert seen, "the kill fell into the middle of the job"
    assert 3000 < seen[0] < count
    told = json.loads(summary.read_text())
    assert (told["outcome"], told["stored"], told["refused"]) == ("done", count, 0)
    assert told["resent"] > 0, "what the killed node had not answered went to the other one"
    assert total(nodes.b) == count
    # The same job once more, as after a lost driver: the keys came over with the log.
    put(rows, servers(nodes), jobId="k")
    assert sorted(drained(nodes.b)) == list(range(count))


def test_a_stream_over_a_kill_and_a_restart_from_its_checkpoint(
    spark: Any, nodes: Pair, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        query = (
            spark.readStream.schema("n bigint")
            .json(str(source))
            .writeStream.format("tandemq")
            .option("servers", servers(nodes))
            .option("tube", TUBE)
            .option("frameRows", "20")
            .option("window", "2")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def feed(number: int, size: int) -> None:
        lines = [json.dumps({"n": 10_000 * number + n}) for n in range(size)]
        (source / f"{number}.json").write_text("\n".join(lines))

    feed(0, 100)
    run()
    feed(1, 8000)
    over, seen = threading.Event(), []
    killer = threading.Thread(
        target=lambda: seen.extend(take_over(nodes, lambda: total(nodes.a) > 1000, over))
    )
    killer.start()
    try:
        run()
    finally:
        over.set()
        killer.join(60)
    assert seen, "the kill fell into the middle of a batch"
    assert seen[0] < 8100
    # As after a crash between the put and Spark's own commit: the last batch comes again.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert sorted(drained(nodes.b)) == [*range(100), *range(10_000, 18_000)]


def test_a_master_gone_for_too_long_fails_the_task_and_nothing_is_forgotten(
    spark: Any, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node").start()
    try:
        node.create(TUBE, "fifo")
        count, summary = 12_000, tmp_path / "summary.json"
        rows = spark.range(count, numPartitions=1).selectExpr("id as n")
        kills: list[int] = []
        over = threading.Event()

        def kill() -> None:
            while (seen := node.count(TUBE)) < 1500:
                if over.wait(0.005):
                    return
            kills.append(seen)
            node.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        says = (
            r"no writable node among 127\.0\.0\.1:\d+ for 1 s \(.*\); of this partition "
            r"(\d+) rows are stored and (\d+) were sent without an answer: the same jobId"
        )
        try:
            with pytest.raises(Exception, match=says) as failed:
                put(rows, node.address, jobId="k", timeout="1", summary=str(summary))
        finally:
            over.set()
            killer.join(60)
        assert kills, "the kill fell into the middle of the job"
        assert json.loads(summary.read_text())["outcome"] == "aborted"
        found = re.search(says, str(failed.value))
        assert found is not None
        stored, unanswered = int(found[1]), int(found[2])
        assert unanswered <= 4 * 50
        node.start()
        assert stored <= node.count(TUBE) <= stored + unanswered
        put(rows, node.address, jobId="k", summary=str(summary))
        told = json.loads(summary.read_text())
        assert (told["outcome"], told["stored"]) == ("done", count)
        payloads = [msgpack.unpackb(value)[b"n"] for value in node.payloads(TUBE)]
        assert sorted(payloads) == list(range(count))
    finally:
        node.stop()


def test_a_master_that_goes_silent_is_left_for_the_next(
    nodes: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Spark: a stopped process keeps its connections, as a machine without power does."""
    monkeypatch.setattr(target, "PROBE_SECONDS", 0.5)

    def frames() -> Iterator[target.Frame]:
        for number in range(40):
            if number == 20:
                assert nodes.a.process is not None
                nodes.a.process.send_signal(signal.SIGSTOP)
                assert nodes.b.role(read_only=False, force=True)[0] == 200
            first = number * 10
            yield [[{"n": n}, {"key": f"k-{n}"}] for n in range(first, first + 10)]

    to = target.Target(target.addresses(servers(nodes)), TUBE, timeout_s=30, window=4)
    done = asyncio.run(to.put_all(frames(), lambda _: None))
    assert (done.stored, done.refused) == (400, [])
    assert done.resent >= 10
    assert sorted(drained(nodes.b)) == list(range(400))


def test_rows_leave_as_they_come_and_a_kill_between_them_is_no_failure(nodes: Pair) -> None:
    """No Spark: whoever makes the rows waits in the middle of it, longer than the node needs."""

    def frames() -> Iterator[target.Frame]:
        for number in range(6):
            if number == 3:
                until(lambda: total(nodes.a) == 30, 60)
                nodes.a.end(9)
                assert nodes.b.role(read_only=False, force=True)[0] == 200
            yield [[{"n": n}, {"key": f"k-{n}"}] for n in range(number * 10, number * 10 + 10)]

    to = target.Target(target.addresses(servers(nodes)), TUBE, timeout_s=30, window=8)
    done = asyncio.run(to.put_all(frames(), lambda _: None))
    assert (done.stored, done.refused) == (60, [])
    assert sorted(drained(nodes.b)) == list(range(60))


def test_a_slow_stream_outlives_the_master_that_dies_between_two_rows(
    spark: Any, tmp_path: Path
) -> None:
    """One of `python -m tests.spark.load_kills`: rows go on before anybody leads."""
    with load_kills.small_batches(spark):
        outcome = load_kills.one_kill(
            spark, tmp_path, load_kills.MOMENTS[1], stream=True, seated=False
        )
    assert outcome == load_kills.Outcome("", 0, 0, load_kills.ROWS)
