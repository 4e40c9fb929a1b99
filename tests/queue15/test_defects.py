"""Each defect of the original, by its number in docs/compatibility-queue15.md: gone, or kept."""

from __future__ import annotations

import pytest

from tandemq_server.engine import admin, lanes, listing
from tandemq_server.facades.registered import KNOWN
from tests.engine.engine_bench import SECOND, Bench, assert_replica_agrees
from tests.queue15.queue15_bench import Calls, make, seen

CALM = ("t", 0, 0, 0, 0)


def test_defect_1_equals_are_served_in_the_order_they_came(calls: Calls) -> None:
    for number in range(50):
        calls.put("t", number)
    assert calls.drain() == list(range(50))


def test_defect_1_a_released_task_keeps_its_place(calls: Calls) -> None:
    calls.put("t", "a")
    calls.put("t", "b")
    task = calls("take", "t", 0)
    assert calls("release", task[0])[2] == "ready"
    assert calls.drain() == ["a", "b"]


@pytest.mark.parametrize(("count", "dug"), [(None, 1), (2, 2), ("2", 2), (9, 3), (0, 0), (-1, 0)])
def test_defect_2_kick_respects_its_count(calls: Calls, count: object, dug: int) -> None:
    for number in range(3):
        calls.put("t", number)
        calls("bury", calls("take", "t", 0)[0])
    assert calls("kick", "t", count) == dug
    assert calls.drain() == list(range(dug)), "the oldest first"


def test_defect_2_kick_and_dig_wake_who_waits(calls: Calls) -> None:
    idents = [calls.put("t", number) for number in range(2)]
    for ident in idents:
        calls("take", "t", 0)
        calls("bury", ident)
    waiters = [calls.bench.worker(), calls.bench.worker()]
    for waiter in waiters:
        calls("take", "t", by=waiter)
    calls("kick", "t", 1)
    calls("dig", idents[1])
    assert [seen(waiter.told[0][1])[3] for waiter in waiters] == [0, 1]


def test_defect_3_put_unique_delays_by_seconds(calls: Calls) -> None:
    calls("put_unique", "t", 5, 0, 0, 0, "x")
    calls.bench.pass_time(4.9)
    assert calls("take", "t", 0) is None
    calls.bench.pass_time(0.2)
    assert calls("take", "t", 0)[3] == "x"


def test_defect_3_put_unique_sees_every_task_that_is_not_done(calls: Calls) -> None:
    first = calls("put_unique", *CALM, "x", 1)
    assert calls("put_unique", *CALM, "x", 2) == first
    assert calls("put_unique", "t", 7, 0, 0, 0, "x")[0] == first[0], "ready, although delayed asked"
    calls("take", "t", 0)
    assert calls("put_unique", *CALM, "x")[:3] == [first[0], "t", "taken"]
    calls("bury", first[0])
    assert calls("put_unique", *CALM, "x")[:3] == [first[0], "t", "buried"]
    calls("dig", first[0])
    calls("take", "t", 0)
    calls("done", first[0], "x")
    assert calls("put_unique", *CALM, "x")[0] != first[0]
    assert calls("put_unique", "other", 0, 0, 0, 0, "x")[0] != first[0]
    assert calls.counters()["put"] == 2


def test_defect_3_the_old_scope_can_be_had_back() -> None:
    calls = make(unique_scope="ready_delayed")
    first = calls("put_unique", *CALM, "x")
    assert calls("put_unique", "t", 7, 0, 0, 0, "x")[0] != first[0]
    assert calls("put_unique", *CALM, "x")[0] == first[0]
    calls("take", "t", 0)
    assert calls("put_unique", *CALM, "x")[0] != first[0]


def restarted(calls: Calls) -> Calls:
    """A node that comes up over what the first one logged."""
    return make(calls.bench.replica(KNOWN))


def test_defect_4_what_was_taken_is_ready_after_a_restart(calls: Calls) -> None:
    ident = calls.put("t", "x")
    calls("take", "t", 0)
    again = restarted(calls)
    assert again.status(ident) == "ready"
    assert again.counters()["ready_by_restart"] == 1
    assert again("take", "t", 0)[3] == "x"


def test_defect_5_timers_run_after_a_restart_without_being_touched(calls: Calls) -> None:
    calls.put("t", "late", delay=3)
    gone = calls.put("t", "gone", ttl=2)
    again = restarted(calls)
    waiter = again.bench.worker()
    again.bench.pass_time(2)
    assert again.status(gone) == "! Task not found"
    again("take", "t", by=waiter)
    again.bench.pass_time(1)
    assert seen(waiter.told[0][1])[3] == "late"


def test_defect_6_requeue_never_looks_at_another_tube(calls: Calls) -> None:
    """The original could copy the rank of the last task of the tube before it."""
    calls.put("a", 0)
    for _ in range(5):
        calls("requeue", calls("take", "a", 0)[0])
    calls.put("b", 1)
    ident = calls("take", "b", 0)[0]
    calls("requeue", ident)
    assert calls("meta", ident)[4] == "128"


def test_defect_7_an_expired_head_does_not_block_take(calls: Calls) -> None:
    calls.put("t", "old", ttl=1, pri=9)
    calls.put("t", "young")
    # The clock moved and no deadline was looked at yet.
    calls.bench.engine.now += 2 * SECOND
    assert calls("take", "t", 0)[3] == "young"
    assert calls.counters()["ttl.ready"] == 1


def test_defect_8_failing_puts_are_not_counted(calls: Calls) -> None:
    assert calls("put", "typo", "soon", 0, 0, 0).startswith("! attempt to compare nil")
    assert calls("urgent", "typo", 0, 0, 0, None).startswith("! attempt to perform arithmetic")
    assert calls("statistics", "typo") == []


def test_defect_9_owner_errors_name_the_call(calls: Calls) -> None:
    ident = calls.put("t")
    calls("take", "t", 0)
    other = calls.bench.worker()
    for name in ("ack", "release", "requeue", "bury", "done", "touch"):
        text = f"! Only consumer that took the task can it {name}"
        assert calls(name, ident, by=other) == text


@pytest.mark.parametrize("name", ["bury", "done", "release", "requeue"])
def test_defect_10_nobody_owns_what_is_not_taken(calls: Calls, name: str) -> None:
    ident = calls.put("t")
    calls("take", "t", 0)
    assert calls("meta", ident)[6] == calls.me.id
    calls(name, ident)
    assert calls("meta", ident)[6] == 0


def test_defect_11_meta_can_show_the_priority_as_it_was_given() -> None:
    for shown, wanted in (("raw", ["98", "255", "0"]), ("original", ["30", "-127", "128"])):
        calls = make(meta_pri=shown)
        idents = [calls.put("t", pri=pri) for pri in (30, -200, 255)]
        assert [calls("meta", ident)[5] for ident in idents] == wanted


def test_defect_11_meta_can_show_times_in_seconds() -> None:
    """As the documents have it; by itself in microseconds, as programs that run got them."""
    for shown, unit in (("microseconds", 1), ("seconds", SECOND)):
        calls = make(meta_times=shown)
        now = calls.bench.engine.now
        meta = calls("meta", calls.put("t", ttl=10, ttr=20))
        assert [meta[at] for at in (3, 7, 12)] == [
            (now + 10 * SECOND) // unit, now // unit, now // unit
        ]  # fmt: skip
        assert meta[8:10] == [10, 20]


def test_priorities_can_be_those_of_the_english_text() -> None:
    """0 to 255 with 127 in the middle, clamped there; by itself -127 to 128, as the code had it."""
    calls = make(pri_range="unsigned", meta_pri="original")
    given = (127, 255, 0, 128, 300, -5)
    idents = [calls.put("t", pri, pri=pri) for pri in given]
    assert [calls("meta", ident)[5] for ident in idents] == ["127", "255", "0", "128", "255", "0"]
    assert calls.drain() == [255, 300, 128, 127, 0, -5]
    assert make(pri_range="signed").bench is not None
    with pytest.raises(Exception, match="Invalid value of pri_range: both"):
        make(pri_range="both")


def test_defect_12_the_end_of_life_is_counted_by_state(calls: Calls) -> None:
    """Kept: ttl holds in every state, for that is what the producer asked for."""
    idents = [calls.put("t", number, ttl=5) for number in range(4)]
    calls("bury", calls("take", "t", 0)[0])
    calls("done", calls("take", "t", 0)[0])
    calls("take", "t", 0)
    calls.put("t", "waits", delay=9, ttl=1)
    calls.bench.pass_time(6)
    assert calls("ack", idents[2]) == "! Task not found"
    found = {name: value for name, value in calls.counters().items() if name.startswith("ttl")}
    assert found == {
        "ttl.total": 4, "ttl.buried": 1, "ttl.done": 1, "ttl.taken": 1, "ttl.ready": 1
    }  # fmt: skip


def test_defect_12_a_release_does_not_delete_in_silence(calls: Calls) -> None:
    ident = calls.put("t", "x", ttl=5)
    calls("take", "t", 0)
    assert calls("release", ident, 60)[2] == "delayed"
    calls.bench.pass_time(60)
    assert calls("take", "t", 0)[3] == "x"


def test_defect_13_a_stranger_cannot_ack_after_a_restart(calls: Calls) -> None:
    """Owners are UUIDs of sessions; the numbers of connections begin anew and mean nothing."""
    calls.bench.engine.configure(60, True)
    ident = calls.put("t")
    calls("take", "t", 0)
    again = restarted(calls)
    assert again.me.id == calls.me.id
    assert again("ack", ident) == "! Only consumer that took the task can it ack"


def test_defect_14_requeued_tasks_do_not_starve(calls: Calls) -> None:
    calls.put("t", "first", pri=5)
    calls.put("t", "second", pri=-5)
    calls("requeue", calls("take", "t", 0)[0])
    calls.put("t", "later", pri=100)
    # Behind all there was; whatever is put later waits until these had their turn.
    assert calls("take", "t", 0)[3] == "later", "a better priority still goes before `second`"
    assert calls.drain() == ["second", "first"]


def test_defect_14_requeue_is_the_end_of_what_there_was(calls: Calls) -> None:
    calls.put("t", "a")
    calls.put("t", "b")
    calls("requeue", calls("take", "t", 0)[0])
    calls.put("t", "c")
    assert calls.drain() == ["b", "a", "c"]


def test_defect_14_urgent_works_on_an_empty_tube(calls: Calls) -> None:
    calls("urgent", *CALM, "urgent")
    calls.put("t", "normal", pri=128)
    assert calls.drain() == ["urgent", "normal"]


def test_defect_14_urgent_never_saturates(calls: Calls) -> None:
    for number in range(300):
        calls("urgent", *CALM, number)
    assert calls.drain() == list(reversed(range(300)))


def test_defect_15_ranks_are_wide_and_shown_in_a_byte(calls: Calls) -> None:
    idents = [calls("urgent", *CALM)[0] for _ in range(200)]
    assert [calls("meta", ident)[4] for ident in (idents[0], idents[9], idents[-1])] == [
        "126", "117", "0",
    ]  # fmt: skip


def test_defect_16_nothing_is_taken_for_a_connection_that_is_gone(calls: Calls) -> None:
    waiter = calls.bench.worker()
    calls("take", "t", by=waiter)
    calls.bench.disconnect(waiter)
    ident = calls.put("t")
    assert calls.status(ident) == "ready"
    assert "take" not in calls.counters()


def test_defect_17_disconnect_gives_everything_back_at_once(calls: Calls) -> None:
    other = calls.bench.worker()
    for number in range(20):
        calls.put("t", number)
        calls("take", "t", 0, by=other)
    calls.bench.disconnect(other)
    assert calls.counters()["ready_by_disconnect"] == 20
    assert calls.drain() == list(range(20))


def test_defect_18_counters_of_empty_tubes_are_bounded(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "COUNTED_MAX", 10)
    calls.put("kept")
    for number in range(100):
        calls("take", f"t{number}", 0)
    assert len(calls.tube.counters) == 10
    assert calls.counters("kept")["put"] == 1
    assert not calls.tube.lines


def test_defect_19_fractions_of_seconds_are_shown(calls: Calls) -> None:
    ident = calls.put("t", ttl="0.5", ttr=0.3)
    assert calls("meta", ident)[8:10] == [0.5, 0.3]
    whole = calls.put("t", ttl=10, ttr=20)
    assert [repr(value) for value in calls("meta", whole)[8:10]] == ["10", "20"]


def test_what_defects_did_is_the_same_on_a_replica() -> None:
    calls = make(Bench(KNOWN))
    for number in range(6):
        calls.put("t", number, pri=number)
        calls("requeue", calls("take", "t", 0)[0])
    calls("urgent", *CALM, "u")
    other = make(assert_replica_agrees(calls.bench))
    assert other.drain() == calls.drain()


def test_what_is_done_is_not_moved_to_run_again(calls: Calls) -> None:
    """No change in bulk takes it to another tube; to delete it is fine."""
    bench = calls.bench
    ident = calls.put("t", "done", ttl=100)
    calls("take", "t", 0)
    assert calls("done", ident, "done")[0] == ident
    bench.call(admin.create_tube, bench.engine, "other", "fifo", {})
    (space,) = [tube for tube in bench.engine.tubes.values() if tube.type == "queue15"]
    changes: list[tuple[str, dict[str, str]]] = [("move", {"to": "other"}), ("delete", {})]
    counts = [
        bench.call(listing.bulk, space, calls.me, action, opts, lambda _name: None)["count"]
        for action, opts in changes
    ]
    assert counts == [0, 1]
