"""The witness's log: what was answered is never forgotten, whatever fails and whenever it ends."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random

import pytest

from tandemq.log.disk import OPERATIONS
from tandemq.model.errors import StorageError
from tandemq_server.arbiters.base import ArbiterRefused, SwapLost
from tandemq_server.statemachine.seat import Seat, SeatReading
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.witness.register import HEAD_SIZE, NAME, Registers
from tests.arbiters.arbiter_worlds import a_seat

FILE_BYTES = 3000


class Clock:
    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.us += 1
        return self.us


def opened(disk: MemoryDisk | FileDisk, clusters_max: int = 64) -> Registers:
    return Registers(disk, Clock(), clusters_max, FILE_BYTES)


def swapped(registers: Registers, cluster: str, no: int) -> SeatReading:
    revision = registers.of(cluster).reading.revision
    return registers.swap(cluster, revision, a_seat(no), secrets.token_hex(16))


def test_what_was_written_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    registers = opened(disk)
    assert registers.reports == ["a new register: no cluster has a seat here yet"]
    jobs = swapped(registers, "jobs", 1)
    mail = swapped(registers, "mail", 1)
    jobs = swapped(registers, "jobs", 2)
    registers.keep("jobs", frozenset({"a", "b"}))
    registers.close()
    again = opened(disk)
    assert again.reports == []
    assert (again.of("jobs").reading, again.of("mail").reading) == (jobs, mail)
    assert again.of("jobs").nodes == {"a", "b"}
    assert again.of("other").reading == SeatReading(None, 0)
    with pytest.raises(SwapLost):
        again.swap("jobs", mail.revision, a_seat(3), secrets.token_hex(16))


def test_a_request_that_was_carried_out_is_answered_like_the_first_time() -> None:
    disk = MemoryDisk()
    registers = opened(disk)
    seat, swap = a_seat(), secrets.token_hex(16)
    won = registers.swap("jobs", 0, seat, swap)
    assert registers.swap("jobs", 0, seat, swap) == won
    registers.close()
    again = opened(disk)
    assert again.swap("jobs", 0, seat, swap) == won
    with pytest.raises(SwapLost):
        again.swap("jobs", 0, a_seat(2), swap)


def test_revisions_of_a_copy_brought_back_mean_nothing_else() -> None:
    """A late request of the time after the copy was made must not fit what was written since."""
    disk = MemoryDisk()
    clock = Clock()
    registers = Registers(disk, clock)
    first = swapped(registers, "jobs", 1)
    copy = MemoryDisk(disk.contents())
    second = swapped(registers, "jobs", 2)
    restored = Registers(copy, clock)
    assert restored.of("jobs").reading == first
    other = swapped(restored, "jobs", 2)
    assert other.revision != second.revision
    with pytest.raises(SwapLost):
        restored.swap("jobs", second.revision, a_seat(3), secrets.token_hex(16))


def test_a_clock_that_runs_backwards_changes_no_order() -> None:
    disk = MemoryDisk()
    clock = Clock()
    registers = Registers(disk, clock)
    first = swapped(registers, "jobs", 1)
    clock.us -= 10**12
    assert swapped(registers, "jobs", 2).revision == first.revision + 1


def test_the_file_stays_small() -> None:
    disk = MemoryDisk()
    registers = opened(disk)
    for no in range(1, 400):
        last = swapped(registers, f"c{no % 3}", no)
        assert registers.size == disk.size(NAME) < FILE_BYTES + 1000
    registers.close()
    assert opened(disk).of("c0").reading == last


def test_too_many_clusters_are_refused_and_change_nothing() -> None:
    disk = MemoryDisk()
    registers = opened(disk, 2)
    swapped(registers, "one", 1)
    registers.keep("two", frozenset({"a"}))
    before = disk.contents()
    with pytest.raises(ArbiterRefused, match="2 clusters already"):
        swapped(registers, "three", 1)
    with pytest.raises(ArbiterRefused):
        registers.keep("three", frozenset({"a"}))
    assert disk.contents() == before
    swapped(registers, "one", 2)


def life(disk: MemoryDisk, chance: Random, known: dict[str, list[Seat | None]]) -> None:
    """Swaps; `known` says what may be there afterwards: the last answered, and what was tried."""
    registers = opened(disk)
    for no in range(12):
        cluster = chance.choice(("jobs", "mail"))
        seat = a_seat(no + 1, by="x" * chance.randrange(400))
        known.setdefault(cluster, [None]).append(seat)
        revision = registers.of(cluster).reading.revision
        registers.swap(cluster, revision, seat, secrets.token_hex(16))
        known[cluster] = [seat]
    registers.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_fails_once_at_every_call(operation: str) -> None:
    for nth in range(1, 60):
        disk = MemoryDisk()
        known: dict[str, list[Seat | None]] = {}
        disk.fail(operation, nth)
        failed = False
        try:
            life(disk, Random(nth), known)
        except StorageError:
            failed = True
        again = opened(MemoryDisk(disk.contents()))
        for cluster, may in known.items():
            assert again.of(cluster).reading.seat in may
        if not failed:
            break
    else:
        raise AssertionError(f"{operation} failed at every call")


@pytest.mark.parametrize("page", [0, 64, 4096])
def test_power_cuts_take_nothing_that_was_answered(page: int) -> None:
    for seed in range(150):
        chance = Random(seed)
        disk = MemoryDisk()
        answered: dict[str, SeatReading] = {}
        under_way: tuple[str, object] | None = None
        for _ in range(4):
            registers = opened(disk)
            for cluster, reading in answered.items():
                found = registers.of(cluster).reading
                if found != reading:
                    assert under_way == (cluster, found.seat), (seed, page)
                answered[cluster] = found
            if chance.random() < 0.7:
                disk.fail(
                    chance.choice(("append", "sync", "rename", "create")), chance.randint(1, 9)
                )
            if chance.random() < 0.3:
                disk.short_write(chance.randint(1, 5))
            under_way = None
            try:
                for no in range(chance.randint(1, 9)):
                    cluster = chance.choice(("jobs", "mail"))
                    seat = a_seat(no + 1, by="x" * chance.randrange(400))
                    under_way = cluster, seat
                    revision = registers.of(cluster).reading.revision
                    answered[cluster] = registers.swap(
                        cluster, revision, seat, secrets.token_hex(16)
                    )
                    under_way = None
            except StorageError:
                # It takes nothing more: what is on disk now only a new start can say.
                with pytest.raises(StorageError):
                    registers.swap(cluster, revision, seat, secrets.token_hex(16))
            disk.crash(chance, page)


def test_nothing_is_shown_that_a_power_cut_could_take_back() -> None:
    """What an earlier process wrote and did not sync is in the cache: first safe, then shown."""
    for seed in range(40):
        disk = MemoryDisk()
        registers = opened(disk)
        swapped(registers, "jobs", 1)
        if seed % 2:
            disk.fail("sync")
            with pytest.raises(StorageError):
                swapped(registers, "jobs", 2)
        else:
            # Killed between the write and the sync.
            entry = registers._entry(registers.size, "jobs", registers.of("jobs")._replace(swap=""))
            disk.append(registers._handle, entry)
        shown = opened(disk).of("jobs")
        disk.crash(Random(seed))
        assert opened(disk).of("jobs") == shown


def test_a_torn_end_is_cut_kept_and_told() -> None:
    disk = MemoryDisk()
    registers = opened(disk)
    won = swapped(registers, "jobs", 1)
    whole = disk.contents()[NAME]
    swapped(registers, "jobs", 2)
    data = disk.contents()[NAME]
    for end in range(len(whole) + 1, len(data), 7):
        for rest in (b"", bytes(40)):
            torn = MemoryDisk({NAME: data[:end] + rest})
            again = opened(torn)
            assert again.of("jobs").reading == won
            assert "not finished are cut, kept in witness.torn" in again.reports[0]
            assert swapped(again, "jobs", 2).seat is not None
            assert opened(torn).reports == []


def test_damage_elsewhere_is_refused_by_name() -> None:
    disk = MemoryDisk()
    registers = opened(disk)
    for no in range(1, 4):
        swapped(registers, "jobs", no)
    data = disk.contents()[NAME]
    last = data.rindex(b"TQe1")
    for position in (0, 5, HEAD_SIZE // 4, HEAD_SIZE, HEAD_SIZE + 20, last - 1):
        bad = bytearray(data)
        bad[position] ^= 0x40
        with pytest.raises(StorageError) as refused:
            opened(MemoryDisk({NAME: bytes(bad)}))
        assert refused.value.file == NAME
    with pytest.raises(StorageError, match="format version"):
        newer = MemoryDisk()
        opened(newer)
        from tandemq.log.blocks import encode_fixed

        opened(MemoryDisk({NAME: encode_fixed(b"TQw1", {"version": 99}, HEAD_SIZE)}))


def test_somebody_elses_directory_is_left_alone() -> None:
    files = {"meta": b"x", "00000000000000000001.wal": b"y"}
    disk = MemoryDisk(files)
    with pytest.raises(StorageError, match="is no witness's"):
        opened(disk)
    assert disk.contents() == files


def test_one_process_at_a_time(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    won = swapped(opened(disk), "jobs", 1)
    with pytest.raises(StorageError, match="in use by process"):
        FileDisk(tmp_path)
    disk.release()
    assert opened(FileDisk(tmp_path)).of("jobs").reading == won
