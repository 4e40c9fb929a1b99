"""The `meta` file: whose directory this is. `commit`: how far the log was acknowledged.
`known`: what a node that lags has heard to be acknowledged by another.

Created once, verified at every start; a foreign or newer directory is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemq.log.blocks import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    check_owner,
    decode_block,
    encode_block,
    encode_fixed,
    unpack,
)
from tandemq.log.disk import SUFFIX_IN_PROGRESS, Disk, ReadDisk, write_file
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError

META_NAME = "meta"
COMMIT_NAME = "commit"
KNOWN_NAME = "known"
META_MAGIC = b"TQm1"
COMMIT_MAGIC = b"TQp1"
KNOWN_MAGIC = b"TQk1"
META_SIZE = 128
COMMIT_SIZE = BLOCK_SIZE + 8
KNOWN_SIZE = 128


@dataclass(frozen=True, slots=True)
class Meta:
    """Identity of a data directory. Ids are 16 bytes; `created_us` is wall time."""

    cluster: bytes
    node: bytes
    created_us: int
    version: int = FORMAT_VERSION


def read_meta(disk: ReadDisk) -> Meta | None:
    """The identity of the directory, None for an empty one.

    Raises `StorageError` when `meta` is damaged, newer, or missing beside other files.
    """
    names = disk.list()
    if META_NAME not in names:
        others = [name for name in names if not name.endswith(SUFFIX_IN_PROGRESS)]
        if others:
            raise StorageError(META_NAME, 0, f"is missing, though the directory has {others[0]}")
        return None
    data = disk.read(META_NAME)
    try:
        value = unpack(decode_block(data, 0, META_MAGIC))
    except FrameError as error:
        raise StorageError(META_NAME, 0, error.reason) from error
    if len(data) != META_SIZE:
        raise StorageError(META_NAME, META_SIZE, "bytes follow the identity")
    cluster = value.get("cluster") if isinstance(value, dict) else None
    fields = check_owner(META_NAME, value, cluster or b"", None)
    return Meta(fields["cluster"], fields["node"], fields["created"], fields["version"])


class NothingYet(StorageError):
    """The directory has nothing of what is asked for, and may have some later."""

    def __str__(self) -> str:
        return f"{self.file} {self.reason}"


def meta_of(disk: ReadDisk) -> Meta:
    """The identity of a directory that is expected to have one.

    Raises `NothingYet` where it has none, else `StorageError` as `read_meta` does.
    """
    meta = read_meta(disk)
    if meta is None:
        raise NothingYet(disk.where, 0, "is not a data directory yet")
    return meta


def open_meta(disk: Disk, cluster: bytes, node: bytes, created_us: int) -> Meta:
    """Create the identity of an empty directory, or verify that of a used one.

    Raises `StorageError` when the directory belongs to another cluster or node.
    """
    assert len(cluster) == len(node) == 16
    meta = read_meta(disk)
    if meta is None:
        meta = Meta(cluster, node, created_us)
        write_file(disk, META_NAME, encode_meta(meta))
    if meta.cluster != cluster:
        raise StorageError(
            META_NAME,
            0,
            f"{disk.where} belongs to cluster {meta.cluster.hex()}, not {cluster.hex()}",
        )
    if meta.node != node:
        raise StorageError(
            META_NAME, 0, f"{disk.where} belongs to node {meta.node.hex()}, not {node.hex()}"
        )
    return meta


def replace_meta(disk: Disk, meta: Meta) -> Meta:
    """Give a directory that holds nothing yet another identity. Raises `StorageError`."""
    write_file(disk, META_NAME, encode_meta(meta))
    return meta


def encode_meta(meta: Meta) -> bytes:
    value = {
        "version": meta.version,
        "cluster": meta.cluster,
        "node": meta.node,
        "created": meta.created_us,
    }
    return encode_fixed(META_MAGIC, value, META_SIZE)


def encode_commit(lsn: int) -> bytes:
    return encode_block(COMMIT_MAGIC, lsn.to_bytes(8, "big"))


def read_commit(disk: ReadDisk) -> tuple[int, str | None]:
    """(published commit LSN, None), or (0, why it cannot be read).

    The file is never synced, so a power cut may leave it empty: that is reported, not refused.
    """
    if COMMIT_NAME not in disk.list():
        return 0, None
    try:
        body = decode_block(disk.read(COMMIT_NAME), 0, COMMIT_MAGIC)
    except FrameError as error:
        return 0, f"{COMMIT_NAME}: {error.reason}; taken as not published"
    return int.from_bytes(body, "big"), None


def write_known(disk: Disk, cluster: bytes, lsn: int, number: int, term_id: bytes) -> None:
    """Keep, durably, that all up to `lsn` was acknowledged in a term. Raises `StorageError`."""
    value = {"version": FORMAT_VERSION, "cluster": cluster, "lsn": lsn, "term": [number, term_id]}
    write_file(disk, KNOWN_NAME, encode_fixed(KNOWN_MAGIC, value, KNOWN_SIZE))


def read_known(disk: ReadDisk, cluster: bytes) -> tuple[int, int, bytes] | None:
    """What `write_known` kept last of this cluster: (LSN, number and id of the term), or None.

    Raises `StorageError`: whoever guesses instead may serve without what was acknowledged.
    """
    if KNOWN_NAME not in disk.list():
        return None
    try:
        value = unpack(decode_block(disk.read(KNOWN_NAME), 0, KNOWN_MAGIC))
    except FrameError as error:
        raise StorageError(KNOWN_NAME, 0, error.reason) from error
    if isinstance(value, dict) and value.get("cluster") != cluster:
        return None
    fields = check_owner(KNOWN_NAME, value, cluster, None)
    lsn, term = fields.get("lsn"), fields.get("term")
    if not isinstance(lsn, int) or not isinstance(term, list) or len(term) != 2:
        raise StorageError(KNOWN_NAME, 0, "has no LSN or no term")
    number, term_id = term
    if not isinstance(number, int) or not isinstance(term_id, bytes) or len(term_id) != 16:
        raise StorageError(KNOWN_NAME, 0, "has a term without number or id of 16 bytes")
    return lsn, number, term_id
