"""What a cut excuses: the very answers, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.judge.judge_runs import Line, Story, clean
from tests.judge.test_judge import an_ack_that_was_cut


def an_answer_of_a_log_that_was_cut(story: Story) -> None:
    """Asked where a forced promotion left another log, it is told that it has nothing."""
    story.op("ack", 0, 24, 25, node="b", outcome="refused", result="not_taken")
    story.event("cut", node="b", client="w0", from_us=24_000, to_us=25_000)


def an_id_of_which_only_a_cut_log_told(story: Story) -> None:
    """It stood for another task, of whose put nobody was told, and that came to its end there."""
    other: dict[str, Any] = {"payload": "other", "subqueue": "other", "node": "b"}
    story.op("put", None, 1, None, client="p", **other)
    story.op("take", 0, 2, 3, **other)
    story.op("ack", 0, 4, 5, **other)
    story.event("cut", node="b", client="w0", from_us=2_000, to_us=5_000)


CUT = {
    an_answer_of_a_log_that_was_cut: "lease lost without a cause",
    an_id_of_which_only_a_cut_log_told: "one id, several tasks",
}


@pytest.mark.parametrize("allowed", CUT, ids=lambda allowed: allowed.__name__)
def test_what_was_told_of_a_cut_log_is_let_pass(
    allowed: Callable[[Story], None], tmp_path: Path
) -> None:
    story = clean(Story(promise="rescued"))
    allowed(story)
    assert story.found(tmp_path) == []


@pytest.mark.parametrize("allowed", CUT, ids=lambda allowed: allowed.__name__)
@pytest.mark.parametrize("other", [{"client": "w9"}, {"node": "a"}, {"from_us": 1, "to_us": 1}])
def test_a_cut_excuses_what_that_node_told_that_client_then(
    allowed: Callable[[Story], None], other: Line, tmp_path: Path
) -> None:
    story = clean(Story(promise="rescued"))
    allowed(story)
    story.lines[-1] |= other
    assert CUT[allowed] in story.found(tmp_path)


def test_what_may_be_undone_of_one_client_is_not_of_another(tmp_path: Path) -> None:
    story = clean(Story(promise="rescued"))
    an_ack_that_was_cut(story)
    cut = next(line for line in story.lines if line.get("event") == "undone")
    cut["client"] = "w0"
    assert story.found(tmp_path) == []
    cut["client"] = "w9"
    assert "back after its end" in story.found(tmp_path)
