"""What `log dump` and `log verify` show, that they read each byte once and change nothing."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tandemq.log.meta import encode_commit
from tandemq.log.rescue import rescued_snapshot
from tandemq.log.segment import segment_names
from tandemq.model.errors import StorageError
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.inspection import Dump, FileReport, dump, readable, verify
from tandemq_server.storage.memory import MemoryDisk
from tests.storage.storage_samples import SESSION, Writing, small_log, small_snapshot


def test_one_row_per_record_readable_as_json() -> None:
    writing = small_log()
    rows = list(dump(writing.disk))
    assert [row.lsn for row in rows] == list(range(1, 11))
    assert [row.term for row in rows] == [1] * 5 + [2] * 5
    assert [row.time_us for row in rows] == [one[0] for _, one in writing.records]
    assert rows[0].kind == "term"
    assert rows[0].ops[0][:3] == ["term", 1, "0x" + "11" * 16]
    assert (rows[1].kind, rows[1].session) == ("ack", SESSION.hex())
    assert rows[1].ops == [["delete", 1024, 2], ["delete", 514, [1, 2]]]
    assert (rows[2].kind, rows[2].session) == ("create_tube", None)
    assert rows[2].ops == [["create", 1027, "té\\udcff", "fifo", {"ttl": 1.5}, 1]]
    for row in rows:
        assert json.loads(json.dumps(row)) == list(row)


def test_values_json_cannot_hold_are_shown() -> None:
    assert readable((99, 1, {b"\x01": (None, True, 1.5)}, 2**64)) == [
        99,
        1,
        {"0x01": [None, True, 1.5]},
        2**64,
    ]
    assert readable((1, object))[1] == "<class 'object'>"


@pytest.mark.parametrize(("first", "last"), [(1, 3), (5, 6), (4, None), (10, 10), (11, None)])
def test_a_range_reads_only_the_segments_it_needs(first: int, last: int | None) -> None:
    writing = small_log((3, 2, 4, 1), (1, 2, 3))
    rows = dump(writing.disk, first, last)
    expected = list(range(first, (last or 10) + 1))
    assert [row.lsn for row in rows] == expected
    assert rows.total_bytes < sum(map(writing.disk.size, segment_names(writing.disk)))
    assert rows.done_bytes == rows.total_bytes


def test_progress_grows_and_no_byte_is_read_twice() -> None:
    class CountingDisk(MemoryDisk):
        def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
            data = super().read(name, position, length)
            counted[name] += len(data)
            return data

    counted: Counter[str] = Counter()
    disk = CountingDisk(small_log().disk.contents())
    rows, before = dump(disk), -1
    for _ in rows:
        assert before <= rows.done_bytes <= rows.total_bytes
        before = rows.done_bytes
    assert before > 0
    for name in segment_names(disk):
        assert counted[name] <= disk.size(name)


def test_damage_is_named_and_the_next_segment_still_shown() -> None:
    writing = small_log()
    first = segment_names(writing.disk)[0]
    data = bytearray(writing.disk.contents()[first])
    data[1_024 + len(writing.frames[0]) + 50] ^= 1
    disk = MemoryDisk({**writing.disk.contents(), first: bytes(data)})
    rows = dump(disk)
    assert [row.lsn for row in rows] == [1, 2, 3, 6, 7, 8, 9, 10]
    assert len(rows.problems) == 1
    assert rows.problems[0].startswith(f"{first}: byte ")


def test_rescue_files_are_dumped_by_name() -> None:
    writing = small_log()
    writing.reopen()
    cut = writing.log.truncate_from(4)
    assert [row.lsn for row in dump(writing.disk)] == [1, 2, 3]
    saved = [row.lsn for name in cut.rescue for row in Dump(writing.disk, rescue=name)]
    assert saved == list(range(4, 11))


def test_verify_reports_every_file() -> None:
    writing = small_log()
    writing.reopen()
    writing.log.truncate_from(8)
    writing.log.publish_commit(7)
    small_snapshot(writing.disk, writing.meta, 2)
    verification = verify(writing.disk)
    reports = list(verification)
    assert verification.ok
    assert (verification.first_lsn, verification.last_lsn) == (1, 7)
    assert (verification.snapshot_lsn, verification.commit_lsn) == (7, 7)
    assert verification.done_bytes == verification.total_bytes > 0
    assert [(r.state, r.first_lsn, r.last_lsn, r.frames, r.records) for r in reports] == [
        ("snapshot", 2, 7, 2, 3),
        ("sealed", 1, 5, 2, 5),
        ("open", 6, 7, 1, 2),
        ("rescue", 8, 10, 2, 3),
    ]
    assert all(r.problem is None and r.size == writing.disk.size(r.name) for r in reports)


def damaged(writing: Writing, name: str, data: bytes | None) -> tuple[list[FileReport], list[str]]:
    files = {**writing.disk.contents(), name: data}
    verification = verify(MemoryDisk({k: v for k, v in files.items() if v is not None}))
    reports = list(verification)
    assert not verification.ok or verification.notes
    return reports, verification.problems


def test_verify_names_gaps_missing_ends_and_lost_commits() -> None:
    writing = small_log((3, 2, 4, 1), (1, 2, 3))
    first, second, third, last = segment_names(writing.disk)
    _, problems = damaged(writing, second, None)
    assert problems == [f"{third}: byte 0: LSN 4 up to 5 are missing"]
    _, problems = damaged(writing, first, None)
    assert problems == ["log starts at LSN 4, and no snapshot covers what was before"]
    _, problems = damaged(writing, "commit", encode_commit(11))
    assert problems == ["log ends at LSN 10, but LSN 11 was published as committed"]
    reports, problems = damaged(writing, second, writing.disk.contents()[second][:-160])
    assert problems[0].endswith("ends without its footer")
    reports, problems = damaged(writing, last, writing.disk.contents()[last][:-1])
    assert reports[-1].state == "torn"
    assert problems == []
    reports, problems = damaged(writing, last, b"")
    assert reports[-1].state == "torn"
    reports, problems = damaged(writing, first, b"?" * 5_000)
    assert reports[0].state == "damaged"
    assert problems
    _, problems = damaged(writing, "x.inprogress", b"")
    assert problems == []
    name = small_snapshot(writing.disk, writing.meta, 2)
    reports, problems = damaged(writing, name, b"short")
    assert (reports[0].name, reports[0].state) == (name, "damaged")


def test_a_foreign_directory_is_refused(tmp_path: object) -> None:
    with pytest.raises(StorageError, match="not a data directory yet"):
        dump(MemoryDisk())
    with pytest.raises(StorageError, match="not a data directory yet"):
        verify(MemoryDisk())


def test_looking_beside_a_running_server(tmp_path: object) -> None:
    served = FileDisk(str(tmp_path))
    writing = Writing(served)
    for _ in range(30):
        writing.frame(3)
    looking = FileDisk(str(tmp_path), read_only=True)
    assert len(list(dump(looking))) == 90
    verification = verify(looking)
    assert [report.state for report in verification][-1] == "open"
    assert verification.ok
    looking.release()
    writing.log.close()
    served.release()


def test_what_is_written_and_published_meanwhile_is_no_damage() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    found = verify(writing.disk)
    writing.frame(5)
    writing.log.publish_commit(10)
    assert [report.last_lsn for report in found] == [5]
    assert found.ok
    assert found.problems == []


def test_verify_reads_rescued_snapshots_too() -> None:
    writing = small_log()
    writing.reopen()
    name = small_snapshot(writing.disk, writing.meta, 2)
    moved = rescued_snapshot(name, b"s" * 16)
    writing.disk.rename(name, moved)
    verification = verify(writing.disk)
    (report,) = [one for one in verification if one.name == moved]
    assert verification.ok
    assert (report.state, report.last_lsn, report.problem) == ("rescue", 7, None)
    # It is no part of what the node starts from.
    assert verification.snapshot_lsn == 0
    data = bytearray(writing.disk.read(moved))
    data[len(data) // 2] ^= 1
    reports, problems = damaged(writing, moved, bytes(data))
    assert [one.state for one in reports if one.name == moved] == ["damaged"]
    assert len(problems) == 1
    assert moved in problems[0]
