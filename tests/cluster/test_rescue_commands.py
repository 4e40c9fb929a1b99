"""`tandemq rescue` on the directory of a node whose log a forced promotion cut."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster_nodes import TANDEMQ, Member, Pair, pair, until

MINE, TAKEN, BEFORE = 7, 2, 10
#: Tasks of other kinds: in a tube made in the cut, of xqueue with text in it, of queue15.
OTHERS = 3
PUT = MINE + OTHERS - 1
#: Records of the cut: 7 puts, a tube, puts of other kinds, 2 takes and 2 acks, a bury.
CUT = MINE + 1 + OTHERS + 2 * TAKEN + 1
RECORDS = {
    "format": [
        {"name": "id", "type": "string"},
        {"name": "status", "type": "string"},
        {"name": "text", "type": "string"},
    ],
    "fields": {"status": "status"},
    "features": {"id": "required"},
}


def rescue(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [TANDEMQ, "rescue", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def lines(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rescue(*words, "--json").splitlines()]


def cut_some(nodes: Pair) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "jobs", "fifottl")
    client.call("queue.create_tube", "recs", "xqueue", RECORDS)
    client.call("queue.create_tube", "old", "queue15")
    for number in range(BEFORE):
        client.call("queue.tube.jobs:put", number)
    nodes.in_step()
    nodes.b.end()
    for number in range(MINE):
        client.call("queue.tube.jobs:put", {"n": number}, {"pri": number, "ttl": 600})
    client.call("queue.create_tube", "other", "utube")
    client.call("queue.tube.other:put", b"\x00\xc3\xa9", {"utube": "host"})
    client.call("box.space.recs:put", {"id": "k", "text": "words"})
    client.call("queue15.put", "old", "lane", 0, 0, 30, 5, "first", {"n": [1]})
    for _ in range(TAKEN):
        task = client.call("queue.tube.jobs:take", 0).data[0]
        client.call("queue.tube.jobs:ack", task[0])
    client.call("queue.tube.jobs:bury", BEFORE + 4)
    nodes.a.end(signal.SIGKILL)
    nodes.b.start("--read-only")
    assert nodes.b.role(False, force=True)[0] == 200
    nodes.a.start("--read-only")
    until(lambda: nodes.a.caught_up_with(nodes.b))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("rescue"), "--in-replicaset", "--ttr", "30") as both:
        cut_some(both)
        yield both


def total(member: Member, tube: str) -> int:
    return int(member.connect().call("queue.statistics", tube).data[0][b"tasks"][b"total"])


def test_list_and_show_count_what_was_cut(nodes: Pair) -> None:
    (row,) = lines("list", nodes.a.data)
    assert (row["records"], row["tasks"], row["replayed"]) == (CUT, MINE + OTHERS, 0)
    assert row["will_run_again"] == TAKEN
    assert row["last_lsn"] - row["first_lsn"] + 1 == CUT
    shown = lines("show", nodes.a.data, row["name"])
    assert [task["what"] for task in shown].count("will run again") == TAKEN
    mine = [task for task in shown if task["tube"] == "jobs" and task["payload"]]
    assert [task["payload"] for task in mine] == [{"n": number} for number in range(MINE)]
    assert mine[3]["options"] == {"ttl": 600.0, "pri": 3}
    assert mine[4]["what"] == "buried"
    assert "nothing was cut here" in rescue("list", nodes.b.data)
    assert rescue("show", nodes.a.data).count("will run again") == TAKEN


def test_bad_input_is_one_line(nodes: Pair, tmp_path: Path) -> None:
    assert "no rescue file nothing" in rescue("show", nodes.a.data, "nothing", code=1)
    assert "nothing was cut here" in rescue("replay", nodes.b.data, code=1)
    assert "error: " in rescue("list", tmp_path / "none", code=1)


def test_replay_puts_each_once(nodes: Pair) -> None:
    server = f"--server=127.0.0.1:{nodes.b.port}"
    replay = ("replay", nodes.a.data, server)
    nodes.b.connect().call("queue.create_tube", "other", "utube", {"if_not_exists": True})
    assert f"{PUT} would be put" in rescue(*replay)
    assert total(nodes.b, "jobs") == BEFORE
    # A node that does not serve puts nothing, and the next attempt begins where this one ended.
    wrong = rescue("replay", nodes.a.data, f"--server=127.0.0.1:{nodes.a.port}", "--yes", code=1)
    assert "read-only" in wrong
    (told,) = lines(*replay, "--yes")
    assert (told["put"], told["buried"], told["will_run_again"]) == (PUT, 1, TAKEN)
    assert (total(nodes.b, "jobs"), total(nodes.b, "other")) == (BEFORE + MINE - 1, 1)
    assert nodes.b.connect().call("queue.tube.other:take", 0).data[0][2] == b"\x00\xc3\xa9"
    worker = nodes.b.connect()
    (found,) = worker.call("box.space.recs:take", 0).data
    assert {k: v for k, v in found.items() if k != b"status"} == {b"id": b"k", b"text": b"words"}
    worker.call("box.space.recs:ack", "k")
    taken = worker.call("queue15.take", "old", "lane", 0).data
    assert taken[0][3:] == [b"first", {b"n": [1]}]
    # A second replay finds them written down; only --again puts them once more.
    (told,) = lines(*replay, "--yes")
    assert (told["put"], told["replayed_before"]) == (0, PUT)
    assert total(nodes.b, "jobs") == BEFORE + MINE - 1
    assert lines("list", nodes.a.data)[0]["replayed"] == PUT
    assert lines(*replay, "--yes", "--buried")[0]["put"] == 1
    assert lines(*replay, "--again", "--buried")[0]["put"] == PUT + 1
    verify = subprocess.run([TANDEMQ, "log", "verify", str(nodes.a.data)], check=False)
    assert verify.returncode == 0


def test_a_replay_that_was_cut_off_is_not_guessed_at(nodes: Pair) -> None:
    (row,) = lines("list", nodes.a.data)
    path = nodes.a.data / "rescue" / f"{row['name']}.replayed"
    kept = path.read_text()
    first = json.loads(kept.splitlines()[0])
    path.write_text(json.dumps({**first, "id": None}) + "\n")
    (told,) = lines("replay", nodes.a.data, f"--server=127.0.0.1:{nodes.b.port}")
    assert told["outcome_unknown"] == 1
    path.write_text("{}\n")
    assert "line 1 is malformed" in rescue("list", nodes.a.data, code=1)
    path.write_text(kept)


def test_a_bad_cut_is_listed_with_its_reason_and_hides_no_other(nodes: Pair) -> None:
    (row,) = lines("list", nodes.a.data)
    bad = nodes.a.data / "rescue" / "0000000009-00000000000000000001.note"
    bad.write_bytes(b"rubbish")
    try:
        done = subprocess.run(
            [TANDEMQ, "rescue", "list", nodes.a.data, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 1
        assert [one["problem"] is None for one in found] == [True, False]
        assert found[0] == row
        assert found[1]["name"] == bad.stem
        assert "the head is cut short" in done.stderr
        assert len(lines("show", nodes.a.data, row["name"])) > MINE
        assert "head is cut short" in rescue("show", nodes.a.data, bad.stem, code=1)
    finally:
        bad.unlink()
