"""What `tandemq archive ship` keeps is read as the directory it was taken from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.logmaker import LogMaker
from tandemq.log.segment import segment_names
from tandemq.log.shipped import VERSION, manifest_name, manifests
from tandemq.model.errors import StorageError
from tandemq.pipeline.judge.local import audit as judge
from tandemq.spark.disk import ArrowDisk
from tandemq_server.cli.archive_store import ArrowStore
from tandemq_server.storage.shipping import Shipping
from tests.spark.test_decode import read


def filled(maker: LogMaker, rounds: int) -> None:
    tube = maker.engine.tubes.get("q") or maker.tube("q")
    for number in range(rounds):
        maker.put(tube, {"n": number})
        maker.turn()
        task_id = maker.take(tube)
        assert task_id is not None
        tube.ack(maker.clients[1], task_id)
        maker.turn()


def ship(maker: LogMaker, archive: Path) -> str:
    """One round; the newest line's name."""
    store = ArrowStore(str(archive))
    Shipping(maker.disk, store).round(maker.engine.now)
    return list(manifests(store.list()))[-1]


def test_an_archive_and_its_line_read_as_the_log(maker: LogMaker, tmp_path: Path) -> None:
    filled(maker, 40)
    maker.commit()
    archive = tmp_path / "archive"
    ship(maker, archive)
    filled(maker, 40)
    maker.commit()
    line = ship(maker, archive)
    assert len(list(archive.glob("*/manifest-*.json"))) == 2
    expected = read(str(maker.directory))
    assert len(expected) > 240
    for path in (str(archive), str(archive / line), f"file://{archive}"):
        assert read(path) == expected
    here, there = ArrowDisk(str(maker.directory)), ArrowDisk(str(archive))
    assert segment_names(there) == segment_names(here)
    assert [there.size(name) for name in segment_names(there)] == [
        here.size(name) for name in segment_names(here)
    ]
    maker.close()
    whole, kept = judge([str(maker.directory)]), judge([str(archive)])
    assert (whole.ok, whole.counts) == (kept.ok, kept.counts)


def test_a_manifest_cut_off_is_not_there_yet_and_a_later_version_is_named(
    maker: LogMaker, tmp_path: Path
) -> None:
    filled(maker, 5)
    maker.commit()
    archive = tmp_path / "archive"
    line = ship(maker, archive)
    before = read(str(archive))
    whole = (archive / manifest_name(line, 1)).read_text()
    cut = archive / manifest_name(line, 2)
    cut.write_text(whole[: len(whole) // 2])
    assert read(str(archive)) == before
    cut.write_text(json.dumps(json.loads(whole) | {"version": VERSION + 1}))
    with pytest.raises(StorageError, match=f"version {VERSION + 1} is newer than {VERSION}"):
        read(str(archive))
    cut.write_text("[]")
    with pytest.raises(StorageError, match="is not what shipping writes"):
        read(str(archive))


def test_what_is_in_no_directory_and_no_archive_is_said(maker: LogMaker) -> None:
    maker.close()
    for disk in (ArrowDisk(str(maker.directory)), ArrowDisk(str(maker.directory / "none"))):
        with pytest.raises(StorageError, match="none"):
            disk.read("none.wal")
