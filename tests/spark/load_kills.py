"""Kills of the master under slow loads: `python -m tests.spark.load_kills 20`.

Each kill is a pair of its own, and a Spark job whose rows come slower than the node takes them. The
master is ended with kill -9 at a moment chosen by what Spark has handed over: before the first row,
between rows, with frames under way, before the last rows. By turns in batches and streams, by turns
taken over by itself (a witness) or by an operator. Prints what became of each; exit code 1 if a job
failed, or a row is missing or there twice.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.cluster_nodes import Member, Pair, until
from tests.failover.seated_pair import SeatedPair

TUBE = "t"
#: Rows of a job, of one step of its source, of one Arrow batch; partitions.
ROWS, STEP, BATCH, PARTITIONS = 1200, 20, 20, 2
#: So large that Spark hands over what it has after each batch: it gathers 64 KiB.
PAD = "x" * 4000
WAIT_SECONDS = 60.0


class Moment(NamedTuple):
    """When: the step of each partition before which the source stops, None: it never does.

    ahead: rows go on before anybody is promoted; else once the next master serves.
    """

    name: str
    step: int | None
    ahead: bool = True


STEPS = ROWS // PARTITIONS // STEP
MOMENTS = (
    Moment("before the first row", 0),
    Moment("between rows, which go on before the next leads", STEPS // 2),
    Moment("between rows, which go on when the next leads", STEPS // 2, ahead=False),
    Moment("frames under way", None),
    Moment("before the last rows", STEPS - 1),
)


class Outcome(NamedTuple):
    """What one kill came to. error: what the job failed with."""

    error: str
    missing: int
    twice: int
    told: int


def slow(home: Path, step: int | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The source, for mapInArrow: at its step it says so in a file and waits for another one."""
    place, wait = str(home), WAIT_SECONDS

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import time
        from pathlib import Path

        import pyarrow as pa

        number, home = 0, Path(place)
        for batch in batches:
            names = batch.column(0).to_pylist()
            for at in range(0, len(names), STEP):
                if number == step:
                    (home / f"waiting-{names[at]}").touch()
                    end = time.monotonic() + wait
                    while not (home / "go").exists() and time.monotonic() < end:
                        time.sleep(0.02)
                time.sleep(0.01)
                part = names[at : at + STEP]
                columns = {"n": part, "pad": [PAD] * len(part)}
                yield pa.RecordBatch.from_pydict(columns)
                number += 1

    return run


def total(member: Member) -> int:
    client = member.connect()
    try:
        return int(client.call("queue.statistics", TUBE).data[0][b"tasks"][b"total"])
    finally:
        client.close()


def drained(member: Member) -> list[int]:
    """Taken from the node: the number of every row it has."""
    found: list[int] = []
    client = member.connect()
    while rows := client.call(f"queue.tube.{TUBE}:take_many", (10_000,)).data[0]:
        found += [row[2][b"n"] for row in rows]
    client.close()
    return found


class Killer(threading.Thread):
    """Ends node a at the moment; has b promoted where nobody else does."""

    def __init__(self, nodes: Pair, home: Path, moment: Moment) -> None:
        super().__init__(daemon=True)
        self.nodes, self.home, self.moment = nodes, home, moment
        self.over = threading.Event()
        self.killed = False

    def run(self) -> None:
        nodes = self.nodes
        while not self._due():
            if self.over.wait(0.01):
                return
        nodes.a.end(9)
        self.killed = True
        if self.moment.ahead:
            (self.home / "go").touch()
            time.sleep(0.3)
        if not isinstance(nodes, SeatedPair):
            code, answer = nodes.b.role(read_only=False, force=True)
            assert code == 200, answer
        until(lambda: nodes.b.status()["state"] == "RUNNING", WAIT_SECONDS)
        (self.home / "go").touch()

    def _due(self) -> bool:
        """All partitions wait and the node is at rest, or it is in the middle of them."""
        if self.moment.step is None:
            return total(self.nodes.a) > ROWS // 3
        if len(list(self.home.glob("waiting-*"))) < PARTITIONS:
            return False
        seen, again = total(self.nodes.a), -1
        while seen != again:
            time.sleep(0.5)
            seen, again = total(self.nodes.a), seen
        return True


def job(spark: Any, servers: str, home: Path, moment: Moment, stream: bool) -> None:
    """One slow load, to its end. Raises what Spark does."""
    source = slow(home, moment.step)
    options = {"servers": servers, "tube": TUBE, "frameRows": "20", "window": "4", "timeout": "30"}
    options["summary"] = str(home / "summary.json")
    if not stream:
        rows = spark.range(ROWS, numPartitions=PARTITIONS)
        rows = rows.mapInArrow(source, "n bigint, pad string")
        rows.write.format("tandemq").mode("append").options(jobId="k", **options).save()
        return
    (home / "in").mkdir()
    size = ROWS // PARTITIONS
    for part in range(PARTITIONS):
        lines = [json.dumps({"n": n}) for n in range(part * size, (part + 1) * size)]
        (home / "in" / f"{part}.json").write_text("\n".join(lines))
    rows = spark.readStream.schema("n bigint").json(str(home / "in"))
    query = (
        rows.mapInArrow(source, "n bigint, pad string")
        .writeStream.format("tandemq")
        .options(checkpointLocation=str(home / "checkpoint"), **options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(2 * WAIT_SECONDS), "the stream did not come to its end"


def one_kill(spark: Any, home: Path, moment: Moment, stream: bool, seated: bool) -> Outcome:
    """A pair, a load, a kill. Raises AssertionError if the kill came when all was over."""
    flags = ("--set", "replication.ack=pair") if not seated else ()
    nodes = (SeatedPair if seated else Pair)(home, "--in-replicaset", *flags)
    try:
        nodes.start()
        until(lambda: not nodes.a.status()["solo"], WAIT_SECONDS)
        nodes.a.connect().call("queue.create_tube", (TUBE, "fifo"))
        if isinstance(nodes, SeatedPair):
            until(lambda: nodes.paired(nodes.a), WAIT_SECONDS)
        killer, error = Killer(nodes, home, moment), ""
        killer.start()
        try:
            job(spark, f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}", home, moment, stream)
        except Exception as failed:
            error = str(failed)
        killer.over.set()
        killer.join(WAIT_SECONDS)
        assert killer.killed, f"the load was over before the kill ({moment.name})"
        found, told = drained(nodes.b), 0
        with suppress(FileNotFoundError):
            told = json.loads((home / "summary.json").read_text())["stored"]
        return Outcome(error, ROWS - len(set(found)), len(found) - len(set(found)), told)
    finally:
        nodes.stop()


@contextmanager
def small_batches(spark: Any) -> Iterator[None]:
    """Spark hands rows over in the size of a step, not ten thousand at once."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    files = "spark.sql.files.openCostInBytes"
    spark.conf.set(setting, str(BATCH))
    # Each file of a stream a partition of its own.
    spark.conf.set("spark.sql.files.maxPartitionBytes", "8192")
    spark.conf.set(files, "8192")
    try:
        yield
    finally:
        spark.conf.set(setting, before)
        spark.conf.unset(files)
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def main(kills: int) -> int:
    from tandemq.pipeline.cli import plain
    from tandemq.pipeline.session import build_session

    sums = {"jobs failed": 0, "rows missing": 0, "rows twice": 0, "counts told wrong": 0}
    with tempfile.TemporaryDirectory() as folder:
        spark = build_session("local[2]", "kills", Path(folder) / "spark", shuffle_partitions=2)
        with small_batches(spark):
            for number in range(kills):
                moment = MOMENTS[number % len(MOMENTS)]
                turn = number // len(MOMENTS)
                stream, seated = turn % 2 == 1, turn // 2 % 2 == 1
                home = Path(folder) / str(number)
                home.mkdir()
                began = time.monotonic()
                outcome = one_kill(spark, home, moment, stream, seated)
                sums["jobs failed"] += bool(outcome.error)
                sums["rows missing"] += outcome.missing
                sums["rows twice"] += outcome.twice
                sums["counts told wrong"] += outcome.told != ROWS
                kind = f"{'stream' if stream else 'batch'}, {'witness' if seated else 'operator'}"
                took = f"{time.monotonic() - began:.1f} s"
                said = plain(Exception(outcome.error)) if outcome.error else "done"
                print(f"{number + 1:3} {kind:16} {moment.name:48} {took:>7}  {said}", flush=True)
        spark.stop()
    print(f"{kills} kills, {kills * ROWS} rows; " + ", ".join(f"{v} {k}" for k, v in sums.items()))
    return int(any(sums.values()))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
