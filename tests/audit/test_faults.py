"""Planted faults: each is found by name, alone and beside another one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandemq.pipeline.judge.local import AuditRequest, audit
from tandemq.pipeline.judge.rules.catalogue import ALL, BY_NAME
from tests.audit.faults import FAULTS
from tests.audit.rewrite import Edited

#: Rules whose faults are of files rather than records: test_files.py plants those.
OF_FILES = {
    "damaged", "lsn_gap", "lsn_twice", "nodes_differ", "node_lacks", "rescue_kept",
    "rescue_unaccounted", "snapshot_differs", "statistics_differ", "lost_put", "undone_put",
    "other_payload",
}  # fmt: skip
PAIRS = 25


def broken(path: Path) -> set[str]:
    verdict = audit([str(path)])
    return {*verdict.broken, *verdict.warnings}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_name(
    records: Callable[[str], Edited], tmp_path: Path, name: str
) -> None:
    fault = FAULTS[name]
    log = records(fault.scene)
    fault.edit(log)
    assert fault.rule in broken(log.write(tmp_path / "a"))


def _pairs() -> list[tuple[str, str]]:
    """Two faults of one scene in tubes, or of rules, that do not touch each other."""
    first = [
        "a_session_acks_what_another_holds", "a_row_lacks_a_field",
        "a_task_is_gone_without_a_trace",
        "two_tubes_have_one_id", "the_clock_runs_backwards", "two_tasks_of_a_sub_queue_are_out",
        "a_ready_task_is_passed_over_for_ever", "an_ack_leaves_the_owner", "a_take_takes_two",
    ]  # fmt: skip
    pairs = [(one, other) for one in first for other in first if one < other]
    random.Random(18).shuffle(pairs)
    return pairs[:PAIRS]


@pytest.mark.parametrize("pair", _pairs(), ids=" and ".join)
def test_two_faults_in_one_log_are_both_found(
    records: Callable[[str], Edited], tmp_path: Path, pair: tuple[str, str]
) -> None:
    log = records("backlog")
    for name in pair:
        assert FAULTS[name].scene == "backlog"
        FAULTS[name].edit(log)
    assert {FAULTS[name].rule for name in pair} <= broken(log.write(tmp_path / "a"))


def test_every_rule_has_a_planted_fault() -> None:
    planted = {fault.rule for fault in FAULTS.values()} | OF_FILES
    assert {rule.name for rule in ALL} - planted == {"strange_moment"}
    assert len(FAULTS) >= 60


def test_a_rule_can_be_switched_off_and_a_wrong_name_is_refused(
    records: Callable[[str], Edited], tmp_path: Path
) -> None:
    log = records("backlog")
    FAULTS["an_ack_stands_twice"].edit(log)
    path = str(log.write(tmp_path / "a"))
    assert audit([path], AuditRequest(without={"double_ack", "wrong_number"})).ok
    only = audit([path], AuditRequest(only={"double_ack"}))
    assert only.broken == {"double_ack": 1}
    with pytest.raises(ValueError, match="no rule is called nonsense"):
        audit([path], AuditRequest(without={"nonsense"}))


def test_a_finding_shows_where_and_the_record(
    records: Callable[[str], Edited], tmp_path: Path
) -> None:
    log = records("backlog")
    FAULTS["a_session_acks_what_another_holds"].edit(log)
    (row,) = audit([str(log.write(tmp_path / "a"))], AuditRequest(only={"ack_by_other"})).rows
    assert (row["check"], row["tube"], row["task"]) == ("ack_by_other", "b_fifo", 0)
    assert row["lsn"] == log.at("ack") + 1
    assert '"from": "t"' in row["evidence"]
    assert "before_lsn" in row["evidence"]


def test_every_rule_says_what_it_is() -> None:
    for name, rule in BY_NAME.items():
        assert rule.summary(), name
        assert len(rule.summary()) < 150, name
