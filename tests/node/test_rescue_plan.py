"""What a cut held follows from its rows: whatever call brought a task, it can be replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from tandemq.log.disk import write_file
from tandemq.log.rescue import rescue_names
from tandemq.model.errors import StorageError
from tandemq_server.engine import admin, attempts, batches, listing
from tandemq_server.engine.finish import finish
from tandemq_server.facades.queue15.spaces import Space15
from tandemq_server.node.loop.rescue_files import Rescued, RescueFiles, Unreadable
from tandemq_server.node.observe.replaying import (
    NotSendable,
    id_of,
    is_buried,
    is_done,
    options_of,
    sending,
    shown,
)
from tandemq_server.replication.replay import ReplayPlan, RescuedTask
from tandemq_server.replication.rescue import encode_rescue
from tandemq_server.storage.memory import MemoryDisk
from tests.node.storage_life import Life
from tests.simulation.sim_rescue import read_all
from tests.xqueue.xqueue_bench import FIELDS, FORMAT, TEXT_FORMAT

DATA = msgpack.packb("payload")
#: A string that is not UTF-8, and an extension nobody knows.
ODD = [b"\xa3\xff\xfea", b"\xc7\x02\x63\x01\x02", b"\xd4\x05\x00"]


def begun() -> tuple[Life, int]:
    """A node that serves, with a task `0` of `jobs`, and the fork behind it."""
    life = Life(MemoryDisk()).lead(1)
    life.tube("dead")
    life.tube("jobs", max_attempts=1, dead_letter="dead")
    life.tube("other")
    for name in ("jobs", "other"):
        life.tube(name).put(life.worker, 0, msgpack.packb(f"old {name}"))
    life.flush()
    return life, life.engine.lsn


def cut(life: Life, fork: int) -> ReplayPlan:
    life.flush()
    life.rewind(fork)
    (one,) = RescueFiles(life.disk).cuts()
    assert isinstance(one, Rescued)
    return RescueFiles(life.disk).plan(one)


def told(plan: ReplayPlan) -> list[tuple[str, Any]]:
    return [(task.tube, shown(task)) for task in plan.tasks]


def nobody(_name: str) -> None:
    """Everybody may put everywhere."""


def test_what_finish_put() -> None:
    life, fork = begun()
    jobs = life.tube("jobs")
    jobs.take(life.worker, 0, 0)
    puts = [(life.tube("other"), DATA, None), (jobs, msgpack.packb([1]), None)]
    finish(jobs, life.worker, 0, puts)
    plan = cut(life, fork)
    assert told(plan) == [("other", "payload"), ("jobs", [1])]
    assert plan.finished == ((jobs.space.id, 0),)
    assert plan.calls == {"take": 1, "finish": 1}


def test_a_dead_letter_and_a_redriven_one() -> None:
    life, fork = begun()
    jobs, dead = life.tube("jobs"), life.tube("dead")
    jobs.take(life.worker, 0, 0)
    jobs.release(life.worker, 0, None)
    plan = cut(life, fork)
    assert told(plan) == [("dead", "old jobs")]
    assert plan.finished == ((jobs.space.id, 0),)

    life, fork = begun()
    jobs, dead = life.tube("jobs"), life.tube("dead")
    jobs.take(life.worker, 0, 0)
    jobs.release(life.worker, 0, None)
    life.flush()
    fork = life.engine.lsn
    assert attempts.redrive(dead, life.worker, None, None, nobody) == 1
    plan = cut(life, fork)
    assert told(plan) == [("jobs", "old jobs")]
    assert plan.finished == ((dead.space.id, 0),)


def test_a_bulk_move() -> None:
    life, fork = begun()
    other = life.tube("other")
    found = listing.bulk(life.tube("jobs"), life.worker, "move", {"to": "other"}, nobody)
    assert found["count"] == 1
    assert told(cut(life, fork)) == [("other", "old jobs")]
    assert other.name == "other"


def test_what_happened_to_older_tasks_is_told() -> None:
    life, fork = begun()
    jobs, other = life.tube("jobs"), life.tube("other")
    jobs.take(life.worker, 0, 0)
    other.truncate(life.worker)
    plan = cut(life, fork)
    assert plan.tasks == plan.finished == ()
    assert plan.changed == {(jobs.space.id, 0): {1: "t"}}
    assert plan.emptied == (other.space.id,)
    assert plan.calls == {"take": 1, "truncate": 1}


def test_a_batch_that_was_taken_and_in_part_finished() -> None:
    """Each of its tasks is told of, and by the dump in whose hands each was."""
    life, fork = begun()
    admin.cfg(life.engine, {"ttr": 60, "in_replicaset": True})
    jobs = life.tube("jobs")
    for number in range(1, 4):
        jobs.put(life.worker, 0, msgpack.packb(number))
        if number == 2:
            life.flush()
            fork = life.engine.lsn
    assert batches.take_many(jobs, life.worker, 0, 4, 0) is not None
    assert batches.ack_many(jobs, life.worker, [0, 3]) == 2
    plan = cut(life, fork)
    assert plan.tasks == ()
    assert plan.finished == ((jobs.space.id, 0),)
    assert {key: fields[1] for key, fields in plan.changed.items()} == {
        (jobs.space.id, 1): "t",
        (jobs.space.id, 2): "t",
    }
    assert plan.calls == {"put": 1, "take_many": 1, "ack_many": 1}
    read = read_all({"a": [life.disk]}, ("dead", "jobs", "other"))
    assert {one for one in read.hands if one[2] == "take"} == {
        ("jobs", task, "take") for task in range(4)
    }
    assert set(read.again) == {("jobs", 0)}
    assert not read.put


def test_a_batch_of_the_cut_itself_is_put_again_whole() -> None:
    life, fork = begun()
    jobs = life.tube("jobs")
    jobs.take(life.worker, 0, 0)
    batches.put_many(jobs, life.worker, [(msgpack.packb(number), None) for number in range(3)])
    batches.take_many(jobs, life.worker, 0, 3, 0)
    plan = cut(life, fork)
    assert told(plan) == [("jobs", 0), ("jobs", 1), ("jobs", 2)]
    assert [task.row[1] for task in plan.tasks] == ["t"] * 3
    assert plan.calls == {"take": 1, "put_many": 1, "take_many": 1}


def replayed(tasks: tuple[RescuedTask, ...]) -> list[tuple[str, Any]]:
    return [(sending(task).call, sending(task).args) for task in tasks]


@pytest.mark.parametrize("form", [FORMAT, TEXT_FORMAT], ids=["numbers", "text keys"])
@pytest.mark.parametrize("given", ["text", 7, [1, {"a": None}], b"\x00\xff", {"k": [True]}])
def test_records_of_xqueue(form: Any, given: Any) -> None:
    life = Life(MemoryDisk()).lead(1)
    features = {"id": "required", "ttl": True}
    tube = life.tube("recs", "xqueue", format=form, fields=FIELDS, features=features)
    fork = life.engine.lsn
    key = 5 if form is FORMAT else "kéy"
    task = {"id": key, "priority": 3, "tube": "lane", "payload": given}
    tube.put_record(life.worker, 0, task, {"ttl": 60})
    (found,) = cut(life, fork).tasks
    assert found.task_id == key
    assert options_of(found) == {"ttl": 60.0}
    wanted = sending(found)
    assert wanted.call == "box.space.recs:put"
    sent, options = (msgpack.unpackb(one) for one in wanted.args)
    assert sent == task
    life.engine.start()
    answer = tube_again(life, "recs").put_record(life.worker, 0, sent, options)
    assert id_of(found, msgpack.packb(answer[0])) == key
    if not isinstance(given, bytes):
        assert shown(found)["payload"] == given


def tube_again(life: Life, name: str) -> Any:
    return life.engine.tubes[name]


@pytest.mark.parametrize("odd", ODD)
def test_payloads_no_connector_can_send_are_sent_as_they_were(odd: bytes) -> None:
    life = Life(MemoryDisk()).lead(1)
    life.tube("jobs", "fifottl")
    life.tube("queue15_1", "queue15")
    fork = life.engine.lsn
    life.tube("jobs").put(life.worker, 0, odd, {"pri": 2, "ttl": 9})
    data = b"\x92" + odd + msgpack.packb("second")
    Space15(life.engine, life.worker, "queue15_1").put(["lane", 0, 50, 20, 7], data)
    first, second = cut(life, fork).tasks
    call = sending(first)
    assert (call.call, call.args[0]) == ("queue.tube.jobs:put", odd)
    assert msgpack.unpackb(call.args[1]) == {"pri": 2, "ttl": 9.0}
    call = sending(second)
    assert call.call == "queue15.put"
    assert [msgpack.unpackb(one) for one in call.args[:6]] == [
        "queue15_1", "lane", 0, 50.0, 20.0, 7,
    ]  # fmt: skip
    assert call.args[6:] == [odd, msgpack.packb("second")]
    assert isinstance(shown(second), str), "what JSON does not have is shown as text"


def test_headers_and_states() -> None:
    life = Life(MemoryDisk()).lead(1)
    jobs = life.tube("jobs")
    features = {"id": "auto_increment", "keep": True}
    kept = life.tube("kept", "xqueue", format=FORMAT, fields=FIELDS, features=features)
    fork = life.engine.lsn
    jobs.put(life.worker, 0, DATA, {"headers": {"tenant": "a"}})
    jobs.take(life.worker, 0, 0)
    jobs.bury(life.worker, 0)
    kept.put_record(life.worker, 0, {"priority": 1, "tube": "", "payload": "x"})
    kept.take_record(life.worker, 0, 0, None)
    kept.ack_record(life.worker, 1, None)
    first, second = cut(life, fork).tasks
    assert options_of(first) == {"headers": {"tenant": "a"}}
    assert (is_buried(first), is_done(first)) == (True, False)
    assert (is_buried(second), is_done(second)) == (False, True)


def test_notes_without_the_declaration_look_for_it_in_the_directory() -> None:
    life = Life(MemoryDisk()).lead(1)
    features = {"id": "required"}
    tube = life.tube("recs", "xqueue", format=TEXT_FORMAT, fields=FIELDS, features=features)
    fork = life.engine.lsn
    tube.put_record(life.worker, 0, {"id": "a", "priority": 1, "tube": "", "payload": "text"})
    (task,) = cut(life, fork).tasks
    with pytest.raises(NotSendable, match="declaration"):
        sending(replace(task, tube_options={}))
    files = RescueFiles(life.disk)
    (one,) = files.cuts()
    assert isinstance(one, Rescued)
    older = replace(one, note=replace(one.note, options={}))
    assert files.plan(older).tasks == (task,)


def test_one_bad_cut_hides_no_other() -> None:
    life, fork = begun()
    life.put(3)
    cut(life, fork)
    (good,) = RescueFiles(life.disk).cuts()
    assert isinstance(good, Rescued)
    write_file(life.disk, "rescue/0000000009-00000000000000000001.note", b"rubbish")
    lost = replace(good.note, first_lsn=good.note.last_lsn + 1, last_lsn=good.note.last_lsn + 5)
    write_file(life.disk, "rescue/0000000008-00000000000000000001.note", encode_rescue(lost, ()))
    files = RescueFiles(life.disk)
    found = {one.name: one for one in files.cuts()}
    assert len(found) == 3
    assert found[good.name] == good
    assert len(files.plan(good).tasks) == 3
    bad = found["0000000009-00000000000000000001"]
    assert isinstance(bad, Unreadable)
    assert "the head is cut short" in bad.problem


def test_two_terms_of_one_number_are_two_cuts() -> None:
    """Files named by number and LSN alone overwrote each other."""
    life, fork = begun()
    for name in (b"m" * 16, b"n" * 16):
        life.lead(2, name)
        life.put(2, "other")
        life.rewind(fork)
        life.engine.start()
    cuts = RescueFiles(life.disk).cuts()
    assert len(cuts) == 2
    assert len(rescue_names(life.disk)) == 2
    plans = [RescueFiles(life.disk).plan(one) for one in cuts if isinstance(one, Rescued)]
    assert [len(plan.tasks) for plan in plans] == [2, 2]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_cut_that_lacks_a_record_is_not_called_whole(last: int) -> None:
    """Were it the very last one alone."""
    life = Life(MemoryDisk()).lead(1)
    life.tube()
    fork = life.put(1)[0]
    lsns = life.put(3)
    life.rewind(fork)
    (name,) = rescue_names(life.disk)
    held = life.disk._entries[name].data
    at = bytes(held).rindex(b"payload of %d" % lsns[last])
    held[at] ^= 0xFF
    (found,) = RescueFiles(life.disk).cuts()
    assert isinstance(found, Rescued)
    with pytest.raises(StorageError):
        RescueFiles(life.disk).plan(found)
