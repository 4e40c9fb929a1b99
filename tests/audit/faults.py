"""Faults by name: which scene they are planted in, what is changed, and the rule that names them.

Each is what a defect of a node would leave behind; sums, footers and LSNs are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tandemq.model.record import CREATE, DELETE, INSERT, INSERT_MANY, SET
from tests.audit.rewrite import KINDS, Edited, Entry
from tests.audit.scenes import SCENES
from tests.audit.stage import Stage

Edit = Callable[[Edited], None]
TAKEN, SHARED, CONFIG, KEYS, NOTES, PAUSED = 514, 516, 517, 519, 521, 523
SECOND = 1_000_000
OTHER = b"o" * 16


@dataclass(frozen=True)
class Fault:
    """scene: in which log; rule: what finds it."""

    name: str
    scene: str
    rule: str
    edit: Edit


FAULTS: dict[str, Fault] = {}


def fault(scene: str, rule: str) -> Callable[[Edit], Edit]:
    def note(edit: Edit) -> Edit:
        FAULTS[edit.__name__] = Fault(edit.__name__, scene, rule, edit)
        return edit

    return note


# -- scenes that only faults need ------------------------------------------------------------------


def leases(s: Stage) -> None:
    """A take five seconds after its put, an ack five seconds later."""
    tube = s.tube("lease", "fifottl", ttl=60, ttr=20)
    for number in range(4):
        s.put(tube, number, ttl=50)
    s.done()
    s.wait(5)
    tasks = [s.take(tube, client) for client in (1, 2)]
    s.done()
    s.wait(5)
    tube.touch(s.clients[1], tasks[0], 5)
    s.done()
    tube.ack(s.clients[1], tasks[0])
    tube.release(s.clients[2], tasks[1])
    s.done()


def backlog(s: Stage) -> None:
    """More puts than takes, from three tubes."""
    for kind in ("fifo", "fifottl", "utube"):
        tube = s.tube(f"b_{kind}", kind)
        for number in range(8):
            s.put(tube, f"p{number}", **({"utube": "u"} if kind == "utube" else {}))
        s.done()
        for client in (1, 2, 3):
            s.acked(tube, client)


def texts(s: Stage) -> None:
    """Records with text keys, taken and acked one after the other."""
    tube = s.records("q", True, id="required")
    for name in ("alpha", "beta", "delta", "gamma"):
        s.put_x(tube, id=name)
    one = s.x(tube, "take")
    two = s.x(tube, "take", 0, {"ttr": 9}, client=2)
    s.x(tube, "ack", one)
    s.x(tube, "release", two, client=2)
    two = s.x(tube, "take", client=3)
    s.x(tube, "ack", two, client=3)


EXTRA = {"leases": leases, "backlog": backlog, "texts": texts}
STAGED = {**SCENES, **EXTRA}


def about(tube_op: Any) -> int:
    """The task an op of a tube is about."""
    return tube_op[2][0] if tube_op[0] == INSERT else tube_op[2]


def drop(log: Edited, entry: Entry, code: int, space: int | None = None) -> None:
    entry.ops.remove(log.op(entry, code, space))


# -- the life of a task ----------------------------------------------------------------------------


@fault("backlog", "id_hole")
def a_task_is_gone_without_a_trace(log: Edited) -> None:
    del log.entries[log.at("put", 6)]


@fault("backlog", "unknown_task")
def the_last_put_is_missing_and_its_task_is_taken(log: Edited) -> None:
    place = log.at("put", 7)
    op = log.op(log.entries[place], INSERT)
    del log.entries[place]
    taker = log.one("take")
    own = [INSERT, TAKEN, [0, op[2][0], 2, taker.record[2], taker.record[0] + 9]]
    log.add(len(log.entries), "take", taker.record[2], [SET, op[1], op[2][0], 1, "t"], own)


@fault("backlog", "put_twice")
def a_put_stands_twice(log: Edited) -> None:
    place = log.at("put", 5)
    log.add(place + 1, "put", log.entries[place].record[2], *log.copy().entries[place].ops)


@fault("backlog", "double_ack")
def an_ack_stands_twice(log: Edited) -> None:
    place = log.at("ack")
    entry = log.entries[place]
    log.add(place + 1, "ack", entry.record[2], log.op(entry, DELETE))


@fault("backlog", "revived")
def a_task_is_taken_after_its_ack(log: Edited) -> None:
    take, place = log.one("take"), log.at("ack")
    log.add(place + 1, "take", take.record[2], *log.copy().one("take").ops)


@fault("backlog", "id_reused")
def an_id_is_given_again(log: Edited) -> None:
    place = log.at("ack")
    put = log.copy().one("put")
    log.add(place + 1, "put", put.record[2], *put.ops)


@fault("backlog", "two_holders")
def a_task_is_handed_out_twice(log: Edited) -> None:
    place = log.at("take")
    op = log.op(log.entries[place], SET)
    own = [INSERT, TAKEN, [0, op[2], 9, OTHER, log.entries[place].record[0] + 5]]
    log.add(place + 1, "take", OTHER, list(op), own)


@fault("backlog", "not_held")
def a_take_is_missing(log: Edited) -> None:
    del log.entries[log.at("take", 1)]


@fault("backlog", "not_held")
def a_task_that_nobody_holds_is_released(log: Edited) -> None:
    put = log.op(log.one("put", 6), INSERT)
    log.add(log.at("ack"), "release", OTHER, [SET, put[1], put[2][0], 1, "r"])


@fault("backlog", "vanished")
def a_take_removes_its_task(log: Edited) -> None:
    entry = log.one("take", 1)
    op = log.op(entry, SET)
    entry.ops[entry.ops.index(op)] = [DELETE, op[1], op[2]]


@fault("everyday_fifo", "took_buried")
def a_buried_task_is_taken(log: Edited) -> None:
    place = log.at("bury")
    op = log.op(log.entries[place], SET)
    log.add(place + 1, "take", OTHER, [SET, op[1], op[2], 1, "t"])


@fault("everyday_fifo", "not_buried")
def a_taken_task_is_kicked(log: Edited) -> None:
    place = log.at("take")
    op = log.op(log.entries[place], SET)
    log.add(place + 1, "kick", None, [SET, op[1], op[2], 1, "r"])


@fault("times_fifottl", "took_delayed")
def a_task_is_taken_before_its_delay_is_over(log: Edited) -> None:
    place = log.at("put")
    op = log.op(log.entries[place], INSERT)
    assert op[2][1] == "~"
    log.add(place + 1, "take", OTHER, [SET, op[1], op[2][0], 1, "t"])


@fault("backlog", "not_delayed")
def a_delay_ends_that_never_began(log: Edited) -> None:
    op = log.op(log.one("put"), INSERT)
    log.add(log.at("put") + 1, "delay", None, [SET, op[1], op[2][0], 1, "r"])


@fault("lanes_of_queue15", "took_finished")
def an_executed_task_of_queue15_is_taken(log: Edited) -> None:
    done = log.at("other", 0, lambda entry: any(op[0] == SET and "*" in op for op in entry.ops))
    op = log.op(log.entries[done], SET)
    log.add(done + 1, "take", OTHER, [SET, op[1], op[2], 1, "t", 12, 2])


@fault("backlog", "wrong_state")
def a_take_leaves_its_task_ready(log: Edited) -> None:
    log.op(log.one("take"), SET)[4] = "r"


@fault("everyday_fifo", "wrong_state")
def a_bury_makes_its_task_ready(log: Edited) -> None:
    log.op(log.one("bury"), SET)[4] = "r"


@fault("backlog", "wrong_kind")
def a_put_says_that_it_is_a_take(log: Edited) -> None:
    log.one("put", 3).record[1] = KINDS["take"]


@fault("backlog", "wrong_number")
def a_take_takes_two(log: Edited) -> None:
    entry = log.one("take")
    op = log.op(entry, SET)
    entry.ops.append([SET, op[1], op[2] + 1, 1, "t"])


@fault("backlog", "strange_row")
def a_row_lacks_a_field(log: Edited) -> None:
    del log.op(log.one("put", 10), INSERT)[2][4]


@fault("backlog", "strange_row")
def a_task_is_in_a_state_nobody_knows(log: Edited) -> None:
    log.op(log.one("put", 3), INSERT)[2][1] = "?"


# -- sessions and owners ---------------------------------------------------------------------------


@fault("backlog", "ack_by_other")
def a_session_acks_what_another_holds(log: Edited) -> None:
    log.one("ack").record[2] = log.one("take", 1).record[2]


@fault("leases", "release_by_other")
def a_session_releases_what_another_holds(log: Edited) -> None:
    log.one("release").record[2] = log.one("take").record[2]


@fault("leases", "touch_by_other")
def a_session_touches_what_another_holds(log: Edited) -> None:
    log.one("touch").record[2] = log.one("take", 1).record[2]


@fault("lanes_of_queue15", "bury_by_other")
def a_session_buries_what_another_holds(log: Edited) -> None:
    log.one("bury").record[2] = OTHER


@fault("backlog", "no_session")
def a_take_is_on_behalf_of_nobody(log: Edited) -> None:
    log.one("take").record[2] = None


@fault("backlog", "unknown_session")
def a_session_is_written_down_nowhere(log: Edited) -> None:
    for kind in ("take", "ack"):
        entry = log.one(kind, 2)
        entry.record[2] = OTHER
        for op in entry.ops:
            if op[:2] == [INSERT, TAKEN]:
                op[2][3] = OTHER
    entry = log.one("take", 2)
    entry.ops[:] = [op for op in entry.ops if op[1] != SHARED]


@fault("sessions_shared", "released_of_other")
def a_session_ends_and_gives_back_what_another_holds(log: Edited) -> None:
    entry = log.one("session", -1)
    take = log.one("take", -1)
    op = log.op(take, SET)
    place = log.entries.index(take) + 1
    log.add(place, "session", OTHER, [SET, op[1], op[2], 1, "r", 2, op[6]])
    assert entry.kind == "session"


@fault("backlog", "owner_wrong")
def nobody_is_written_down_as_the_owner(log: Edited) -> None:
    drop(log, log.one("take", 1), INSERT, TAKEN)


@fault("backlog", "owner_wrong")
def another_session_is_written_down_as_the_owner(log: Edited) -> None:
    log.op(log.one("take", 1), INSERT, TAKEN)[2][3] = OTHER


@fault("backlog", "owner_left")
def an_ack_leaves_the_owner(log: Edited) -> None:
    drop(log, log.one("ack"), DELETE, TAKEN)


@fault("backlog", "stray_owner")
def an_owner_of_nothing_comes(log: Edited) -> None:
    log.one("put", 5).ops.append([INSERT, TAKEN, [0, 77, 1, OTHER, 5]])


@fault("backlog", "token_repeated")
def a_token_is_given_twice(log: Edited) -> None:
    first = log.op(log.one("take"), INSERT, TAKEN)[2][4]
    log.op(log.one("take", 1), INSERT, TAKEN)[2][4] = first


@fault("sessions_shared", "session_early")
def a_session_ends_while_it_may_be_claimed(log: Edited) -> None:
    left = log.at("session", 0, lambda e: any(op[:2] == [SET, SHARED] for op in e.ops))
    session = log.op(log.entries[left], SET, SHARED)[2]
    log.add(left + 1, "session", session, [DELETE, SHARED, session])


@fault("sessions_shared", "session_times")
def a_session_is_kept_for_another_time(log: Edited) -> None:
    left = log.one("session", 0, lambda e: any(op[:2] == [SET, SHARED] for op in e.ops))
    log.op(left, SET, SHARED)[4] += 7 * SECOND


@fault("sessions_shared", "held_by_nobody")
def a_session_ends_and_its_task_stays_taken(log: Edited) -> None:
    ended = log.one("session", -1)
    ended.ops[:] = [op for op in ended.ops if op[1] == SHARED]


@fault("sessions_shared", "empty_session")
def a_record_of_a_session_holds_nothing(log: Edited) -> None:
    log.one("session", -1).ops.clear()


@fault("switch_over", "released_early")
def a_promotion_gives_back_a_shared_sessions_task(log: Edited) -> None:
    take, term = log.one("take"), log.one("term", 1)
    op = log.op(take, SET)
    put = next(
        log.op(e, INSERT) for e in log.entries
        if e.kind == "put" and log.op(e, INSERT)[2][0] == op[2]
    )  # fmt: skip
    term.ops.append([SET, op[1], op[2], 1, "r", 2, put[2][2]])
    term.ops.append([DELETE, TAKEN, [0, op[2]]])


# -- moments ---------------------------------------------------------------------------------------


@fault("leases", "late_ack")
def an_ack_comes_behind_its_ttr(log: Edited) -> None:
    log.shift(log.at("ack"), 30 * SECOND)


@fault("leases", "late_take")
def a_take_comes_behind_the_ttl(log: Edited) -> None:
    log.shift(log.at("take"), 60 * SECOND)


@fault("times_fifottl", "too_early")
def a_task_expires_before_its_ttl(log: Edited) -> None:
    place = log.at("put", 2)
    op = log.op(log.entries[place], INSERT)
    log.add(place + 1, "ttl", None, [DELETE, op[1], op[2][0]])


@fault("leases", "too_early")
def a_ttl_comes_too_early_after_a_release(log: Edited) -> None:
    op = log.op(log.one("release"), SET)
    log.add(log.at("release") + 1, "ttl", None, [DELETE, op[1], op[2]], later=5 * SECOND)


@fault("leases", "too_early")
def a_holder_loses_its_task_before_its_ttr(log: Edited) -> None:
    place = log.at("take", 1)
    op = log.op(log.entries[place], SET)
    ready = log.op(log.one("release"), SET)
    log.add(place + 1, "ttr", None, list(ready), [DELETE, TAKEN, [0, op[2]]], later=SECOND)


@fault("times_fifottl", "too_early")
def a_delay_is_cut_short(log: Edited) -> None:
    place = log.at("delay")
    delay = log.entries.pop(place)
    put = log.at("put")
    delay.record[0] = log.entries[put].record[0]
    log.entries.insert(put + 1, delay)


def _moment(kind: str, nth: int, name: str) -> None:
    def edit(log: Edited) -> None:
        entry = log.one(kind, nth)
        op = log.op(entry, (INSERT, SET))
        if op[0] == INSERT:
            op[2][2] += SECOND
        else:
            op[op.index(2, 3) + 1] += SECOND

    edit.__name__ = name
    fault("leases" if kind != "bury" else "everyday_fifottl", "wrong_deadline")(edit)


_moment("put", 2, "a_puts_deadline_is_wrong")
_moment("take", 1, "a_takes_deadline_is_wrong")
_moment("touch", 0, "a_touchs_deadline_is_wrong")
_moment("release", 0, "a_releases_deadline_is_wrong")
_moment("bury", 0, "a_burials_deadline_is_wrong")


@fault("leases", "wrong_creation")
def a_task_was_made_at_another_time(log: Edited) -> None:
    row = log.op(log.one("put", 2), INSERT)[2]
    row[6] += SECOND
    row[2] += SECOND


def _field(at: int, value: Any, name: str, scene: str = "leases") -> None:
    def edit(log: Edited) -> None:
        log.op(log.one("take", 1), SET).extend([at, value])

    edit.__name__ = name
    fault(scene, "field_changed")(edit)


_field(7, b"\xa1x", "a_take_changes_the_payload")
_field(5, 3, "a_take_changes_the_priority")
_field(3, 99 * SECOND, "a_take_changes_the_ttl")
_field(4, 99 * SECOND, "a_take_changes_the_ttr")


@fault("batches_utube", "field_changed")
def a_take_changes_the_sub_queue(log: Edited) -> None:
    log.op(log.one("take_many"), SET).extend([2, "elsewhere"])


# -- queues ----------------------------------------------------------------------------------------


def _exchange(log: Edited, one: int, other: int) -> None:
    """Two takes hand out each other's tasks, and so the acks behind them."""
    entries = [log.entries[place] for place in (one, other)]
    ops = [log.op(entry, (SET, DELETE)) for entry in entries]
    ops[0][2], ops[1][2] = ops[1][2], ops[0][2]
    for entry in entries:
        task = log.op(entry, (SET, DELETE))[2]
        for op in entry.ops:
            if op[1] == TAKEN:
                key = op[2]
                key[1] = task


@fault("backlog", "order_break")
def two_tasks_are_handed_out_the_wrong_way_round(log: Edited) -> None:
    _exchange(log, log.at("take"), log.at("take", 1))
    _exchange(log, log.at("ack"), log.at("ack", 1))


@fault("backlog", "passed_over")
def a_ready_task_is_passed_over_for_ever(log: Edited) -> None:
    for kind in ("take", "ack"):
        entry = log.one(kind, 1)
        op = log.op(entry, (SET, DELETE))
        op[2] += 5
        for other in entry.ops:
            if other[1] == TAKEN:
                other[2][1] += 5


@fault("batches_fifottl", "order_break")
def a_take_of_many_leaves_out_the_first(log: Edited) -> None:
    entry = log.one("take_many")
    taken = [op for op in entry.ops if op[0] == SET]
    owned = log.op(entry, INSERT_MANY, TAKEN)[2]
    last = [n for n in range(20) if n not in [op[2] for op in taken]][-1]
    owned[0][1] = taken[0][2] = last


@fault("backlog", "utube_overlap")
def two_tasks_of_a_sub_queue_are_out(log: Edited) -> None:
    place = log.at("take", 6)
    op = log.op(log.entries[place], SET)
    own = log.op(log.entries[place], INSERT, TAKEN)
    row = [*own[2]]
    row[1], row[4] = op[2] + 1, row[4] + 1
    session = log.entries[place].record[2]
    log.add(place + 1, "take", session, [SET, op[1], op[2] + 1, 1, "t"], [INSERT, TAKEN, row])


@fault("room", "over_capacity")
def a_tube_holds_more_than_its_capacity(log: Edited) -> None:
    def small(entry: Entry) -> bool:
        return log.op(entry, INSERT)[1] == log.op(log.one("put"), INSERT)[1]

    op = log.clone(log.one("put", 1, small), INSERT)
    op[2][0] += 1
    log.add(log.at("put", 1, small) + 1, "put", None, op)


@fault("pauses", "paused")
def a_task_is_put_while_puts_are_paused(log: Edited) -> None:
    op = log.clone(log.one("put"), INSERT)
    op[2][0] += 1
    place = log.at("config", 0, lambda e: any(o[:2] == [INSERT, PAUSED] for o in e.ops))
    log.add(place + 1, "put", None, op)


@fault("pauses", "paused")
def a_task_is_taken_while_takes_are_paused(log: Edited) -> None:
    op = log.op(log.one("put"), INSERT)
    place = log.at("config", 1, lambda e: any(o[:2] == [INSERT, PAUSED] for o in e.ops))
    log.add(place + 1, "take", OTHER, [SET, op[1], op[2][0], 1, "t"])


# -- attempts and dead letters ---------------------------------------------------------------------


@fault("policy_fifo", "attempts_count")
def a_failed_attempt_is_not_counted(log: Edited) -> None:
    drop(log, log.one("release"), INSERT, NOTES)


@fault("policy_fifo", "attempts_count")
def a_failed_attempt_counts_twice(log: Edited) -> None:
    log.op(log.one("release"), INSERT, NOTES)[2][2] += 1


@fault("policy_fifo", "note_time")
def a_note_is_of_another_time(log: Edited) -> None:
    log.op(log.one("release"), INSERT, NOTES)[2][4] += 1


@fault("policy_fifo", "gave_up")
def a_task_is_given_up_too_early(log: Edited) -> None:
    log.op(log.one("release"), SET)[4] = "!"


@fault("policy_fifo", "gave_up")
def a_task_is_tried_once_too_often(log: Edited) -> None:
    entry = log.one("release", 0, lambda e: any(op[0] == SET and "!" in op for op in e.ops))
    log.op(entry, SET)[4] = "r"


def _given_up(log: Edited) -> Entry:
    return log.one("release", 0, lambda e: any(op[0] == DELETE and op[1] >= 1024 for op in e.ops))


@fault("dead_letters_fifo", "dead_letter_lost")
def a_dead_letter_never_enters_its_tube(log: Edited) -> None:
    entry = _given_up(log)
    drop(log, entry, INSERT)
    drop(log, entry, INSERT, NOTES)


@fault("dead_letters_fifottl", "dead_letter_changed")
def a_dead_letter_has_another_payload(log: Edited) -> None:
    log.op(_given_up(log), INSERT)[2][-1] = b"\x2a"


@fault("dead_letters_utube", "dead_letter_changed")
def a_dead_letter_says_it_was_tried_more_often(log: Edited) -> None:
    log.op(_given_up(log), INSERT, NOTES)[2][7] += 1


@fault("dead_letters_fifo", "dead_letter_lost")
def a_dead_letter_names_another_origin(log: Edited) -> None:
    log.op(_given_up(log), INSERT, NOTES)[2][6] += 1


@fault("dead_letters_fifo", "note_left")
def the_note_of_a_task_that_is_gone_stays(log: Edited) -> None:
    drop(log, _given_up(log), DELETE, NOTES)


@fault("policy_fifo", "stray_note")
def a_note_comes_from_nowhere(log: Edited) -> None:
    log.one("put", 3).ops.append([INSERT, NOTES, [1, 77, 1, "x", 1, "", 0, 0]])


@fault("dead_letters_fifo", "note_changed")
def a_notes_origin_changes(log: Edited) -> None:
    entry = _given_up(log)
    op, note = log.op(entry, INSERT), log.op(entry, INSERT, NOTES)
    row = note[2]
    change = [SET, NOTES, row[:2], 5, "elsewhere"]
    log.add(log.entries.index(entry) + 1, "other", None, [SET, op[1], row[1], 1, "r"], change)


# -- keys ------------------------------------------------------------------------------------------


@fault("keys_and_headers", "key_twice")
def a_key_is_used_twice_in_its_window(log: Edited) -> None:
    place = log.at("put", 1)
    op = log.clone(log.entries[place], INSERT)
    op[2][0] += 1
    key = log.clone(log.one("put"), INSERT, KEYS)
    key[2][2] = op[2][0]
    log.add(place + 1, "put", None, op, key)


@fault("keys_and_headers", "key_early")
def a_key_is_forgotten_too_early(log: Edited) -> None:
    key = log.op(log.one("put"), INSERT, KEYS)
    log.add(log.at("put") + 1, "other", None, [DELETE, KEYS, key[2][:2]])


@fault("keys_and_headers", "key_of_no_task")
def a_key_stands_for_another_task(log: Edited) -> None:
    log.op(log.one("put"), INSERT, KEYS)[2][2] += 50


@fault("keys_and_headers", "key_of_no_task")
def a_keys_window_is_over_before_it_begins(log: Edited) -> None:
    log.op(log.one("put"), INSERT, KEYS)[2][3] = 5


@fault("keys_and_headers", "key_changed")
def what_a_key_stands_for_changes(log: Edited) -> None:
    key = log.op(log.one("put"), INSERT, KEYS)
    log.one("put", 1).ops.append([SET, KEYS, key[2][:2], 2, 1])


# -- queue15 and xqueue ----------------------------------------------------------------------------


@fault("lanes_of_queue15", "wrong_count")
def queue15_does_not_count_a_take(log: Edited) -> None:
    op = log.op(log.one("take", 2), SET)
    op[op.index(12, 3) + 1] += 1


@fault("lanes_of_queue15", "wrong_deadline")
def a_take_of_queue15_has_a_wrong_deadline(log: Edited) -> None:
    op = log.op(log.one("take"), SET)
    op[op.index(4, 3) + 1] += SECOND


@fault("lanes_of_queue15", "field_changed")
def a_take_of_queue15_changes_the_priority(log: Edited) -> None:
    log.op(log.one("take"), SET).extend([6, 1])


@fault("texts", "two_holders")
def a_record_with_a_text_key_is_handed_out_twice(log: Edited) -> None:
    place = log.at("take")
    op = log.op(log.entries[place], SET)
    log.add(place + 1, "take", OTHER, list(op))


@fault("texts", "ack_by_other")
def another_session_acks_a_record_with_a_text_key(log: Edited) -> None:
    log.one("ack").record[2] = OTHER


@fault("texts", "order_break")
def records_with_text_keys_come_out_of_order(log: Edited) -> None:
    _exchange(log, log.at("take"), log.at("take", 1))
    _exchange(log, log.at("ack"), log.at("release"))
    for entry in (log.one("take", 2), log.one("ack", 1)):
        for op in entry.ops:
            if op[1] >= 1024:
                op[2] = "alpha"
            elif op[1] == TAKEN:
                op[2][1] = "alpha"


@fault("texts", "wrong_deadline")
def a_records_moment_means_nothing(log: Edited) -> None:
    entry = log.one("take", 1)
    op = log.op(entry, SET)
    op[op.index(3, 3) + 1] = "x"


@fault("texts", "unknown_task")
def a_record_that_was_never_put_is_taken(log: Edited) -> None:
    log.op(log.one("take", 2), SET)[2] = "omega"


@fault("backlog", "system_session")
def a_tube_is_made_on_behalf_of_a_session(log: Edited) -> None:
    log.one("create_tube").record[2] = OTHER


@fault("policy_fifottl", "note_changed")
def a_failure_gives_its_task_an_origin(log: Edited) -> None:
    log.op(log.one("release"), INSERT, NOTES)[2][5] = "elsewhere"


@fault("backlog", "strange_op")
def a_setting_has_a_name_nobody_knows(log: Edited) -> None:
    log.op(log.one("config"), INSERT, CONFIG)[2][0] = "nonsense"


@fault("backlog", "strange_op")
def the_schema_skips_a_version(log: Edited) -> None:
    log.op(log.one("create_tube", 1), SET, CONFIG)[4] += 1


# -- the log ---------------------------------------------------------------------------------------


@fault("backlog", "clock")
def the_clock_runs_backwards(log: Edited) -> None:
    log.one("put", 9).record[0] -= 5 * SECOND


@fault("switch_over", "term_missing")
def a_terms_opening_record_is_missing(log: Edited) -> None:
    del log.entries[log.at("term", 1)]


@fault("switch_over", "forked_lineage")
def a_term_names_another_parent(log: Edited) -> None:
    log.terms[1] = log.terms[1]._replace(parent=b"?" * 16)


@fault("switch_over", "forked_lineage")
def a_terms_record_is_not_its_segments(log: Edited) -> None:
    log.one("term", 1).ops[0][2] = b"?" * 16


@fault("switch_over", "term_order")
def a_term_of_a_smaller_number_comes_later(log: Edited) -> None:
    log.terms[2] = log.terms[2]._replace(number=0)


@fault("backlog", "strange_op")
def an_op_changes_a_space_that_is_not_there(log: Edited) -> None:
    log.op(log.one("put", 3), INSERT)[1] = 4711


@fault("backlog", "strange_tube")
def two_tubes_have_one_id(log: Edited) -> None:
    log.op(log.one("create_tube", 1), INSERT, 512)[2][1] = 0


@fault("backlog", "strange_tube")
def a_tube_is_in_no_list(log: Edited) -> None:
    drop(log, log.one("create_tube", 1), INSERT, 512)
    assert log.op(log.one("create_tube", 1), CREATE)


@fault("pauses", "system_kind")
def a_pause_is_written_by_a_put(log: Edited) -> None:
    log.one("put").ops.append([INSERT, PAUSED, [0, True, False]])
