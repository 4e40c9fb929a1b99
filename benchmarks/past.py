"""`python -m benchmarks.past [RECORDS]`: how long `tandemq history` takes in a large log.

Three tubes, most tasks acked at once, frames of some 128 records; then each way to ask, as a
process of its own and three times, start of Python included. The files are in the page cache, as
are those of a log that was just written or is being served.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.logmaker import LogMaker, fill

TIMES = 3


def asked(directory: Path, *words: str) -> tuple[list[float], float, int]:
    """Seconds of each turn, CPU seconds of one, and lines of the last."""
    command = [str(Path(sys.executable).with_name("tandemq")), "history", "--json"]
    seconds, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(TIMES):
        began = time.perf_counter()
        done = subprocess.run(
            [*command, str(directory), *words], capture_output=True, text=True, check=False
        )
        seconds.append(time.perf_counter() - began)
        assert done.returncode in (0, 4), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu / TIMES, len(done.stdout.splitlines())


def main(argv: list[str]) -> int:
    """Builds the log and prints a line for each question."""
    records = int(argv[0]) if argv else 5_000_000
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "data"
        maker = LogMaker(directory)
        maker.open_term()
        fill(maker, records)
        tube = maker.engine.tubes["orders"]
        last = maker.put(tube, {"order": "the last one"})
        maker.turn()
        maker.close()
        size = sum(path.stat().st_size for path in directory.glob("*.wal"))
        print(f"{maker.log.last_lsn:,} records, {size / 1e6:,.0f} MB of log")
        questions = [
            ("id, the last task", "orders", str(last)),
            ("id in the middle", "orders", str(last // 2)),
            ("id of two digits", "orders", "17"),
            ("id of four digits", "orders", "1234"),
            ("payload field", "orders", "--field", "order=the last one"),
            ("words in the payload", "orders", "--find", "the last one"),
            ("an id that is not there", "orders", str(last + 1)),
        ]
        for title, *words in questions:
            seconds, cpu, steps = asked(directory, *words)
            told = ", ".join(f"{one:.2f}" for one in sorted(seconds))
            print(f"{title:<24} {told} s, {cpu:.2f} s of CPU, {steps} steps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
