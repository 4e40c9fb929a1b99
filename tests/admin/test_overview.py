"""What the overview says: the worst first, each with what to do, nothing where all is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tandemq_server.node.observe.answers import Lag, NodeStatus
from tandemq_server.node.observe.cluster_view import cluster_of
from tandemq_server.node.observe.inventory_answers import TubeRates, TubeStatus
from tandemq_server.node.observe.overview import MemoryAnswer, Overview, overview
from tests.admin.fake_backend import running

QUIET = TubeRates(1.0, 1.0, 1.0, 0.0, 0.0, 10.0)
JOBS = TubeStatus(
    "jobs", "fifottl", False, 3, 3, 0, 0, 0, 0, None, 1, 0, QUIET, 1.0, None, None, None, False,
    False, (), None, 0.0, {},
)  # fmt: skip
NONE = MemoryAnswer(100, 200, 300)
A = replace(running(), session_ttr=60.0, in_replicaset=True)
B = replace(
    A, name="b", state="WAITING", writable=False, read_only=True, following=True,
    ro_reason="config",
    peers=(replace(A.peers[0], name="a", role="upstream", state="RUNNING", writable=True),),
)  # fmt: skip


def look(status: NodeStatus, *tubes: TubeStatus, memory_state: int = 0) -> Overview:
    cluster = cluster_of(status, "127.0.0.1:3301")
    return overview(status, cluster, tubes, NONE, memory_state)


def with_peer(status: NodeStatus, **changes: Any) -> NodeStatus:
    return replace(status, peers=(replace(status.peers[0], **changes),))


def test_all_is_well() -> None:
    found = look(A, JOBS)
    assert (found.level, found.sentence, found.concerns) == ("green", "a serves, b in step", ())
    assert found.successor == "b, once somebody promotes it"
    assert (found.ready, found.put_rate, found.dead_letters) == (3, 1.0, 0)
    other = look(B, JOBS)
    assert (other.level, other.sentence) == ("green", "a serves, b follows")


@pytest.mark.parametrize(
    ("status", "level", "sentence", "todo"),
    [
        (replace(A, live=False, problem="disk full"), "red", "a has stopped: disk full", "promote"),
        (
            with_peer(B, connected=False, writable=False),
            "red",
            "no node serves: a cannot be reached",
            "start a again, or promote b",
        ),
        (
            with_peer(replace(B, following=False), writable=False),
            "red",
            "no node serves: it was told to be, by read_only or `tandemq role ro`",
            "promote b",
        ),
        (with_peer(A, writable=True), "red", "a and b both claim to serve", "lower term"),
        (with_peer(A, connected=False), "amber", "b cannot be reached: nobody could take", "start"),
        (with_peer(A, lag=Lag(9, 99, 11.0)), "amber", "b is 9 records, 11 s behind", "too slow"),
        (replace(A, solo=True, ack="pair"), "amber", "a goes on alone", "bring the replica back"),
        (replace(A, rescue_tasks=2), "amber", "2 tasks that a rewind cut off", "rescue list"),
        (replace(A, session_ttr=0.0), "amber", "queue.ttr is 0: at a switch-over", "leave both"),
        (replace(A, problem="odd"), "amber", "odd", "logs"),
    ],
)
def test_what_is_wrong_with_a_node(
    status: NodeStatus, level: str, sentence: str, todo: str
) -> None:
    found = look(status, JOBS)
    assert (found.level, found.sentence.startswith(sentence)) == (level, True), found.sentence
    assert todo in found.todo
    assert found.concerns[0].sentence == found.sentence


@pytest.mark.parametrize(
    ("tube", "words"),
    [
        (replace(JOBS, paused_takes=True), "3 tasks of jobs wait: takes are paused"),
        (
            replace(
                JOBS, oldest_ready_seconds=90.0, waiting_consumers=0, rates=replace(QUIET, take=0.0)
            ),
            "nobody takes from jobs: 3 tasks wait, the oldest 90 s",
        ),
        (
            replace(JOBS, failed_per_minute=61.0),
            "more tasks of jobs fail than succeed: 61 a minute",
        ),
        (replace(JOBS, problem="broken"), "jobs: broken"),
    ],
)
def test_work_that_is_not_done(tube: TubeStatus, words: str) -> None:
    found = look(A, tube)
    assert (found.level, found.sentence) == ("amber", words)
    assert found.concerns[0].tube == "jobs"
    assert look(B, tube).level == "green", "a replica's counters say nothing"


def test_memory_and_dead_letters() -> None:
    assert (
        look(A, JOBS, memory_state=1).sentence == "memory is above memory.high, 33 % of memory.max"
    )
    assert look(A, JOBS, memory_state=2).level == "red"
    dead = replace(JOBS, name="dead", total=4, dead_letters_of=("jobs",), oldest_ready_seconds=9e9)
    found = look(A, JOBS, dead)
    assert (found.level, found.dead_letters) == ("green", 4)
    assert look(replace(A, peers=()), JOBS).successor == "nobody: this node has no peers"


def test_the_worst_comes_first() -> None:
    both = replace(with_peer(A, connected=False), rescue_tasks=1)
    found = look(both, replace(JOBS, paused_takes=True), memory_state=2)
    assert [one.level for one in found.concerns] == ["red", "amber", "amber", "amber"]
