"""The jobs of one machine: each command with its two engines, from its start to its end.

Seconds of the processor are those of a command and all processes below it: they hold, about, also
where a machine is busy with other work. DuckDB's plain query over the archive stands beside them.
Here: this part of `python -m benchmarks pipeline`. Must not be here: options, tables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.logmaker import LogMaker
from benchmarks.pipeline import Bench
from benchmarks.pipeline_engines import WAITS
from benchmarks.table import Row

FEW = 5
TICK = os.sysconf("SC_CLK_TCK")
#: A look costs a busy machine more than a moment's exactness is worth.
POLL_SECONDS = 0.25
DUCK = """
import sys, duckdb
duck = duckdb.connect()
duck.execute("set threads = 2")
duck.execute(f"create view log as select * from read_parquet('{sys.argv[1]}/**/*.parquet', "
             "hive_partitioning = false)")
print(len(duck.execute(sys.argv[2]).fetchall()))
"""


class Spent(NamedTuple):
    """Of a command and all below it. mib: of the largest of these processes."""

    wall: float
    cpu: float
    mib: int

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, CPU {self.cpu:.2f} s, {self.mib} MiB"


def spent(words: Sequence[str]) -> Spent:
    """Run a command of Python. Raises `RuntimeError` with what it says where it fails."""
    began = time.perf_counter()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    seconds: dict[int, float] = {}
    peak, over = 0, False
    while not over:
        over = _ended(child.pid)
        wall = time.perf_counter() - began
        for pid in _below(child.pid):
            if (found := _of(pid)) is not None:
                seconds[pid], peak = found[0], max(peak, found[1])
        time.sleep(POLL_SECONDS)
    _, said = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{' '.join(words)}: {said.decode()[-600:]}")
    return Spent(wall, sum(seconds.values()), peak)


def _ended(pid: int) -> bool:
    """Without taking its exit code: a zombie still tells what it used."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _below(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _of(pid: int) -> tuple[float, int] | None:
    """(seconds of the processor, MiB at most) so far; children are counted by themselves."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return (int(words[11]) + int(words[12])) / TICK, int(peak[0]) >> 10 if peak else 0


def few(bench: Bench) -> str:
    """A log of FEW records."""
    home = bench.logs / f"log-{FEW}"
    if not home.exists():
        maker = LogMaker(home)
        maker.open_term()
        tube = maker.tube("q")
        while maker.log.last_lsn < FEW - 1:
            maker.put(tube, maker.log.last_lsn)
            maker.turn()
        maker.open_term(2)
        maker.close()
    return str(home)


def alone(bench: Bench) -> None:
    """Both engines, each job, a handful of records and all of them; then DuckDB."""
    for count in (FEW, bench.operations):
        log = few(bench) if count == FEW else bench.log(count)
        for job, out in (("history", "--out"), ("report", "--out"), ("compact", "--archive")):
            beside: dict[str, Any] = {}
            for engine in ("local", "spark"):
                into = bench.home / f"{job}-{engine}"
                words = ["-m", "tandemq.pipeline", job, log, out, str(into), "--engine", engine]
                runs = []
                for _ in range(bench.runs):
                    shutil.rmtree(into, ignore_errors=True)
                    runs.append(spent(words))
                beside[engine] = sorted(runs, key=lambda one: one.cpu)[len(runs) // 2]
                bench.say(f"{job} of {count:,}, {engine}: {beside[engine]}")
            bench.samples[f"{job}, {count}"] = beside
            what = f"{count:,} {'records' if count == FEW else 'operations'}"
            spark = f"Spark {beside['spark']}"
            bench.rows.append(Row(what, job, str(beside["local"]), yardstick=spark))
    bench.say("DuckDB")
    took = spent(["-c", DUCK, str(bench.home / "compact-local"), WAITS])
    name = "waiting by task, then by tube, from the archive"
    bench.rows.append(Row(f"{bench.operations:,} operations", name, f"DuckDB {took}"))
