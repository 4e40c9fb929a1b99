"""Speed over the wire: five drivers, PING, fsync, batches, a full tube; beanstalkd beside them.

Here: which pieces are measured, in which order, and the rows with their goals.
Must not be here: how load is sent (load.py), how figures are read (measure.py).
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import beanstalk, load
from benchmarks.measure import fdatasync_seconds
from benchmarks.table import Goal, Row, at_least, at_most, rate
from benchmarks.target import (
    DRIVERS,
    Effort,
    Samples,
    Say,
    Target,
    Yardstick,
    tandem,
    yardstick,
)

MILLION = 1_000_000
BYTES_PER_TASK_LOGGED = 180
"""About what one put of 100 bytes adds to the log, for the probe of the disk."""

PUT_TO_YARDSTICK_MIN, TAKE_TO_YARDSTICK_MIN = 1.0, 0.65
PUT_TO_PING_MIN, FSYNC_TO_LIMIT_MIN = 0.55, 0.70
SERVER_US_MAX = 12.0
BATCH_PUT_MIN, BATCH_TAKE_MIN = 400_000, 250_000
WARM_UP = 2_000

Taken = dict[str, Samples]


async def run(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Measure everything over the wire; returns the rows and the raw samples.

    Raises YardstickMissing when there is no beanstalkd and none can be installed.
    """
    program = beanstalk.find(say)
    taken: Taken = {}
    syncs: list[float] = []
    async with (
        yardstick(program, directory / "beanstalkd", effort) as other,
        tandem(directory / "write", effort, tubes=DRIVERS) as node,
        tandem(directory / "fsync", effort, wal_mode="fsync", tubes=("fifo",)) as synced,
    ):
        taken.update(beanstalkd=other, write=node, fsync=synced)
        await _warm_up(node)
        for number in range(effort.runs):
            say(f"wire, run {number + 1} of {effort.runs}")
            await _round(other, node, say)
            syncs.append(_disk(directory, effort))
            await synced.put_then_drain("fifo")
            syncs.append(_disk(directory, effort))
    full = DRIVERS if effort.full else ("fifo",)
    for driver in full:
        say(f"wire, {driver} with a million tasks waiting")
        async with tandem(directory / f"million-{driver}", effort, tubes=(driver,)) as node:
            taken[f"million {driver}"] = node
            await node.measure("fill", node.put_batches(driver, MILLION))
            for _ in range(effort.runs):
                await node.put_then_drain(driver)
    raw = {
        f"{server} {name}": [
            {"rate": s.rate, "server_us": s.server_us, "client_us": s.client_us} for s in several
        ]
        for server, samples in taken.items()
        for name, several in samples.taken.items()
    }
    return _rows(taken, statistics.median(syncs), effort), {**raw, "fdatasync_seconds": syncs}


async def _warm_up(node: Target) -> None:
    """Let both ends allocate and specialise before anything counts."""
    for driver in DRIVERS:
        await node.put(driver, WARM_UP)
        await node.take_ack(driver, WARM_UP)


async def _round(other: Yardstick, node: Target, say: Say) -> None:
    """One run of every piece in write mode, the yardstick first."""
    shape, count = node.effort.shape, node.effort.count
    await other.put_then_drain()
    say("  beanstalkd")
    await node.measure("ping", load.ping(node.connections, shape, count))
    for driver in DRIVERS:
        await node.put_then_drain(driver)
        say(f"  {driver}")
    await node.measure("batch put", node.put_batches("fifo", 4 * count))
    await node.measure("batch take+ack", node.take_ack_batches("fifo", 4 * count))
    say("  batches")


def _disk(directory: Path, effort: Effort) -> float:
    return fdatasync_seconds(directory, effort.in_flight * BYTES_PER_TASK_LOGGED, 100)


def _rows(taken: Taken, sync_seconds: float, effort: Effort) -> list[Row]:
    rows = [*_yardstick_rows(taken)]
    for driver in DRIVERS:
        rows += _driver_rows(taken, "write", driver, f"{driver}, nearly empty tube")
    for name in taken:
        if name.startswith("million "):
            driver = name.removeprefix("million ")
            rows += _driver_rows(taken, name, driver, f"{driver}, a million waiting")
    rows.append(_fsync_row(taken, sync_seconds, effort))
    rows += _batch_rows(taken)
    return rows


def _yardstick_rows(taken: Taken) -> list[Row]:
    rows = []
    for name in ("put", "take+ack"):
        figure = taken["beanstalkd"].median(name)
        rows.append(
            Row(
                "floor", f"beanstalkd {name}", rate(figure.rate), figure.server_us, figure.client_us
            )
        )
    ping = taken["write"].median("ping")
    rows.append(Row("floor", "Tandem PING", rate(ping.rate), ping.server_us, ping.client_us))
    return rows


def _driver_rows(taken: Taken, server: str, driver: str, section: str) -> list[Row]:
    """put and take+ack of one driver; fifo in a nearly empty tube carries the goals of rate."""
    rows, leading = [], server == "write" and driver == "fifo"
    bounds = {"put": PUT_TO_YARDSTICK_MIN, "take+ack": TAKE_TO_YARDSTICK_MIN}
    for name, bound in bounds.items():
        figure = taken[server].median(f"{driver} {name}")
        other = taken["beanstalkd"].median(name)
        ratio = figure.rate / other.rate
        goals = [at_most(figure.server_us, SERVER_US_MAX)]
        if leading:
            goals.append(at_least(ratio, bound))
        if leading and name == "put":
            ping = taken["write"].median("ping")
            goals.append(at_least(figure.rate / ping.rate, PUT_TO_PING_MIN, " of PING"))
        beside = f"{rate(other.rate)} ({ratio:.2f}x)"
        rows.append(
            Row(section, name, rate(figure.rate), figure.server_us, figure.client_us, beside, goals)
        )
    return rows


def _fsync_row(taken: Taken, sync_seconds: float, effort: Effort) -> Row:
    figure = taken["fsync"].median("fifo put")
    disk = effort.in_flight / sync_seconds
    limit = min(taken["write"].median("fifo put").rate, disk)
    goals: list[Goal] = [at_least(figure.rate / limit, FSYNC_TO_LIMIT_MIN)]
    return Row(
        "wal.mode fsync",
        "fifo put",
        rate(figure.rate),
        figure.server_us,
        figure.client_us,
        f"{rate(limit)}; disk {rate(disk)}",
        goals,
    )


def _batch_rows(taken: Taken) -> list[Row]:
    rows = []
    for name, bound in (("batch put", BATCH_PUT_MIN), ("batch take+ack", BATCH_TAKE_MIN)):
        figure = taken["write"].median(name)
        goal = at_least(figure.rate, bound, "/s")
        rows.append(
            Row(
                "batches of 100, tasks",
                name.removeprefix("batch "),
                rate(figure.rate),
                figure.server_us,
                figure.client_us,
                goals=[goal],
            )
        )
    return rows
