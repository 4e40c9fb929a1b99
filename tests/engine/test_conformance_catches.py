"""Drivers that are wrong in one thing each: the suite for drivers finds every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tandemq_server.drivers import Driver, DriverMisuse, Fifo, FifoTtl
from tandemq_server.spaces.space import Row
from tandemq_server.testing import driver_checks, driver_conformance


class Forgetful(Fifo):
    """Keeps its order beside the space: a replica knows nothing of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.newest = 0

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        row = super().put(data, opts, now)
        self.newest = row[0]
        return row

    def take(self, now: int) -> Row | None:
        row = self.space.rows.get(self.newest)
        if row is not None and row[1] == "r":
            return self.space.set(row[0], 1, "t")
        return super().take(now)


class Counting(Fifo):
    """Counts beside the space: what is taken back stays counted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buried = 0

    def bury(self, task_id: int, now: int) -> Row:
        self.buried += 1
        return super().bury(task_id, now)

    def kick(self, count: int, now: int) -> list[Row]:
        rows = super().kick(count, now)
        self.buried -= len(rows)
        return rows

    def counts(self) -> dict[str, int]:
        return {**super().counts(), "buried": self.buried}


class OwnIds(Fifo):
    """Gives an id out again when its task is gone."""

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        row = (next(n for n in range(100) if n not in self.space.rows), "r", data)
        self.space.insert(row)
        return row


class InPlace(Fifo):
    """Changes a row without telling the space: nothing is logged."""

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        row = (task_id, "r", self.space.rows[task_id][2])
        self.space.rows[task_id] = row
        return row


class TakesNothing(Fifo):
    def take(self, now: int) -> Row | None:
        return None


class ReleasesToBuried(Fifo):
    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        return self.space.set(task_id, 1, "!")


class KicksAll(Fifo):
    def kick(self, count: int, now: int) -> list[Row]:
        return super().kick(1_000, now)


class ShowsNotDone(Fifo):
    def delete(self, task_id: int, now: int) -> Row:
        return self.space.delete(task_id)


class Rewrites(Fifo):
    def normalize_task(self, row: Row) -> tuple[int, str, bytes]:
        return row[0], row[1], row[2] + b"\xc0"


class Hides(Fifo):
    def tasks_by_state(self, status: str) -> Iterator[Row]:
        return iter(list(super().tasks_by_state(status))[:1])


class BatchInReverse(Fifo):
    def put_many(self, items: list[tuple[bytes, dict[str, Any] | None]], now: int) -> list[Row]:
        return super().put_many(items[::-1], now)


class BatchOfOldest(Fifo):
    def take_many(self, count: int, now: int) -> list[Row]:
        return super().take_many(min(count, 2), now)


class NoRoom(Fifo):
    """Says it holds five and takes more, for it counts ready tasks only by another name."""

    capacity = 5

    def truncate(self) -> None:
        for task_id in list(self.space.rows)[1:]:
            self.space.delete(task_id)


class TtrForEver(FifoTtl):
    """Its deadlines move nothing."""

    def expire(self, task_id: int, now: int) -> list[Any]:
        return []


class Raises(Fifo):
    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        raise KeyError(delta_us)


class Slow(Fifo):
    """Delays that it says it understands and does not."""

    delays = True


@pytest.mark.parametrize(
    ("driver", "check"),
    [
        (Forgetful, "history_0"),
        (Counting, "a_call_taken_back_leaves_nothing"),
        (OwnIds, "ids_never_repeat_but_after_truncate"),
        (InPlace, "release_from_every_state"),
        (TakesNothing, "take_from_every_state"),
        (ReleasesToBuried, "release_from_every_state"),
        (KicksAll, "kick_takes_as_many_as_it_is_told"),
        (ShowsNotDone, "a_gone_task_is_shown_done"),
        (Rewrites, "a_payload_comes_back_as_it_was_put"),
        (Hides, "counts_are_those_of_tasks_by_state"),
        (BatchInReverse, "batches_do_what_single_calls_do"),
        (BatchOfOldest, "batches_do_what_single_calls_do"),
        (NoRoom, "truncate_leaves_nothing"),
        (TtrForEver, "history_0"),
        (Raises, "touch_from_every_state"),
        (Slow, "release_from_every_state"),
    ],
)
def test_what_is_wrong_is_found(driver: type[Driver], check: str) -> None:
    puts = [{"ttr": 1}] if driver is TtrForEver else [None]
    with pytest.raises(ExceptionGroup) as caught:
        driver_conformance(driver, puts=puts)
    found = {note for error in caught.value.exceptions for note in error.__notes__}
    assert f"check: {check}" in found, found


def test_what_is_no_driver_at_all_is_refused() -> None:
    with pytest.raises(DriverMisuse, match="create_space"):
        driver_conformance(int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        driver_checks(Fifo, puts=[])
