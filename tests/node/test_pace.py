"""A downstream on the same machine catches up in step with what clients write, or at full speed."""

from __future__ import annotations

import pytest

from tandemq_server.node.cluster.pace import (
    BUSY_US,
    FLOOR_BYTES,
    PORTION_BYTES,
    RATIO_PERCENT,
    SAVED_BYTES,
    WINDOW_US,
    Pace,
    on_this_machine,
)

MOST = 256 << 10
SECOND = 1_000_000


def fed(write_bytes: int, every_us: int, seconds: int) -> tuple[int, int]:
    """(bytes written, bytes sent) while clients write so much so often; asked each millisecond."""
    pace, written, sent = Pace(0, 0), 0, 0
    for now in range(1_000, seconds * SECOND, 1_000):
        if now % every_us == 0:
            written += write_bytes
        if size := pace.portion(written, now, MOST):
            assert min(PORTION_BYTES, MOST) <= size <= MOST
            pace.sent(size)
            sent += size
    return written, sent


def test_while_nobody_writes_everything_may_go() -> None:
    assert fed(0, 1_000, 1)[1] == 999 * MOST


def test_a_trickle_slows_nothing_down() -> None:
    assert fed(200, 1_000, 1)[1] == 999 * MOST


@pytest.mark.parametrize(
    ("each_ms", "share"), [(4_000, FLOOR_BYTES), (20_000, 20_000_000 * RATIO_PERCENT // 100)]
)
def test_while_clients_write_it_gets_somewhat_more_than_they_add_or_a_floor(
    each_ms: int, share: int
) -> None:
    written, sent = fed(each_ms, 1_000, 10)
    assert abs(sent / (10 * share) - 1) < 0.05
    assert sent > written


def test_a_pause_that_is_but_a_hiccup_changes_nothing() -> None:
    written, sent = fed(1_000_000, BUSY_US // 2, 10)
    assert written < sent < 1.05 * (written * RATIO_PERCENT // 100 + 10 * FLOOR_BYTES)


def test_once_they_pause_everything_may_go_again() -> None:
    pace = Pace(0, 0)
    pace.portion(SECOND, WINDOW_US, MOST)
    while size := pace.portion(SECOND, WINDOW_US, MOST):
        pace.sent(size)
    assert pace.portion(SECOND, WINDOW_US + 1_000, MOST) == 0
    assert pace.portion(SECOND, WINDOW_US + BUSY_US, MOST) == MOST


def test_a_burst_of_writes_is_not_saved_up() -> None:
    pace, sent = Pace(0, 0), 0
    assert pace.portion(1 << 30, WINDOW_US, MOST) == MOST
    while size := pace.portion(1 << 30, 2 * WINDOW_US, MOST):
        pace.sent(size)
        sent += size
    assert sent == SAVED_BYTES


def test_a_small_window_is_a_portion_of_its_own() -> None:
    assert Pace(0, 0).portion(1 << 20, WINDOW_US, 2_000) == 2_000


def test_only_a_downstream_on_this_machine_is_paced() -> None:
    assert all(on_this_machine(name) for name in ("127.0.0.1:5", "[::1]:5", "::1:5"))
    assert not any(on_this_machine(name) for name in ("10.0.0.7:5", "[fe80::1]:5", "b", ""))
