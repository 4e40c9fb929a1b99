"""Sizes so small that what is rare at real ones happens in every run, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tandemq_server.node.cluster import links, source
from tandemq_server.node.loop import snapshots
from tandemq_server.replication import relay

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """In bytes, but for the rows of one step of a snapshot. page: 0 where no power cut splits."""

    segment: int = 65_536
    window: int = 16 * MIB
    retain: int = 1 << 30
    snapshot: int | None = None
    page: int = 0
    keep: int = 1
    portion: int = 256 * KIB
    chunk: int = 256 * KIB
    rows: int = 2_000


def small(chance: Random) -> Sizes:
    """Segments of 4 KiB, windows of a few frames."""
    window = chance.choice((4 * KIB, 16 * KIB, 64 * KIB))
    return Sizes(
        segment=4 * KIB,
        window=window,
        keep=chance.choice((1, 2, 2)),
        portion=min(window, chance.choice((KIB, 4 * KIB))),
        chunk=min(window, chance.choice((512, 4 * KIB))),
        rows=chance.choice((3, 20)),
    )


@contextmanager
def in_force(sizes: Sizes) -> Iterator[None]:
    """The constants of the modules are these for as long as it lasts."""
    wanted = [
        (links, "READ_BYTES", sizes.portion),
        (relay, "CHUNK_BYTES", sizes.chunk),
        (source, "CRC_BYTES", 4 * sizes.chunk),
        (snapshots, "CHUNK_ROWS", sizes.rows),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in wanted]
    for module, name, value in wanted:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
