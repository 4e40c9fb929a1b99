"""What an operation costs the server, in this checkout and in an older one, in turns.

    python -m benchmarks.compare --before ../older-checkout --turns 10

The pieces of the sections `wire` and `replication` that cost CPU: all nodes run all the time, one
client sends each piece first to the one and then to the other, the next time the other way round.
A figure is the median over the turns of now : before within one turn, so that what other programs
do to the machine meanwhile meets both. Both are run by this checkout's interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import geometric_mean, median, quantiles

from benchmarks import load
from benchmarks.measure import Neighbours, Sample
from benchmarks.replication import pair
from benchmarks.target import DRIVERS, Effort, Target, tandem

HERE = Path(__file__).resolve().parents[1]
BEFORE, NOW = "before", "now"
Piece = Callable[[Target], Awaitable[None]]


@contextmanager
def rooms_of(root: Path) -> Iterator[None]:
    """Nodes that are started meanwhile are those of this checkout."""
    held = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([f"{root}/client", f"{root}/src"])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if held is not None:
            os.environ["PYTHONPATH"] = held


async def nodes(
    stack: AsyncExitStack, root: Path, place: Path, effort: Effort
) -> dict[str, Target]:
    """A node alone, and the masters of two pairs: `alone`, `local` and `pair`."""
    with rooms_of(root):
        alone = tandem(place / "alone", effort, tubes=DRIVERS)
        found = {"alone": await stack.enter_async_context(alone)}
        for ack in ("local", "pair"):
            _, _, found[ack] = await stack.enter_async_context(pair(place / ack, effort, ack))
    return found


async def _ping(target: Target) -> None:
    work = load.ping(target.connections, target.effort.shape, target.effort.count)
    await target.measure("ping", work)


async def _batches(target: Target) -> None:
    count = 4 * target.effort.count
    await target.measure("batch put", target.put_batches("fifo", count))
    await target.measure("batch take+ack", target.take_ack_batches("fifo", count))


def _tube(driver: str) -> Piece:
    return lambda target: target.put_then_drain(driver)


PIECES: tuple[tuple[str, Piece], ...] = (
    ("alone", _ping),
    *(("alone", _tube(driver)) for driver in DRIVERS),
    ("alone", _batches),
    ("local", _tube("fifo")),
    ("pair", _tube("fifo")),
)


async def measure(roots: dict[str, Path], effort: Effort) -> dict[str, dict[str, list[Sample]]]:
    """By name of the piece, then by checkout: a sample for each turn; the first one warms up."""
    found: dict[str, dict[str, list[Sample]]] = {}
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-compare-")))
        running = {
            name: await nodes(stack, root, place / name, effort) for name, root in roots.items()
        }
        for turn in range(effort.runs + 1):
            sys.stderr.write(f"turn {turn} of {effort.runs}\n")
            for where, piece in PIECES:
                for name in (BEFORE, NOW) if turn % 2 else (NOW, BEFORE):
                    await piece(running[name][where])
        for name, several in running.items():
            for where, target in several.items():
                for what, samples in target.taken.items():
                    found.setdefault(f"{where}: {what}", {})[name] = samples[1:]
    return found


def ratios(samples: dict[str, list[Sample]]) -> list[float]:
    """now : before of each turn."""
    pairs = zip(samples[BEFORE], samples[NOW], strict=True)
    return [now.server_us / before.server_us for before, now in pairs]


def row(what: str, samples: dict[str, list[Sample]]) -> str:
    """A line of the table."""
    found = ratios(samples)
    low, middle, high = quantiles(found, n=4) if len(found) > 1 else [*found * 3]
    cells = (f"{median(one.server_us for one in samples[name]):.1f}" for name in (BEFORE, NOW))
    return f"| {what} | {' | '.join(cells)} | {middle:.3f}x | {low:.3f}-{high:.3f} |"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    parser.add_argument("--before", type=Path, required=True, help="another checkout")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("-n", "--count", type=int, default=50_000, help="tasks a piece")
    options = parser.parse_args(argv)
    roots = {BEFORE: options.before.resolve(), NOW: HERE}
    neighbours = Neighbours()
    found = asyncio.run(measure(roots, Effort(runs=options.turns, count=options.count)))
    print("| server us/op | before | now | now : before | middle half |\n|---|--:|--:|--:|--:|")
    for what, samples in found.items():
        print(row(what, samples))
    together = geometric_mean(median(ratios(samples)) for samples in found.values())
    print(f"| all together, geometric mean | | | {together:.3f}x | |")
    print(f"\nOther programs took {neighbours.share():.0%} of the machine meanwhile.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
