"""Rows on their way between Python workers: packed by bucket into a few large values.

What a row costs Spark does not depend on its size, so what must meet in one worker travels as
Arrow streams, one for each bucket: Spark's own shuffle carries them and looks into none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from tandemq.pipeline.arrays import Ints, as_text, encoded, numbers

#: A dictionary is cut down to what a bucket uses where it is longer than this part of its rows.
NARROW = 4
BUCKETS_MIN, BUCKETS_MAX = 16, 1 << 16
#: So many parts of a log have one bucket more between them.
PARTS_A_BUCKET = 4
#: Odd, and as good as random: neighbouring tasks go to different buckets.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def buckets_for(parts: int) -> int:
    """How many buckets rows of so many parts are spread over: a power of two."""
    wanted = 1 << max(parts // PARTS_A_BUCKET - 1, 0).bit_length()
    return min(max(BUCKETS_MIN, wanted), BUCKETS_MAX)


def bucket_of(values: Ints, buckets: int) -> Ints:
    """The bucket of each number; `buckets` is a power of two."""
    mixed = values.astype(np.uint64) * _SPREAD
    return (mixed >> np.uint64(40)).astype(np.int64) & (buckets - 1)


def marks(texts: Iterable[str]) -> Ints:
    """A number for each text, the same in every worker."""
    return np.array([crc32(text.encode()) << 30 for text in texts], np.int64)


def bucket_in_tube(tube: pa.ChunkedArray, values: pa.ChunkedArray, buckets: int) -> Ints:
    """The bucket of each pair of a tube's name and a number."""
    code, names = encoded(tube)
    return bucket_of(marks([*names, ""])[code] + numbers(values), buckets)


def packed(table: pa.Table, bucket: Ints, buckets: int) -> tuple[list[int], pa.Array]:
    """(buckets that have rows; an Arrow stream for each). Rows keep their order."""
    order = np.argsort(bucket.astype(np.uint16), kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1))
    sorted_rows = table.take(pa.array(order)).unify_dictionaries().combine_chunks()
    found = np.flatnonzero(np.diff(edges))
    sink, offsets = pa.BufferOutputStream(), [0]
    for one in found.tolist():
        start, end = int(edges[one]), int(edges[one + 1])
        columns = [_narrowed(column.chunk(0)[start:end]) for column in sorted_rows.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        with ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_batch(batch)
        offsets.append(sink.tell())
    places = pa.py_buffer(np.array(offsets, np.int32))
    bodies = pa.Array.from_buffers(pa.binary(), len(found), [None, places, sink.getvalue()])
    return found.tolist(), bodies


def _narrowed(column: pa.Array) -> pa.Array:
    """A dictionary without what no row of this bucket uses."""
    if not pa.types.is_dictionary(column.type):
        return column
    count = len(column.dictionary)
    if count * NARROW <= len(column):
        return column
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    used = np.zeros(count + 1, bool)
    used[codes] = True
    used[count] = False
    places = np.cumsum(used) - 1
    places[count] = -1
    return as_text(places[codes], column.dictionary.filter(pa.array(used[:count])))


def unpacked(bodies: Iterable[Iterable[pa.Scalar]]) -> Iterator[pa.Table]:
    """The tables of packed columns."""
    for column in bodies:
        for one in column:
            if one.is_valid:
                with ipc.open_stream(one.as_buffer()) as reader:
                    yield reader.read_all()
