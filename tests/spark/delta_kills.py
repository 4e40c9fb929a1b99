"""kill -9 of `tandemq pipeline follow --table delta`, again and again, while the log grows.

    python -m tests.spark.delta_kills [KILLS]

Each kill comes at a moment of its own: while files are written, before the commit, behind it. At
the end each record of the log must be in the table once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.logmaker import LogMaker, fill
from tests.spark.test_follow import command, logged, settings

RECORDS = 150


def commits(out: Path) -> int:
    return len(list(out.glob("_delta_log/*.json")))


def until_killed(words: list[str], out: Path, chance: random.Random) -> None:
    """Let it write a batch or some, then kill it and its JVM within the next ones."""
    before = commits(out)
    with subprocess.Popen(
        words, env=settings(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while commits(out) <= before:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, "no batch in 120 s"
            time.sleep(0.01)
        time.sleep(chance.random() * 1.5)
        os.killpg(process.pid, signal.SIGKILL)


def main(kills: int) -> int:
    chance = random.Random(kills)
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "changes"
        maker = LogMaker(Path(home) / "data", segment_bytes=256 * 1024)
        maker.open_term()
        fill(maker, 4000)
        tube = maker.engine.tubes["orders"]
        path = str(maker.directory)
        words = command(path, "--out", str(out), "--table", "delta", "--records", str(RECORDS))
        for _ in range(kills):
            for value in range(20 * RECORDS):
                maker.put(tube, value)
                maker.turn()
            until_killed([*words, "--every", "0"], out, chance)
        subprocess.run([*words, "--once"], env=settings(), check=True, stdout=subprocess.DEVNULL)
        found = [
            (row["lsn"], row["task_id"], row["operation"])
            for row in DeltaTable(str(out)).to_pyarrow_table().to_pylist()
        ]
        there = Counter(found)
        wanted = Counter(
            (row["lsn"], row["task_id"], row["operation"]) for row in logged(maker.directory)
        )
        missing, twice = sum((wanted - there).values()), sum((there - wanted).values())
        files = len(list(out.glob("*.parquet")))
        used = len(DeltaTable(str(out)).file_uris())
        print(
            f"{kills} kills, {commits(out)} commits, {len(found)} rows; {missing} missing, "
            f"{twice} twice; {files - used} files of broken-off batches are in no commit"
        )
        maker.close()
    return 1 if missing or twice else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
