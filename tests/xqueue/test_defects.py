"""The defects of the original, each with a test of its number (section 13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.engine import admin
from tests.xqueue.xqueue_bench import FIELDS, FORMAT, PENDING, Calls, options

Declare = Callable[..., Calls]


def test_1a_a_ttl_does_not_end_a_taken_task(declare: Declare) -> None:
    calls = declare()
    key = calls.put({"ttl": 5})["id"]
    calls("take")
    calls.bench.pass_time(60)
    assert calls.state(key) == "T"
    assert calls("ack", key)["id"] == key


def test_1b_a_ttr_left_on_a_buried_task_deletes_nothing(declare: Declare) -> None:
    calls = declare()
    key = calls.put()["id"]
    calls("take", {"ttr": 5})
    calls("bury", key)
    calls("kick", 1)
    calls.bench.pass_time(60)
    assert calls.state(key) == "R"


def test_1c_a_zombie_goes_by_its_own_deadline(declare: Declare) -> None:
    calls = declare({"zombie": 50})
    key = calls.put()["id"]
    calls("take", {"ttr": 5})
    calls("ack", key)
    calls.bench.pass_time(49)
    assert calls.state(key) == "Z"
    calls.bench.pass_time(2)
    assert calls.state(key) == "X"


def test_1c_a_zombie_without_a_time(declare: Declare) -> None:
    """`zombie: true` and no delay: removed, as the README has it; kept for ever where `strict`."""
    for compat, state in (("fixed", "X"), ("strict", "Z")):
        calls = declare({"zombie": True, "retval": "table"}, compat=compat)
        key = calls.put()["id"]
        calls("take")
        calls("ack", key)
        calls.bench.pass_time(100_000)
        assert calls.state(key) == state
        if state == "Z":
            calls("kill", key)
            assert calls.state(key) == "X"


def test_1d_what_is_left_of_a_ttl_survives_a_return(declare: Declare) -> None:
    calls = declare()
    key = calls.put({"ttl": 10})["id"]
    calls("take", {"ttr": 5})
    calls.bench.pass_time(6)
    assert calls.state(key) == "R"
    calls.bench.pass_time(5)
    assert calls.state(key) == "X"


def test_2_touch_without_a_deadline_changes_nothing(declare: Declare) -> None:
    calls = declare()
    key = calls.put()["id"]
    assert calls("touch", key, {"increment": 5})["runat"] == 0
    calls("take")
    assert calls("touch", key, {"increment": 5})["runat"] == 0
    calls.bench.pass_time(60)
    assert calls.state(key) == "T"


def test_3_kick_and_dig_with_numeric_keys_and_attributes(declare: Declare) -> None:
    calls = declare()
    keys = [calls.put()["id"] for _ in range(4)]
    for key in keys:
        calls("take")
        calls("bury", key)
    taker = calls.bench.worker()
    assert calls("take", 9, by=taker) is PENDING
    assert calls("dig", 2) == 2
    assert calls.told(taker)[0]["id"] == keys[0]
    assert calls("dig", [keys[2]], {"delay": 5})["status"] == "W"
    shown = calls("dig", {"id": keys[3]}, {"update": [["=", "payload", 7]], "ttl": 5})
    assert (shown["payload"], shown["status"]) == (7, "R")
    assert calls("dig", [keys[3]]) == f"! Task {{{keys[3]}ULL}} is not buried"
    assert calls("kick", float("inf")) == 0


def test_4_kill_tells_who_waits_and_done_is_processed(declare: Declare) -> None:
    calls = declare({"keep": True})
    key = calls.put()["id"]
    waiter = calls.bench.worker()
    assert calls("wait", key, 5, by=waiter) is PENDING
    calls("kill", key)
    assert calls.told(waiter)[0][1] is False
    other = calls.put()["id"]
    calls("take")
    calls("ack", other)
    assert calls("wait", other)[1] is True


def test_5_a_task_taken_meanwhile_is_not_deleted_by_its_ttl(declare: Declare) -> None:
    calls = declare()
    keys = [calls.put({"ttl": 5})["id"] for _ in range(50)]
    calls.bench.pass_time(4.9)
    got = [calls("take", {"ttr": 100})["id"] for _ in range(20)]
    calls.bench.pass_time(1)
    assert [calls.state(key) for key in keys] == ["T"] * 20 + ["X"] * 30
    assert all(calls("ack", key)["id"] == key for key in got)
    assert not calls.bench.reports


def test_6_every_call_answers_in_the_shape_of_retval(declare: Declare) -> None:
    for retval, kind in (("table", dict), ("tuple", list)):
        calls = declare({"retval": retval})
        calls.put()
        task = calls("take")
        for name, attr in (("touch", {"increment": 1}), ("bury", None), ("dig", None)):
            task = calls(name, task, attr)
            assert type(task) is kind, name
        calls("take")
        assert type(calls("release", task)) is kind
        calls("take")
        assert type(calls("ack", task)) is kind
    strict = declare(compat="strict")
    strict.put()
    task = strict("take")
    assert type(strict("touch", task, {"increment": 1})) is list
    assert strict("bury", task) is None
    assert strict("kick", 1) is None


def test_7_a_bare_64_bit_id_is_accepted(declare: Declare) -> None:
    calls = declare()
    key = calls.put()["id"]
    assert key > 2**53
    calls("take")
    assert calls("ack", key)["id"] == key


def test_8_a_put_wakes_the_timer(declare: Declare) -> None:
    calls = declare()
    calls.put({"delay": 0.1})
    due = calls.bench.engine.next_due()
    assert due is not None
    assert due - calls.bench.engine.now == 100_000


def test_10_promotion_leaves_nothing_taken(declare: Declare) -> None:
    calls = declare()
    for _ in range(3):
        calls.put()
        calls("take")
    other = calls.bench.replica()
    other.start()
    assert [row[1] for row in other.engine.tubes["q"].space.rows.values()] == ["r"] * 3
    assert not other.engine.taken.rows


def test_11_truncate_and_undone_calls_leave_statistics_right(declare: Declare) -> None:
    calls = declare(tube_stats=["a"])
    calls.put()
    calls("take")
    calls("truncate")
    assert calls("stats")["tube"]["a"] == {
        "counts": dict.fromkeys("RTWBZD", 0),
        "transition": {},
    }
    assert not calls.bench.engine.taken.rows
    key = calls.put()["id"]
    calls("take")
    bad: Any = {"update": [["=", "payload", 1]], "delay": "soon"}
    before = calls("stats")
    assert calls("release", key, bad) == "! delay must be a number of seconds"
    assert calls("release", key, {"update": [["=", "payload", 1], ["?", "id", 1]]})[0] == "!"
    assert calls("stats") == before
    assert calls.state(key) == "T"


def test_12_a_tube_that_is_not_tracked_is_still_another_tube(declare: Declare) -> None:
    calls = declare(tube_stats=["a"])
    calls.put()
    task = calls("take")
    calls("release", task, {"update": [["=", "tube", "b"]]})
    stats = calls("stats")["tube"]
    assert stats["a"]["transition"] == {"X-R": 1, "R-T": 1, "T-S": 1}
    assert set(stats["a"]["counts"].values()) == {0}


def test_13_the_status_field_may_have_any_name(declare: Declare) -> None:
    renamed = [dict(field) for field in FORMAT]
    renamed[1]["name"] = "st"
    calls = declare(format=renamed, fields={**FIELDS, "status": "st"})
    waiter = calls.bench.worker()
    key = calls.put()["id"]
    calls("wait", key, 5, by=waiter)
    calls("take")
    calls("ack", key)
    assert calls.told(waiter)[0][1] is True


def test_14_a_default_ttl_is_kept_over_a_restart(declare: Declare) -> None:
    calls = declare({"ttl": 10})
    key = calls.put()["id"]
    calls("take")
    other = calls.bench.replica()
    other.start()
    other.pass_time(9)
    assert key in other.engine.tubes["q"].space.rows
    other.pass_time(2)
    assert key not in other.engine.tubes["q"].space.rows


def test_16_a_put_that_fails_disturbs_no_waiter(declare: Declare) -> None:
    calls = declare({"id": "required"})
    first = calls.bench.worker()
    task = {"id": 7, "priority": 0, "tube": "a"}
    assert calls("put", task, {"wait": 5}, by=first) is PENDING
    assert calls("put", task, {"wait": 5}).startswith("! Duplicate key exists")
    calls("take")
    calls("ack", 7)
    assert calls.told(first)[0][1] is True


def test_17_a_tube_dropped_and_made_again_has_no_leftovers(declare: Declare) -> None:
    calls = declare()
    calls.put({"delay": 5})
    calls.bench.call(admin.drop_tube, calls.bench.engine, calls.tube)
    calls.bench.create("q", "xqueue", **options())
    calls.bench.pass_time(60)
    assert not calls.bench.reports
    assert calls("stats")["counts"]["R"] == 0


def test_15_a_type_error_names_the_field_of_the_user(declare: Declare) -> None:
    form = [{**field, "name": f"my_{field['name']}"} for field in FORMAT]
    calls = declare(format=form, fields={name: f"my_{name}" for name in FIELDS})
    text = calls("put", {"my_priority": "high", "my_tube": "a"})
    assert text.startswith("! Tuple field 4 (my_priority) type does not match")
    bad = [*form[:3], {"name": "my_priority", "type": "string"}, *form[4:]]
    bench = calls.bench
    opts = options(format=bad, fields={name: f"my_{name}" for name in FIELDS})
    outcome = bench.call(admin.create_tube, bench.engine, "x", "xqueue", opts)
    wanted = "type mismatch for field my_priority, required num, got string"
    assert outcome.text == wanted


def test_18_owners_are_rows_and_equal_numbers_one_key(declare: Declare) -> None:
    calls = declare()
    calls.bench.call(calls.bench.engine.configure, 5, True)
    key = calls.put()["id"]
    calls("take")
    other = calls.bench.replica()
    assert [name[1] for name in other.engine.taken.rows] == [key]
    assert calls("ack", float(key) if float(key) == key else [key])["id"] == key
    assert not calls.bench.engine.taken.rows
