"""Arrow columns as numpy arrays and back: what every kernel of the jobs is written in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Bits = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
#: Texts as the kernels have them: each once, and a number for every row.
TEXT = pa.dictionary(pa.int32(), pa.string())


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark and files have it: texts are texts."""
    return pa.schema(
        [(field.name, pa.string() if field.type == TEXT else field.type) for field in schema]
    )


def numbers(column: pa.ChunkedArray, missing: int = 0) -> Ints:
    """The column as numbers, `missing` for NULL."""
    if column.null_count:
        column = pc.fill_null(column, missing)
    found: Ints = column.to_numpy().astype(np.int64, copy=False)
    return found


def nullable(values: Ints, there: Bits) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~there)


def encoded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """(a number for each value, -1 for NULL; the values by number)."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.empty(0, np.int64), []
    codes = pa.chunked_array([chunk.indices for chunk in column.chunks])
    return numbers(codes, -1), column.chunk(0).dictionary.to_pylist()


def as_text(codes: Ints, texts: pa.Array) -> pa.DictionaryArray:
    """A column of TEXT: the text of each number, NULL for -1."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, texts)


def place_of(texts: list[str], text: str) -> int:
    """The number of a text among those `encoded` gave; -2, which no row has, if it is not there."""
    return texts.index(text) if text in texts else -2


def chosen_rows(table: pa.Table, chosen: Bits) -> pa.Table:
    """The table itself where all of it is chosen."""
    return table if chosen.all() else table.filter(pa.array(chosen))
