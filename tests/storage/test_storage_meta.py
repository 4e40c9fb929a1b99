"""Whose directory it is: created once, verified at every start, refused by name."""

from __future__ import annotations

import pytest

from tandemq.log.blocks import encode_fixed
from tandemq.log.disk import Disk
from tandemq.log.meta import (
    META_MAGIC,
    META_SIZE,
    Meta,
    encode_commit,
    encode_meta,
    open_meta,
    read_commit,
    read_known,
    read_meta,
    write_known,
)
from tandemq.model.errors import StorageError
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import recover
from tests.storage.storage_samples import CLUSTER, EPOCH_US, NODE, Collect


def test_created_once_then_verified(disk: Disk) -> None:
    assert read_meta(disk) is None
    meta = open_meta(disk, CLUSTER, NODE, EPOCH_US)
    assert meta == Meta(CLUSTER, NODE, EPOCH_US, 1)
    assert open_meta(disk, CLUSTER, NODE, EPOCH_US + 99) == meta
    assert read_meta(disk) == meta
    assert disk.list() == ["meta"]


def test_another_cluster_or_node_is_refused() -> None:
    disk = MemoryDisk(where="/data")
    open_meta(disk, CLUSTER, NODE, EPOCH_US)
    with pytest.raises(
        StorageError, match=f"meta: .*/data belongs to cluster {CLUSTER.hex()}, not"
    ):
        open_meta(disk, NODE, NODE, EPOCH_US)
    with pytest.raises(StorageError, match=f"meta: .*/data belongs to node {NODE.hex()}, not"):
        open_meta(disk, CLUSTER, CLUSTER, EPOCH_US)


def test_a_newer_version_is_refused() -> None:
    value = {"version": 2, "cluster": CLUSTER, "node": NODE, "created": 1, "new": True}
    disk = MemoryDisk({"meta": encode_fixed(META_MAGIC, value, META_SIZE)})
    with pytest.raises(StorageError, match="meta: byte 0: format version 2 is newer than 1"):
        open_meta(disk, CLUSTER, NODE, EPOCH_US)


def test_every_flip_and_every_length_is_refused() -> None:
    good = encode_meta(Meta(CLUSTER, NODE, EPOCH_US))
    damaged = [good[:size] for size in range(len(good))] + [good + b"\0"]
    for bit in range(len(good) * 8):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(StorageError, match=r"^meta: "):
            read_meta(MemoryDisk({"meta": data}))


def test_a_directory_with_files_but_without_meta_is_refused() -> None:
    disk = MemoryDisk({"00000000000000000001.wal": b""})
    with pytest.raises(StorageError, match=r"meta: .* is missing, though the directory has 0000"):
        open_meta(disk, CLUSTER, NODE, EPOCH_US)
    with pytest.raises(StorageError, match="not a data directory yet"):
        recover(MemoryDisk(), Collect())


def test_commit_reads_back_or_says_why_not() -> None:
    assert read_commit(MemoryDisk()) == (0, None)
    good = encode_commit(77)
    assert read_commit(MemoryDisk({"commit": good})) == (77, None)
    for bit in range(len(good) * 8):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        lsn, problem = read_commit(MemoryDisk({"commit": bytes(flipped)}))
        assert lsn == 0
        assert problem is not None
        assert problem.startswith("commit: ")


def test_what_is_known_to_be_acknowledged_is_kept_and_damage_is_told() -> None:
    disk = MemoryDisk()
    assert read_known(disk, CLUSTER) is None
    write_known(disk, CLUSTER, 302, 7, b"t" * 16)
    assert read_known(disk, CLUSTER) == (302, 7, b"t" * 16)
    assert read_known(disk, b"o" * 16) is None, "of a cluster this node does not belong to any more"
    good = disk.read("known")
    for at in range(len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 0x40
        with pytest.raises(StorageError, match="known"):
            read_known(MemoryDisk({"known": bytes(flipped)}), CLUSTER)
