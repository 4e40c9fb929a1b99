"""A process or the power ends at every disk operation of what replaces or cuts a log.

After each: the directory starts, and every acknowledged task is in memory or in what the
operator's commands list; doing it again finishes it.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random

import pytest

from tandemq.log.disk import append_all
from tandemq.log.segment import segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.node.loop.rescue_files import Rescued, RescueFiles
from tandemq_server.storage.memory import MemoryDisk
from tests.node.storage_life import (
    Action,
    Life,
    Stopper,
    copy_of,
    listed,
    newest_snapshot,
    unaccounted,
)

#: Power cuts at one operation, each leaving something else.
POWER_CUTS = 4
#: Every process draws ids of its own, the same ones in each run of a test.
SEEDS = count(1_000)


def led(puts: int = 24) -> Life:
    """Two terms in several segments, not trimmed."""
    life = Life(MemoryDisk()).lead(1)
    life.tube()
    life.put(puts - 8)
    life.work(2)
    life.put(4)
    life.lead(2)
    life.put(4)
    life.work(1)
    return life


def trimmed(keep: int = 2) -> Life:
    """Some snapshots, the log behind the oldest one trimmed; the log goes on."""
    life = Life(MemoryDisk(), keep=keep).lead(1)
    life.tube()
    for _ in range(3):
        life.put(12)
        life.snapshot(frames=2)
    life.put(9)
    life.lead(2)
    life.put(5)
    log = life.storage.log
    assert log is not None
    assert log.first_lsn > 1
    assert len(snapshot_names(life.disk)) == keep
    return life


def killed_everywhere(
    original: Life, action: Action, fork: int, power_cut: bool, again: bool = True
) -> int:
    """End `action` at each operation of the disk, and when it is done again, once more somewhere.

    Whatever was acknowledged behind `fork` is in the log or listed, always. Number of operations.
    """
    steps = 0
    while True:
        steps += 1
        for seed in range(POWER_CUTS if power_cut else 1):
            chance = Random(steps * 100 + seed) if power_cut else None
            disk = copy_of(original.disk)
            life, fired = ended(disk, action, steps, chance)
            if not fired:
                check(original, life, fork, "at the end")
                return steps - 1
            when = f"operation {steps}, seed {seed}"
            back = started(disk, when)
            check(original, back, fork, when)
            check(life, back, fork, when)
            if again:
                second = Random(steps * 10 + seed).randrange(1, 40)
                ended(disk, action, second, chance)
                when += f", again until operation {second}"
                back = started(disk, when)
                check(original, back, fork, when)
                action(back)
                check(original, back, fork, f"{when}, then to the end")
                check(original, started(disk, f"{when}, started again"), fork, when)


def ended(disk: MemoryDisk, action: Action, step: int, chance: Random | None) -> tuple[Life, bool]:
    """A process that ends at an operation of `action`, with the power if `chance` is given.

    The second is false where it had fewer operations.
    """
    life = Life(disk, seed=next(SEEDS))
    with Stopper(disk, step) as stopper:
        try:
            action(life)
        except StorageError:
            assert stopper.fired
    if stopper.fired and chance is not None:
        disk.crash(chance)
    return life, stopper.fired


def started(disk: MemoryDisk, when: str) -> Life:
    try:
        return Life(disk, seed=8)
    except StorageError as error:
        raise AssertionError(f"does not start after {when}: {error}; {disk.list()}") from error


def check(known: Life, back: Life, fork: int, when: str) -> None:
    """What `known` had acknowledged behind the fork `back` has, or its operator is told of."""
    needed = {value for lsn, value in known.acked.items() if lsn > fork}
    files = back.disk.list()
    missing = needed - back.payloads() - listed(back.disk)
    assert not missing, f"{when}: {sorted(missing)} neither in memory nor listed; {files}"
    records = {lsn: term_id for lsn, term_id in known.records.items() if lsn > fork}
    lost = unaccounted(back, records)
    assert not lost, f"{when}: LSN {lost} neither in the log nor listed; {files}"


weather = pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])


@weather
@pytest.mark.parametrize("fork", [8, 25, 29])
def test_a_rewind_killed_anywhere(fork: int, power_cut: bool) -> None:
    original = led()

    def rewind(life: Life) -> None:
        if life.engine.lsn > fork:
            life.rewind(fork)

    assert killed_everywhere(original, rewind, fork, power_cut) > 15


@weather
def test_a_rewind_to_behind_a_snapshot_killed_anywhere(power_cut: bool) -> None:
    original = trimmed()
    older, newer = (int(name.partition(".")[0]) for name in snapshot_names(original.disk))
    fork = (older + newer) // 2

    def rewind(life: Life) -> None:
        if life.engine.lsn > fork:
            life.rewind(fork)

    assert killed_everywhere(original, rewind, fork, power_cut) > 15


def test_a_rewind_leaves_no_snapshot_of_what_it_cut() -> None:
    """Such a snapshot would bring back, in memory, what the log lost."""
    life = trimmed()
    older, newer = (int(name.partition(".")[0]) for name in snapshot_names(life.disk))
    fork = (older + newer) // 2
    life.rewind(fork)
    for one in (life, started(life.disk, "a rewind")):
        assert one.engine.lsn == fork
        assert one.payloads() == {value for lsn, value in life.acked.items() if lsn <= fork}
    assert [int(name.partition(".")[0]) for name in snapshot_names(life.disk)] == [older]


def test_a_rewind_stands_on_no_snapshot_that_cannot_be_read() -> None:
    """Cut down to it, the directory would start no more: all goes to rescue instead."""
    life = trimmed(keep=3)
    for name in snapshot_names(life.disk)[:-1]:
        life.disk.remove(name)
    (only,) = snapshot_names(life.disk)
    base = int(only.partition(".")[0])
    log = life.storage.log
    assert log is not None
    log.trim(base + 1)
    assert log.first_lsn > 1
    held = life.disk._entries[only].data
    held[len(held) // 2] ^= 0xFF
    fork = base + 3
    life.rewind(fork)
    back = started(life.disk, "a rewind")
    assert back.engine.lsn == life.engine.lsn == 0, "its peer has what was before the fork"
    assert {value for lsn, value in life.acked.items() if lsn > fork} <= listed(life.disk)


@weather
@pytest.mark.parametrize("back", [0, 2, 9], ids=["at the log's start", "just before", "far before"])
@pytest.mark.parametrize("keep", [2, 3], ids=["two snapshots", "three snapshots"])
def test_a_full_rescue_killed_anywhere(keep: int, back: int, power_cut: bool) -> None:
    """The fork is older than every snapshot, and the log in front of them is trimmed."""
    original = trimmed(keep)
    log = original.storage.log
    assert log is not None
    oldest = int(snapshot_names(original.disk)[0].partition(".")[0])
    fork = min(log.first_lsn - back, oldest - 1)

    def rewind(life: Life) -> None:
        if life.engine.lsn > fork:
            life.rewind(fork)

    assert killed_everywhere(original, rewind, fork, power_cut) > 10


@weather
@pytest.mark.parametrize("shorter", [led, trimmed])
def test_an_install_killed_anywhere(shorter: object, power_cut: bool) -> None:
    original: Life = shorter()  # type: ignore[operator]
    upstream = Life(copy_of(original.disk)).lead(3)
    upstream.put(20)
    upstream.snapshot()
    name, data = newest_snapshot(upstream)

    def install(life: Life) -> None:
        if life.engine.lsn < upstream.engine.lsn:
            life.install(name, data)

    assert killed_everywhere(original, install, 0, power_cut) > 8


@weather
@pytest.mark.parametrize("keep", [2, 3])
def test_a_snapshot_killed_anywhere(keep: int, power_cut: bool) -> None:
    original = trimmed(keep)

    def snapshot(life: Life) -> None:
        life.lead(life.engine.store.lineage[-1].number + 1)
        life.snapshot(frames=3)

    assert killed_everywhere(original, snapshot, 0, power_cut) > 15


@weather
def test_a_roll_killed_anywhere(power_cut: bool) -> None:
    original = led()

    def roll(life: Life) -> None:
        before = len(segment_names(life.disk))
        life.lead(life.engine.store.lineage[-1].number + 1)
        while len(segment_names(life.disk)) < before + 4:
            life.put(1)

    assert killed_everywhere(original, roll, 0, power_cut) > 30


GOLDEN = Path(__file__).parent / "golden"
#: What 0.1.0 had acknowledged behind the fork at LSN 43 when it wrote those directories.
OLD_FORK, OLD_LAST = 43, 59


def old_directory(name: str) -> MemoryDisk:
    """As 0.1.0 left it when it ended inside a full rescue, or behind it."""
    home = GOLDEN / name
    return MemoryDisk(
        {p.relative_to(home).as_posix(): p.read_bytes() for p in home.rglob("*") if p.is_file()}
    )


@pytest.mark.parametrize("name", ["full_rescue_begun", "full_rescue_cutting"])
def test_a_full_rescue_that_0_1_0_left_half_done_is_finished(name: str) -> None:
    disk = old_directory(name)
    assert not snapshot_names(disk), "0.1.0 had moved the only one"
    life = started(disk, name)
    assert any("moved back" in line for line in life.said)
    needed = set(read_payloads(OLD_FORK))
    assert needed <= life.payloads() | listed(disk)
    life.rewind(OLD_FORK)
    assert not life.engine.store.lineage
    assert needed <= listed(disk)


def test_a_full_rescue_that_0_1_0_finished_can_be_listed() -> None:
    disk = old_directory("full_rescue_done")
    (cut,) = RescueFiles(disk).cuts()
    assert isinstance(cut, Rescued)
    assert (cut.note.first_lsn, cut.note.last_lsn, cut.records) == (44, 59, 16)
    assert listed(disk) == set(read_payloads(OLD_FORK))
    assert RescueFiles(disk).strays() == []


def test_copies_of_a_cut_that_did_not_happen_go_at_the_next_start() -> None:
    """The copies come first, then the note: until it is there, nothing has left the log."""
    seen = 0
    for step in count(1):
        disk = copy_of(led().disk)
        _, fired = ended(disk, lambda life: life.rewind(8), step, None)
        if not fired:
            break
        files = RescueFiles(disk)
        copies = files.strays()
        if not copies:
            continue
        assert all(files.in_log(name) for name in copies)
        # Without the log's own records the copies are all there is.
        bare = copy_of(disk)
        for name in segment_names(bare):
            bare.remove(name)
        assert not any(RescueFiles(bare).in_log(name) for name in copies)
        when = f"operation {step}"
        back = started(disk, when)
        assert not files.strays()
        check(led(), back, 8, when)
        seen += 1
    assert seen > 3


def test_a_copy_of_what_the_log_does_not_have_stays() -> None:
    copies: list[str] = []
    for step in count(1):
        disk = copy_of(led().disk)
        ended(disk, lambda life: life.rewind(8), step, None)
        if copies := RescueFiles(disk).strays():
            break
    other = led(puts=12).disk
    [name] = copies
    handle = other.create(name)
    append_all(other, handle, disk.read(name))
    other.close(handle)
    started(other, "a copy was brought from elsewhere")
    assert RescueFiles(other).strays() == copies


def read_payloads(fork: int) -> list[str]:
    acked = (*range(45, 54), *range(55, 60))
    return [f"payload of {lsn}" for lsn in (44, *acked) if lsn > fork]
