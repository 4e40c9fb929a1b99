"""The outside judge: silent over what a queue may do, and sees what it may not.

Each planted violation is a history with one thing wrong, next to the same history without it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.judge.judge_runs import Line, Story, ToyQueue, clean, judge, without, write


def lose(story: Story) -> None:
    without(story, "take", 2)
    without(story, "ack", 2)


def take_twice(story: Story) -> None:
    story.op("take", 0, 25, 26, client="w1")


def take_after_the_end(story: Story) -> None:
    story.op("take", 0, 32, 33, client="w1")


def ack_twice(story: Story) -> None:
    story.op("ack", 0, 32, 33)


def accept_a_stale_ack(story: Story) -> None:
    """w0 has released it, w1 has it, and w0 finishes it."""
    without(story, "ack", 1)
    story.op("ack", 1, 62, 63)


def accept_a_stale_token(story: Story) -> None:
    without(story, "ack", 2)
    story.lines[-2]["token"] = 8
    story.op("ack", 2, 90, 91, token=7)


def swap_in_the_sub_queue(story: Story) -> None:
    for line in story.lines:
        if line.get("began_us", 0) >= 40_000 and line.get("task") in (1, 2):
            line["task"] = line["payload"] = 3 - line["task"]


def two_of_a_sub_queue(story: Story) -> None:
    without(story, "take", 2)
    story.op("take", 2, 62, 63)


def store_twice(story: Story) -> None:
    story.op("take", 9, 95, 96, payload=2)
    story.op("ack", 9, 97, 98, payload=2)


def give_an_id_twice(story: Story) -> None:
    story.op("put", 2, 95, 96, client="p", payload=9, subqueue="other")
    story.op("take", 2, 97, 98, payload=9)
    story.op("ack", 2, 98, 99, payload=9)


def from_nowhere(story: Story) -> None:
    story.op("take", 9, 95, 96)
    story.op("ack", 9, 97, 98)


def do_what_was_refused(story: Story) -> None:
    without(story, "put", 2)
    story.op("put", None, 14, 15, payload=2, client="p", outcome="refused", result="read_only")


def lose_a_lease(story: Story) -> None:
    story.op("ack", 0, 25, 26, outcome="refused", result="not_taken")


def not_find_it(story: Story) -> None:
    story.op("ack", 2, 15, 16, outcome="refused", result="not_found")


PLANTED: dict[Callable[[Story], None], list[str]] = {
    lose: ["lost"],
    take_twice: ["held twice", "held twice"],
    take_after_the_end: ["back after its end", "take of a task that is not there"],
    ack_twice: ["ack of a task that is not there", "finished twice"],
    accept_a_stale_ack: ["a stale ack accepted", "a stale ack accepted"],
    accept_a_stale_token: ["a stale ack accepted", "a stale ack accepted"],
    swap_in_the_sub_queue: ["out of order"],
    two_of_a_sub_queue: ["two of a sub-queue in hand"],
    store_twice: ["stored twice"],
    give_an_id_twice: ["one id, several tasks"],
    from_nowhere: ["from nowhere"],
    do_what_was_refused: ["refused, yet done"],
    lose_a_lease: ["lease lost without a cause"],
    not_find_it: ["vanished"],
}


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert clean(Story()).found(tmp_path) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_found(plant: Callable[[Story], None], tmp_path: Path) -> None:
    story = clean(Story())
    plant(story)
    found = story.found(tmp_path)
    assert set(PLANTED[plant]) <= set(found), found


def unknown_ack_that_was_done(story: Story) -> None:
    line = without(story, "ack", 2)
    story.op("ack", 2, line["began_us"] // 1000, None)


def unknown_ack_that_was_not_done(story: Story) -> None:
    without(story, "ack", 2)
    story.op("ack", 2, 85, None)
    story.event("lease_may_end", session="w0", from_us=95_000)
    story.op("take", 2, 100, 101, client="w1")
    story.op("ack", 2, 102, 103, client="w1")


def many_acks_without_an_answer(story: Story) -> None:
    """Far too many to try every one of them as the one that was done."""
    without(story, "ack", 0)
    for number in range(200):
        story.op("ack", 0, 24 + number % 3, None)


def a_put_sent_again_with_its_key(story: Story) -> None:
    line = without(story, "put", 0)
    story.op("put", None, 8, None, payload=0, client="p", subqueue="k", key="a")
    story.lines.append(line | {"key": "a", "ended_us": 13_000})
    story.op("put", 0, 100, 101, client="p", subqueue="k", key="a")


def an_unknown_put_that_was_not_done(story: Story) -> None:
    story.op("put", None, 16, None, payload=9, client="p", subqueue="k")


def a_lease_that_ran_out(story: Story) -> None:
    without(story, "ack", 0)
    next(line for line in story.lines if line.get("kind") == "take")["lease_until_us"] = 25_000
    story.op("take", 0, 26, 27, client="w1")
    story.op("ack", 0, 28, 29, outcome="refused", result="not_taken")
    story.op("ack", 0, 30, 31, client="w1")


def a_switch_over(story: Story) -> None:
    without(story, "ack", 0)
    story.event("lease_may_end", session="*", from_us=22_000)
    story.op("take", 0, 26, 27, client="w1")
    story.op("ack", 0, 30, 31, client="w1")


def a_cut_that_was_rescued(story: Story) -> None:
    lose(story)
    story.event("undone", tube="t", task=2, payload=2, kinds=["put"], file="rescue/1.wal")


def an_ack_that_was_cut(story: Story) -> None:
    story.event("undone", tube="t", task=2, kinds=["take", "ack"], file="rescue/1.wal")
    story.op("take", 2, 100, 101, client="w1")
    story.op("ack", 2, 102, 103, client="w1")


def a_dead_letter(story: Story) -> None:
    lose(story)
    story.event("untold", tube="t", task=2, from_us=90_000, why="dead letter")
    story.event("appears", tube="dead", type="fifo", task=0, payload=2, from_us=90_000)
    story.op("take", 0, 100, 101, payload=2, tube="dead")
    story.op("ack", 0, 102, 103, payload=2, tube="dead")


def a_task_moved_away_and_back(story: Story) -> None:
    story.event("untold", tube="t", payload=2, from_us=1_000, why="moved", again=True)
    story.op("take", 70, 100, 101, payload=2)
    story.op("ack", 70, 102, 103, payload=2)


def a_ttl_that_ended(story: Story) -> None:
    lose(story)
    put = next(line for line in story.lines if line.get("task") == 2)
    put["expires_us"] = 80_000


def a_ttl_that_ended_in_hand(story: Story) -> None:
    """It is gone without an ack, and its sub-queue free."""
    without(story, "ack", 0)
    put = next(line for line in story.lines if line.get("task") == 0)
    put["expires_us"] = 35_000


def an_id_that_each_of_two_nodes_gave(story: Story) -> None:
    story.event("forced", node="b", at_us=95_000)
    for line in story.lines:
        line["node"] = "a"
    again = {"payload": "other", "subqueue": "other", "node": "b"}
    story.op("put", 0, 100, 101, client="p", **again)
    story.op("take", 0, 102, 103, **again)
    story.op("ack", 0, 104, 105, **again)


ALLOWED = (
    a_ttl_that_ended_in_hand,
    an_id_that_each_of_two_nodes_gave,
    unknown_ack_that_was_done,
    unknown_ack_that_was_not_done,
    many_acks_without_an_answer,
    a_put_sent_again_with_its_key,
    an_unknown_put_that_was_not_done,
    a_lease_that_ran_out,
    a_switch_over,
    a_cut_that_was_rescued,
    an_ack_that_was_cut,
    a_dead_letter,
    a_task_moved_away_and_back,
    a_ttl_that_ended,
)


@pytest.mark.parametrize("allowed", ALLOWED, ids=lambda allowed: allowed.__name__)
def test_what_is_allowed_is_not_held_against_a_queue(
    allowed: Callable[[Story], None], tmp_path: Path
) -> None:
    story = clean(Story(promise="rescued"))
    allowed(story)
    assert story.found(tmp_path) == []


@pytest.mark.parametrize(
    ("allowed", "found"),
    [(a_cut_that_was_rescued, "lost"), (an_ack_that_was_cut, "back after its end")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rescue_file_is_no_excuse_where_nothing_may_be_undone(
    allowed: Callable[[Story], None], found: str, tmp_path: Path
) -> None:
    story = clean(Story(promise="kept"))
    allowed(story)
    assert found in story.found(tmp_path)
    story.event("forced", node="b", at_us=0)
    assert story.found(tmp_path) == []


def test_the_rescue_file_must_show_the_very_task(tmp_path: Path) -> None:
    story = clean(Story(promise="rescued"))
    lose(story)
    story.event("undone", tube="t", task=2, payload=1, kinds=["put"], file="rescue/1.wal")
    story.event("undone", tube="t", task=1, payload=2, kinds=["put"], file="rescue/1.wal")
    assert "lost" in story.found(tmp_path)


def test_a_lease_that_may_end_later_is_no_excuse_now(tmp_path: Path) -> None:
    story = clean(Story())
    take_twice(story)
    story.event("lease_may_end", session="w0", from_us=27_000)
    story.event("lease_may_end", session="w9", from_us=22_000)
    story.event("lease_may_end", session="*", from_us=15_000)
    assert "held twice" in story.found(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "unexpected end"),
        ('{"what": "op"}', "no run"),
        ('{"what": "opp", "run": "told"}', 'what is "opp"'),
        ('{"what": "event", "run": "told", "event": "done"}', 'event "done" is not known'),
        ('{"what": "event", "run": "told", "event": "drained"}', "drained without"),
        ('{"what": "run", "run": "told", "promise": "kept"}', "described twice"),
        ('{"what": "run", "run": "other", "promise": "no"}', "neither kept nor rescued"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write(path, clean(Story()).lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    code, told, _ = judge(path)
    assert code == 2
    assert said in told["error"]
    assert f"{path}:" in told["error"]


def test_a_run_without_a_description_or_two_of_one_name(tmp_path: Path) -> None:
    story = clean(Story())
    write(tmp_path / "a.jsonl", story.lines[1:])
    assert "no line that describes it" in judge(tmp_path)[1]["error"]
    write(tmp_path / "a.jsonl", story.lines)
    write(tmp_path / "b.jsonl", story.lines)
    assert "is in" in judge(tmp_path)[1]["error"]


def test_too_few_operations_are_not_taken_for_a_proof(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", clean(Story()).lines)
    assert judge(tmp_path, options=("-least", "11"))[0] == 0
    assert judge(tmp_path, options=("-least", "12"))[0] == 2
    (tmp_path / "a.jsonl").unlink()
    assert "no histories" in judge(tmp_path)[1]["error"]


def test_true_histories_of_a_small_queue(tmp_path: Path, seed: int) -> None:
    lines: list[Line] = []
    for number in range(40):
        lines += ToyQueue(f"toy-{number}", seed + number).play(500)
    write(tmp_path / "toy.jsonl", lines)
    code, totals, runs = judge(tmp_path)
    assert (code, runs) == (0, []), runs[:1]
    assert totals["operations"] > 15_000
    assert totals["undecided"] == 0


@pytest.mark.parametrize("kind", ["take", "ack", "put"])
def test_one_line_more_in_a_true_history(kind: str, tmp_path: Path, seed: int) -> None:
    """Somebody else does once more, at the end of a call, what was done in the middle of a run."""
    lines = ToyQueue("toy", seed).play(500)
    done: list[Any] = [
        line
        for line in lines
        if line.get("kind") == kind and line["outcome"] == "ok" and line["task"] is not None
    ]
    again = done[len(done) // 2]
    at = again["ended_us"]
    more = {"client": "thief", "began_us": at + 1, "ended_us": at + 2}
    lines.append(again | more)
    write(tmp_path / "toy.jsonl", lines)
    assert judge(tmp_path)[0] == 1
