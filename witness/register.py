"""Registers on disk: each change is durable before anybody hears of it.

One file of blocks, each tied to its place; it is written anew, beside and then over the old one,
when it has grown. A torn end is cut, damage elsewhere is refused. Blocking, without loop or clock;
one thread at a time may change it, any may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

from tandemq.log.blocks import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    block_seed,
    decode_block,
    encode_block,
    encode_fixed,
    unpack,
)
from tandemq.log.disk import SUFFIX_IN_PROGRESS, Disk, append_all, write_file
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError
from tandemq.model.units import MIB
from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, is_name, seat_of
from tandemq_server.statemachine.seat import Seat, SeatReading
from tandemq_server.storage.mend import SUFFIX_TORN, keep_torn

NAME = "witness"
HEAD_MAGIC, ENTRY_MAGIC = b"TQw1", b"TQe1"
HEAD_SIZE = 128
FILE_BYTES = MIB


class Held(NamedTuple):
    """What is kept of one cluster. swap: which request wrote the seat; nodes: whose keys live."""

    reading: SeatReading = SeatReading(None, 0)
    swap: str = ""
    nodes: frozenset[str] = frozenset()


class Registers:
    """All clusters of one witness. Raises `StorageError` when the directory does not serve.

    After the first failed write every further one fails: what is on disk then is unknown, and a
    new start finds out. reports: lines a person should see about what was found.
    """

    def __init__(
        self,
        disk: Disk,
        now_us: Callable[[], int],
        clusters_max: int = 64,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """now_us: microseconds since the epoch."""
        self._disk = disk
        self._now_us = now_us
        self._clusters_max = clusters_max
        self._file_bytes = file_bytes
        self._held: dict[str, Held] = {}
        self._head = b""
        self.size = 0
        self.reports: list[str] = []
        self.failure: StorageError | None = None
        self._load()
        self._handle = disk.open(NAME)

    def of(self, cluster: str) -> Held:
        """What is kept of a cluster; of one that nobody knows, nothing."""
        return self._held.get(cluster, _NOTHING)

    @property
    def clusters(self) -> dict[str, Held]:
        return dict(self._held)

    def swap(self, cluster: str, revision: int, seat: Seat, swap: str) -> SeatReading:
        """Write `seat` if the register is at `revision`, durably; the new reading.

        A request that was carried out already is answered like the first time. Raises `SwapLost`,
        `ArbiterRefused` when there are too many clusters, `StorageError`.
        """
        held = self.of(cluster)
        if held.swap == swap and held.reading.seat == seat:
            return held.reading
        if held.reading.revision != revision:
            raise SwapLost(held.reading)
        # From the clock, so that in a copy brought back no revision comes to mean something else.
        reading = SeatReading(seat, max(revision + 1, self._now_us()))
        self._change(cluster, held._replace(reading=reading, swap=swap))
        return reading

    def keep(self, cluster: str, nodes: frozenset[str]) -> None:
        """Remember whose keys live, for after a restart. Raises as `swap` does."""
        held = self.of(cluster)
        if held.nodes != nodes:
            self._change(cluster, held._replace(nodes=nodes))

    def close(self) -> None:
        self._disk.close(self._handle)

    # -- writing ---------------------------------------------------------------------------------

    def _change(self, cluster: str, held: Held) -> None:
        if self.failure is not None:
            raise self.failure
        if cluster not in self._held and len(self._held) >= self._clusters_max:
            raise ArbiterRefused(
                f"there are {self._clusters_max} clusters already, {cluster} is one more"
            )
        try:
            if self.size >= self._file_bytes:
                self._rewrite()
            entry = self._entry(self.size, cluster, held)
            append_all(self._disk, self._handle, entry)
            self._disk.sync(self._handle)
        except StorageError as error:
            self.failure = error
            raise
        self.size += len(entry)
        self._held[cluster] = held

    def _entry(self, position: int, cluster: str, held: Held) -> bytes:
        seat = held.reading.seat
        value = [
            cluster,
            held.reading.revision,
            None if seat is None else seat._asdict(),
            held.swap,
            sorted(held.nodes),
        ]
        return encode_block(ENTRY_MAGIC, msgpack.packb(value), block_seed(self._head, position))

    def _rewrite(self) -> None:
        """The same with one entry for each cluster, in place of the file: whole or not at all."""
        content = self._whole()
        write_file(self._disk, NAME, content)
        self._disk.close(self._handle)
        self._handle = self._disk.open(NAME)
        self.size = len(content)
        # Even many clusters must leave room, or each change would write all of them.
        self._file_bytes = max(self._file_bytes, 2 * self.size)

    def _whole(self) -> bytes:
        value = {"version": FORMAT_VERSION, "created": self._now_us()}
        self._head = content = encode_fixed(HEAD_MAGIC, value, HEAD_SIZE)
        for cluster, held in self._held.items():
            content += self._entry(len(content), cluster, held)
        return content

    # -- reading ---------------------------------------------------------------------------------

    def _load(self) -> None:
        names = self._disk.list()
        ours = (SUFFIX_IN_PROGRESS, SUFFIX_TORN)
        strangers = [
            name
            for name in names
            if name != NAME and not (name.startswith(NAME) and any(s in name for s in ours))
        ]
        if NAME not in names:
            if strangers:
                where = self._disk.where
                raise StorageError(where, 0, f"is no witness's: it has {strangers[0]}")
            content = self._whole()
            write_file(self._disk, NAME, content)
            self.size = len(content)
            self.reports.append("a new register: no cluster has a seat here yet")
            return
        # What stands in the file may be in the cache only; nobody may hear of it before it is safe.
        self._disk.settle(NAME)
        self._disk.sync_dir()
        data = self._disk.read(NAME)
        self._check_head(data)
        self.size = self._replay(data)
        if self.size < len(data):
            lost = len(data) - self.size
            kept = keep_torn(self._disk, NAME, self.size)
            self._disk.truncate(NAME, self.size)
            self.reports.append(f"{lost} bytes of a change that was not finished are cut, {kept}")

    def _check_head(self, data: bytes) -> None:
        try:
            value = unpack(decode_block(data, 0, HEAD_MAGIC))
        except FrameError as error:
            raise StorageError(NAME, 0, error.reason) from error
        version = value.get("version") if isinstance(value, dict) else None
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise StorageError(NAME, 0, f"format version {version} is not known here")
        self._head = data[:HEAD_SIZE]

    def _replay(self, data: bytes) -> int:
        """Take all entries; where they end. Raises `StorageError` for damage before the end."""
        position = HEAD_SIZE
        while position < len(data):
            try:
                body = decode_block(data, position, ENTRY_MAGIC, block_seed(self._head, position))
                cluster, held = _held_of(unpack(body))
            except FrameError as error:
                if (valid := self._valid_behind(data, position)) is not None:
                    reason = f"{error.reason}, yet a whole change follows at {valid}"
                    raise StorageError(NAME, position, reason) from error
                return position
            self._held[cluster] = held
            position += BLOCK_SIZE + len(body)
        return position

    def _valid_behind(self, data: bytes, damage: int) -> int | None:
        for found in re.finditer(re.escape(ENTRY_MAGIC), data[damage + 1 :]):
            at = damage + 1 + found.start()
            try:
                decode_block(data, at, ENTRY_MAGIC, block_seed(self._head, at))
            except FrameError:
                continue
            return at
        return None


_NOTHING = Held()


def _held_of(value: Any) -> tuple[str, Held]:
    """An entry's content. Raises `FrameError`."""
    if not isinstance(value, list) or len(value) != 5:
        raise FrameError("entry is not a list of five")
    cluster, revision, seat, swap, nodes = value
    good = is_name(cluster) and isinstance(revision, int) and isinstance(swap, str)
    if not good or not isinstance(nodes, list) or not all(map(is_name, nodes)):
        raise FrameError("entry has a field that is not as it was written")
    try:
        reading = SeatReading(None if seat is None else seat_of(seat), revision)
    except ValueError as error:
        raise FrameError(f"seat {error}") from None
    return cluster, Held(reading, swap, frozenset(nodes))
