"""Faults of files, of nodes beside each other, of snapshots, of statistics and clients."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from benchmarks.logmaker import LogMaker
from tandemq.log.meta import encode_meta, read_meta
from tandemq.model.record import INSERT, SET, encode_frame
from tandemq.pipeline.judge.local import AuditRequest, Verdict, audit
from tandemq_server.storage.files import FileDisk
from tests.audit.faults import CONFIG, KEYS, NOTES, PAUSED, SHARED, TAKEN
from tests.audit.rewrite import Edited
from tests.audit.stage import Stage

Records = Callable[[str], Edited]


def judged(*paths: Path, **wanted: Any) -> Verdict:
    return audit([str(path) for path in paths], AuditRequest(**wanted))


def as_node(log: Edited, directory: Path, number: int) -> Path:
    """The same records as another node's log."""
    meta = log.meta
    log.meta = type(meta)(meta.cluster, bytes([number]) * 16, meta.created_us)
    log.write(directory)
    log.meta = meta
    return directory


# -- one node --------------------------------------------------------------------------------------


def test_a_missing_segment(records: Records, tmp_path: Path) -> None:
    log = records("backlog").write(tmp_path / "a", per_segment=10)
    sorted(log.glob("*.wal"))[2].unlink()
    found = judged(log)
    assert found.broken["lsn_gap"] == 1
    (row,) = [row for row in found.rows if row["check"] == "lsn_gap"]
    assert (row["lsn"], row["evidence"]) == (21, "LSN 21 up to 30 are missing")


@pytest.mark.parametrize("part", [2, -1])
def test_a_flipped_bit(records: Records, tmp_path: Path, part: int) -> None:
    """In the newest segment it looks like a write under way, but for the commit LSN."""
    log = records("backlog").write(tmp_path / "a", per_segment=10)
    path = sorted(log.glob("*.wal"))[part]
    data = bytearray(path.read_bytes())
    data[1100] ^= 1
    path.write_bytes(data)
    found = judged(log)
    assert found.broken["damaged"] == 1, found.text()
    said = "was committed" if part < 0 else path.name
    assert said in str([row["evidence"] for row in found.rows])


def test_a_write_under_way_is_no_damage(records: Records, tmp_path: Path) -> None:
    log = records("backlog").write(tmp_path / "a")
    part = sorted(log.glob("*.wal"))[-1]
    part.write_bytes(part.read_bytes()[:-7])
    (log / "commit").unlink()
    found = judged(log)
    assert found.ok, found.rows


def test_an_lsn_that_stands_twice(records: Records, tmp_path: Path) -> None:
    log = records("backlog").write(tmp_path / "a", per_segment=10)
    other = records("backlog")
    del other.entries[0]
    again = other.write(tmp_path / "b", per_segment=10)
    name = sorted(again.glob("*.wal"))[2].name
    # A segment of nine records' age in between.
    (log / f"{25:020d}.wal").write_bytes(_moved(records("backlog"), 25))
    assert name
    assert judged(log).broken["lsn_twice"] >= 1


def _moved(log: Edited, first: int) -> bytes:
    """A segment that begins at this LSN with records of its own."""
    from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentInfo, encode_segment_header

    term = log.terms[0]._replace(start_lsn=1)
    header = encode_segment_header(log.meta, term, first)
    entry = log.entries[24].record
    frame = encode_frame([entry], term.number, term.id, first, first)
    info = SegmentInfo("x", term, first, first, SEGMENT_HEADER_SIZE + len(frame), header=header)
    info.frames, info.first_time_us, info.last_time_us = 1, entry[0], entry[0]
    return header + frame + info.footer()


def test_rescued_records_that_stayed_or_whose_place_nobody_took(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path / "a")
    maker.open_term()
    tube = maker.tube("t")
    for number in range(4):
        maker.put(tube, number)
        maker.turn()
    maker.commit()
    whole = {path.name: path.read_bytes() for path in (tmp_path / "a").glob("*.wal")}
    maker.log.truncate_from(maker.log.last_lsn - 1)
    maker.close()
    found = judged(tmp_path / "a")
    assert set(found.broken) == {"rescue_unaccounted"}
    for name, data in whole.items():
        (tmp_path / "a" / name).write_bytes(data)
    assert set(judged(tmp_path / "a").broken) == {"rescue_kept"}


# -- two nodes -------------------------------------------------------------------------------------


def _edits() -> dict[str, tuple[str, Callable[[Edited], None]]]:
    """A byte of every kind of field: what the two nodes differ in, in which scene."""

    def row(kind: str, at: int, value: Any, space: int | None = None) -> Callable[[Edited], None]:
        def edit(log: Edited) -> None:
            for entry in log.entries:
                if entry.kind != kind:
                    continue
                for op in entry.ops:
                    mine = op[1] >= 1024 if space is None else op[1] == space
                    if op[0] == INSERT and mine:
                        op[2][at] = value
                        return
            raise AssertionError(kind)

        return edit

    def field(kind: str, value: Any, space: int) -> Callable[[Edited], None]:
        def edit(log: Edited) -> None:
            entry = log.one(kind, 0, lambda e: any(o[:2] == [SET, space] for o in e.ops))
            log.op(entry, SET, space)[4] = value

        return edit

    def session(log: Edited) -> None:
        log.one("put").record[2] = b"s" * 16

    def time(log: Edited) -> None:
        log.one("put").record[0] += 1

    def option(log: Edited) -> None:
        log.op(log.one("create_tube"), 4)[4]["ttr"] = 77

    return {
        "payload": ("keys_and_headers", row("put", 7, b"\x07")),
        "priority": ("keys_and_headers", row("put", 5, 7)),
        "ttl": ("keys_and_headers", row("put", 3, 7)),
        "ttr": ("keys_and_headers", row("put", 4, 7)),
        "utube": ("batches_utube", lambda log: log.one("put_many").ops[0][2][0].__setitem__(2, "x")
                  if log.one("put_many").ops[0][0] != INSERT
                  else log.one("put_many").ops[0][2].__setitem__(2, "x")),
        "key": ("keys_and_headers", row("put", 1, "other", KEYS)),
        "window": ("keys_and_headers", row("put", 3, 7, KEYS)),
        "headers": ("keys_and_headers", row("put", 8, {"trace": "z"}, NOTES)),
        "note": ("policy_fifo", row("release", 3, "why", NOTES)),
        "options": ("policy_fifottl", option),
        "pause": ("pauses", row("config", 1, False, PAUSED)),
        "setting": ("pauses", row("config", 1, 7, CONFIG)),
        "session row": ("sessions_shared", field("session", 7, SHARED)),
        "session": ("backlog", session),
        "owner": ("backlog", row("take", 3, b"o" * 16, TAKEN)),
        "token": ("backlog", row("take", 4, 5, TAKEN)),
        "time": ("backlog", time),
    }  # fmt: skip


@pytest.mark.parametrize("what", _edits())
def test_nodes_that_differ_in_a_byte(records: Records, tmp_path: Path, what: str) -> None:
    scene, edit = _edits()[what]
    one = as_node(records(scene), tmp_path / "a", 1)
    same = as_node(records(scene), tmp_path / "b", 2)
    assert judged(one, same).ok
    log = records(scene)
    before = [repr(entry.record) for entry in log.entries]
    edit(log)
    differ = [at for at, entry in enumerate(log.entries, 1) if repr(entry.record) != before[at - 1]]
    other = as_node(log, tmp_path / "c", 3)
    for paths in ((one, other), (other, one)):
        found = judged(*paths)
        assert found.broken["nodes_differ"] == 1
        (row,) = [row for row in found.rows if row["check"] == "nodes_differ"]
        assert [row["lsn"]] == differ
        assert f"first in LSN {differ[0]}, in 1 records" in row["evidence"]
    assert "nodes_differ" not in judged(one, other, commit_lsn=differ[0] - 1).broken


def test_frames_of_other_sizes_are_no_difference(records: Records, tmp_path: Path) -> None:
    one = as_node(records("backlog"), tmp_path / "a", 1)
    log = records("backlog")
    meta = log.meta
    log.meta = type(meta)(meta.cluster, b"2" * 16, meta.created_us)
    other = log.write(tmp_path / "b", per_segment=7)
    assert judged(one, other).ok


def test_a_node_that_lacks_records(records: Records, tmp_path: Path) -> None:
    one = as_node(records("backlog"), tmp_path / "a", 1)
    log = records("backlog")
    meta = log.meta
    log.meta = type(meta)(meta.cluster, b"2" * 16, meta.created_us)
    other = log.write(tmp_path / "b", per_segment=10)
    sorted(other.glob("*.wal"))[3].unlink()
    found = judged(one, other)
    (row,) = [row for row in found.rows if row["check"] == "node_lacks"]
    assert (row["lsn"], found.broken["node_lacks"]) == (31, 1)
    assert row["evidence"].endswith("lacks LSN 31 to 40")
    assert row["node"] == "32323232-3232-3232-3232-323232323232"


# -- snapshots, statistics, clients ----------------------------------------------------------------


def test_a_snapshot_that_is_not_what_the_log_says(tmp_path: Path) -> None:
    for at, change in enumerate(("payload", "gone", "more", "id", None)):
        stage = Stage(tmp_path / str(at))
        tube = stage.tube("t", "fifottl")
        for number in range(5):
            stage.put(tube, number, key=f"k{number}")
        stage.done()
        task = stage.take(tube)
        stage.done()
        row = tube.space.rows[3]
        if change == "payload":
            tube.space.rows[3] = (*row[:-1], b"\x63")
        elif change == "gone":
            del tube.space.rows[3]
        elif change == "more":
            tube.space.rows[99] = (99, *row[1:])
        elif change == "id":
            tube.space.next_id += 1
        stage.snapshot()
        tube.space.rows[3] = row
        tube.space.rows.pop(99, None)
        tube.ack(stage.clients[1], task)
        stage.close()
        found = judged(tmp_path / str(at))
        assert set(found.broken) == ({"snapshot_differs"} if change else set()), (
            change,
            found.rows,
        )


def test_a_log_that_begins_with_a_snapshot(records: Records, tmp_path: Path) -> None:
    """What came before is in the snapshot: faults behind it are found all the same."""
    stage = Stage(tmp_path / "a")
    tube = stage.tube("t", "utubettl", max_attempts=2)
    for number in range(6):
        stage.put(tube, number, utube=f"u{number}")
    stage.done()
    tasks = [stage.take(tube, client) for client in (1, 2)]
    stage.done()
    tube.release(stage.clients[2], tasks[1])
    stage.done()
    stage.snapshot()
    stage.log.close()
    stage.log = _reopened(stage)
    stage.promote()
    tube = stage.engine.tubes["t"]
    session = next(iter(stage.engine.sessions.space.rows))
    stage.identify(4, session)
    if tasks[0] in tube.space.rows and tube.space.rows[tasks[0]][1] == "t":
        tube.ack(stage.clients[4], tasks[0])
        stage.done()
    stage.acked(tube, 3)
    stage.close()
    names = sorted((tmp_path / "a").glob("*.wal"))
    assert len(names) > 1
    names[0].unlink()
    found = judged(tmp_path / "a")
    assert found.ok, found.rows
    assert found.counts["still_there"] > 0


def _reopened(stage: Stage) -> Any:
    from benchmarks.logmaker import _Nothing
    from tandemq_server.storage.recovery import open_log, recover

    return open_log(stage.disk, recover(stage.disk, _Nothing()), 1 << 20)


def test_a_log_whose_beginning_nobody_has(records: Records, tmp_path: Path) -> None:
    """Tasks older than the log are nobody's fault."""
    log = records("everyday_utubettl").write(tmp_path / "a", per_segment=9)
    for part in sorted(log.glob("*.wal"))[:3]:
        part.unlink()
    found = judged(log)
    assert found.ok, found.rows


def test_statistics_beside_the_log(played: Callable[[str], Path]) -> None:
    path = played("backlog")
    right = {"b_fifo": {"tasks": {"ready": 5, "taken": 0, "buried": 0, "delayed": 0}}}
    assert judged(path, statistics=right).ok
    wrong = {"b_fifo": {"tasks": {"ready": 4, "taken": 1}}}
    found = judged(path, statistics=wrong)
    assert found.broken == {"statistics_differ": 2}
    assert "statistics say 4, the log 5" in found.rows[0]["evidence"]


def test_what_clients_were_told(tmp_path: Path) -> None:
    maker = LogMaker(tmp_path / "a")
    maker.open_term()
    tube = maker.tube("t")
    for number in (1, 2):
        maker.put(tube, number)
    maker.turn()
    fork, parent = maker.log.last_lsn, maker.term.id
    maker.put(tube, "cut")
    maker.turn()
    maker.log.truncate_from(fork + 1)
    maker.open_term(3, "b", parent)
    maker.close()
    right, wrong = (hashlib.sha256(msgpack.packb(value)).hexdigest() for value in (1, 7))
    told = [
        {
            "process": "p",
            "f": "put",
            "tube": "t",
            "task_id": task,
            "outcome": "ok",
            "digest": digest,
        }
        for task, digest in ((0, right.upper()), (1, wrong), (2, right), (9, None))
    ]
    found = judged(tmp_path / "a", clients=told)
    assert found.broken == {"lost_put": 1, "undone_put": 1, "other_payload": 1}
    by_rule = {row["check"]: row for row in found.rows}
    assert by_rule["lost_put"]["task"] == 9
    assert (by_rule["undone_put"]["task"], by_rule["undone_put"]["lsn"]) == (2, fork + 1)
    assert wrong in by_rule["other_payload"]["evidence"]


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(Exception, match="neither a data directory"):
        judged(tmp_path / "x")
    assert read_meta(FileDisk(tmp_path / "y")) is None
    assert encode_meta
