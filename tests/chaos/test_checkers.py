"""The checkers find what is planted, and accept what is allowed."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from tests.chaos.chaos_checkers import (
    expect_nothing,
    judge,
    logs_agree,
    one_term_one_node,
    spaces_agree,
)
from tests.chaos.chaos_history import Delivery, Forgotten, History, Loss, Put

TTR = 10.0


def put(value: int, outcome: str | None = "ok", **more: Any) -> Put:
    given = {"node": "a", "sent": 1.0, "done": 2.0, "task": value, **more}
    return Put(value=value, tube="t", outcome=outcome, **given)


def delivery(value: int, outcome: str | None = "ok", **more: Any) -> Delivery:
    given: dict[str, Any] = {
        "task": value,
        "token": 1,
        "worker": "w1",
        "node": "a",
        "asked": 3.0,
        "got": 4.0,
        "tube": "t",
    }
    if outcome is not None:
        given |= {"sent": 5.0, "done": 6.0, "ack_node": "a"}
    return Delivery(value=value, outcome=outcome, **{**given, **more})


def group_of(one: Delivery) -> Hashable | None:
    return one.value % 2 if one.tube == "u" else None


def clean() -> History:
    history = History()
    history.puts = [put(1), put(2), put(3)]
    history.deliveries = [delivery(1), delivery(2, "unknown")]
    history.left = [("t", 3, 3)]
    return history


def found(history: History) -> list[str]:
    return judge(history, TTR, group_of)


def test_a_clean_history_has_nothing_to_find() -> None:
    assert found(clean()) == []
    expect_nothing([])


def test_unknown_outcomes_go_either_way() -> None:
    history = clean()
    history.puts += [put(4, "unknown", task=None), put(5, "unknown", task=None)]
    history.left += [("t", 2, 2), ("t", 5, 5)]
    assert found(history) == []


def planted(what: str) -> History:
    """One violation each."""
    history = clean()
    match what:
        case "lost":
            history.left = []
        case "lost: 4, .* delivered 1 times":
            history.puts.append(put(4))
            history.deliveries.append(delivery(4, "refused"))
        case "lost: 4, .* unseen":
            # Cut by a forced promotion, and in no rescue file.
            history.puts.append(put(4))
            history.losses.append(Loss("a", 0.0, 9.0))
        case "from nowhere":
            history.left.append(("t", 9, 9))
        case "refused, yet there":
            history.puts.append(put(4, "refused", task=None))
            history.left.append(("t", 4, 4))
        case "stored twice":
            history.left.append(("t", 7, 3))
        case "drained more than once":
            history.left.append(("t", 3, 3))
        case "one id, several tasks":
            history.puts.append(put(4))
            history.left.append(("t", 3, 4))
        case "back after its ack":
            history.left.append(("t", 1, 1))
        case "delivered after its ack":
            history.deliveries.append(delivery(1, None, asked=7.0, got=8.0, worker="w2"))
        case "a stale ack succeeded":
            history.deliveries[0].ended = 4.1
            history.deliveries.append(
                delivery(1, "refused", asked=4.2, got=4.5, ended=4.6, token=2, worker="w2")
            )
        case "held twice: task":
            history.deliveries[1].outcome = None
            history.deliveries[1].sent = history.deliveries[1].done = None
            history.deliveries.append(delivery(2, asked=7.0, got=8.0, sent=9.0, done=9.5))
            history.deliveries[-1].worker = "w2"
        case "held twice: sub-queue":
            history.puts += [put(5), put(7)]
            history.deliveries += [
                delivery(5, tube="u", asked=3.0, got=4.0, sent=5.0),
                delivery(7, tube="u", asked=3.5, got=4.5, sent=5.5, worker="w2"),
            ]
            for one in history.puts[-2:]:
                one.tube = "u"
        case "lease lost without a cause":
            history.puts.append(put(4))
            history.deliveries.append(delivery(4, "refused"))
            history.left.append(("t", 4, 4))
        case "forgotten after 3.0 s":
            history.forgotten.append(Forgotten("w1", 10.0, 13.0))
        case _:
            raise AssertionError(what)
    return history


@pytest.mark.parametrize(
    "what",
    [
        "lost",
        "lost: 4, .* delivered 1 times",
        "lost: 4, .* unseen",
        "from nowhere",
        "refused, yet there",
        "stored twice",
        "drained more than once",
        "one id, several tasks",
        "back after its ack",
        "delivered after its ack",
        "a stale ack succeeded",
        "held twice: task",
        "held twice: sub-queue",
        "lease lost without a cause",
        "forgotten after 3.0 s",
    ],
)
def test_a_planted_violation_is_found(what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        expect_nothing(found(planted(what)))


def test_what_a_forced_promotion_cut_may_be_in_a_rescue_file() -> None:
    history = planted("lost: 4, .* unseen")
    history.rescued.add(4)
    assert found(history) == []


def test_only_what_was_acknowledged_before_the_cut_is_excused() -> None:
    history = planted("lost: 4, .* unseen")
    history.rescued.add(4)
    history.puts[-1].done = 9.5
    assert any("lost: 4" in line for line in found(history))


def test_an_ack_that_was_cut_may_be_undone() -> None:
    history = planted("back after its ack")
    history.losses.append(Loss("a", 0.0, 9.0))
    assert found(history) == []


def test_a_lease_that_ended_may_be_given_to_another() -> None:
    history = planted("held twice: task")
    history.deliveries[1].ended = 6.0
    assert found(history) == []


def test_a_session_gone_longer_than_ttr_may_be_forgotten() -> None:
    history = clean()
    history.forgotten.append(Forgotten("w1", 10.0, 10.0 + TTR))
    assert found(history) == []


LOG = [(1, 1, "term", []), (2, 1, "put", [["insert", 520]]), (3, 1, "take", [])]


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ([*LOG[:2], (3, 1, "ack", [])], "record 3 differs"),
        ([*LOG[:2], (3, 2, "take", [])], "record 3 differs"),
        (LOG[:2], "logs end at 3 and 2"),
        ([LOG[0], LOG[2]], "gap in the second log between 1 and 3"),
    ],
)
def test_logs_that_differ(other: list[tuple], what: str) -> None:
    assert any(what in line for line in logs_agree(LOG, other))


def test_logs_that_begin_at_different_records_agree() -> None:
    assert list(logs_agree(LOG, LOG[1:])) == []


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"t": [[1, "r", 1]]}, "space t differs: 2 and 1 rows"),
        ({"t": [[1, "r", 1], [2, "t", 2]]}, "space t differs"),
        ({}, "space t is on one node only"),
    ],
)
def test_spaces_that_differ(other: dict[str, list], what: str) -> None:
    mine = {"t": [[1, "r", 1], [2, "r", 2]]}
    assert list(spaces_agree(mine, mine)) == []
    assert any(what in line for line in spaces_agree(mine, other))


def test_one_term_of_two_nodes() -> None:
    assert list(one_term_one_node([(1, "a"), (2, "b"), (1, "a")])) == []
    assert list(one_term_one_node([(1, "a"), (1, "b")])) == ["term 1 is that of ['a', 'b']"]
