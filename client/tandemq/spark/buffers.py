"""Lines of the compiled walk to the buffers of Arrow's columns.

Numba looks only at this file when it reuses machine code, so `MADE_OF` changes with lines.py.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tandemq.model.record import INSERT, TRUNCATE
from tandemq.spark.lines import ATTEMPTS, NULL, WHAT

#: CRC of the sources and constants that are in the machine code kept: a test compares it.
MADE_OF = 0xAB356BD4


@njit(cache=True, error_model="numpy", _nrt=False)
def numbers(lines, fields, values, bits, missing):
    """Fields of lines as columns, Arrow's way: numbers, a bit for each that is there, a count of
    those that are not.

    fields: which. values: a line for each of them; bits: the same, zeros; missing: a number each.
    """
    for line in range(len(lines)):
        for column in range(len(fields)):
            field = fields[column]
            value = lines[line, field]
            if field == ATTEMPTS:
                what = lines[line, WHAT]
                if what == INSERT:
                    value = 0
                elif what == TRUNCATE:
                    value = NULL
            values[column, line] = value
            if value == NULL:
                missing[column] += 1
            else:
                bits[column, line >> 3] |= np.uint8(1 << (line & 7))


@njit(cache=True, error_model="numpy", _nrt=False)
def gather(data, lines, field, ends, out):
    """Copy the bytes whose place and size are `field` and the one behind, one after the other.

    `ends` gets Arrow's offsets. Bytes copied; not more than fit into `out`.
    """
    total = np.uint64(0)
    ends[0] = 0
    for line in range(len(lines)):
        at = lines[line, field]
        if at != NULL:
            start, size = np.uint64(at), np.uint64(lines[line, field + 1])
            for place in range(size):
                out[total + place] = data[start + place]
            total += size
        ends[line + 1] = total
    return total
