"""The pipeline's audit as second judge of a demonstration: it reads the nodes' logs, not clients'.

Here: whether it can run, running it, what it says. Not here: what it checks (tandemq.pipeline).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from demo.history import Outcome, Put
from demo.node_process import program

_SECONDS_MAX = 600.0


def missing() -> str | None:
    """What is missing for it, None when nothing is."""
    if any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")):
        return "needs the extra spark: pip install '.[spark]'"
    return None


def write_clients(path: Path, puts: Sequence[Put], tube: str) -> None:
    """What clients were told, as `tandemq pipeline audit --clients` reads it."""
    with path.open("w", encoding="utf-8") as file:
        for put in puts:
            if put.outcome is Outcome.OK:
                row = {"process": put.host, "f": "put", "tube": tube, "outcome": "ok"}
                file.write(json.dumps({**row, "task_id": put.task_id}) + "\n")


async def judge(logs: Sequence[Path], clients: Path) -> tuple[bool, str]:
    """(whether no rule is broken, a line to print)."""
    words = [*program(), "pipeline", "audit", *map(str, logs)]
    words += ["--clients", str(clients), "--json", "--memory", "1g"]
    pipe = asyncio.subprocess.PIPE
    # A demonstration's log is short: compiling well would take longer than it saves.
    quick = {"TANDEM_SPARK_QUICK": "1", **os.environ}
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=quick,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _SECONDS_MAX)
    except TimeoutError:
        await _end(process)
        return False, f"audit: not done within {_SECONDS_MAX:g} s"
    except BaseException:
        await _end(process)
        raise
    lines = out.decode().strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        said = err.decode().strip().splitlines() or [f"exit code {process.returncode}"]
        return False, f"audit: could not run: {said[-1]}"
    return read(lines[-1])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Spark's own processes, too: they hold the pipes and the directory otherwise."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


def read(text: str) -> tuple[bool, str]:
    """The same of what it printed."""
    found = json.loads(text)
    counts = found["counts"]
    what = f"{counts['records']:,} records of {counts['nodes']} logs, {counts['tasks']:,} tasks"
    if found["ok"]:
        return True, f"audit of the logs: ok, {what}"
    broken = ", ".join(f"{name} {count}" for name, count in found["broken"].items())
    first = found["rows"][0]
    place = f"tube {first['tube']} task {first['task']} LSN {first['lsn']}"
    return False, f"audit of the logs: {broken} in {what}; {place}: {first['evidence']}"
