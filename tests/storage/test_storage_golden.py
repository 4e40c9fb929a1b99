"""Files of every released format version load for ever, and this version writes the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tandemq.log.meta import Meta, encode_commit, encode_meta
from tandemq.log.segment import SegmentReader, encode_segment_header, segment_names, whole_frame
from tandemq.log.snapshot import SnapshotHeader, SnapshotReader, read_snapshot, snapshot_names
from tandemq.model.record import decode_body, encode_frame
from tandemq.model.terms import Term
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_golden import GOLDEN, build, describe, golden_files
from tests.storage.storage_samples import CLUSTER, EPOCH_US, NODE, TERM_1, loaded

META = Meta(CLUSTER, NODE, EPOCH_US)


def test_they_load_and_say_what_stands_beside_them() -> None:
    disk = MemoryDisk(golden_files())
    assert describe(disk) == (GOLDEN / "dump.txt").read_text("utf-8")
    verification = verify(disk)
    list(verification)
    assert verification.problems == verification.notes == []


def test_this_version_writes_the_same_bytes() -> None:
    # Rescue files are named after the term's id, too, since; those of older versions are read.
    now = {_as_once(name): data for name, data in build().contents().items()}
    assert now == golden_files()


def _as_once(name: str) -> str:
    return name.rpartition("-")[0] + ".wal" if name.startswith("rescue/") else name


def test_they_recover_from_a_real_directory(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "data")
    (tmp_path / "data" / "dump.txt").unlink()
    disk = FileDisk(tmp_path / "data")
    found, sink = loaded(disk)
    disk.release()
    assert found.reports == []
    assert (found.last_lsn, found.commit_lsn, found.snapshot_lsn) == (13, 12, 11)
    assert [lsn for lsn, _ in sink.lenient] == [7, 8, 9, 10, 11]
    assert [lsn for lsn, _ in sink.strict] == [12, 13]


def test_what_was_decoded_encodes_to_the_same_bytes() -> None:
    files = golden_files()
    disk = MemoryDisk(files)
    assert encode_meta(META) == files["meta"]
    assert encode_commit(12) == files["commit"]
    for name in segment_names(disk):
        reader = SegmentReader(disk, name, META)
        data = encode_segment_header(META, reader.term, reader.first_lsn)
        for header, body in reader.frames():
            records = decode_body(body, header.count)
            term = reader.term
            frame = encode_frame(records, term.number, term.id, header.first_lsn, header.commit_lsn)
            assert frame == whole_frame(header, body)
            data += frame
        if reader.footer is not None:
            reader.info.size = len(data)
            data += reader.info.footer()
        assert data == files[name]


def test_a_decoded_snapshot_encodes_to_the_same_bytes() -> None:
    disk, again = MemoryDisk(golden_files()), MemoryDisk()
    (name,) = snapshot_names(disk)
    terms: dict[int, Term] = {1: TERM_1}
    header = SnapshotReader(disk, name, CLUSTER).header
    assert header == SnapshotHeader(CLUSTER, NODE, (TERM_1,), 6)
    writer = SnapshotWriter(again, header)
    for part in read_snapshot(disk, name, META):
        match part:
            case ("catalogue", ops):
                writer.add_catalogue(ops)
            case ("rows", space_id, rows):
                writer.add_rows(space_id, rows)
            case ("term", term):
                terms[term.number] = term
                writer.add_term(term)
            case ("frame", frame, records):
                term_id = terms[frame.term].id
                writer.add_frames(
                    encode_frame(records, frame.term, term_id, frame.first_lsn, frame.commit_lsn)
                )
            case ("end", end):
                writer.finish(end.end_lsn, end.time_us)
    assert again.read(name) == disk.read(name)
