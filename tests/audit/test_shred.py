"""Records as columns: plain Python and compiled code make the same lines of any record."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.record import FrameHeader, encode_frame
from tandemq.pipeline.judge import shred_compiled, words
from tandemq.pipeline.judge.read import NodeLog
from tandemq.pipeline.judge.shred import shred
from tandemq.pipeline.judge.shred_compiled import shred_fast
from tandemq.spark import heads
from tests.audit.scenes import SCENES

HEADER = 36
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.binary(min_size=16, max_size=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ROWS = st.lists(VALUES, min_size=1, max_size=18)
KEYS = st.integers(0, 2**64 - 1) | st.text(max_size=12) | st.tuples(st.integers(0, 9), st.text())
PAIRS = st.lists(st.tuples(st.integers(0, 20), VALUES), max_size=4).map(
    lambda pairs: [part for pair in pairs for part in pair]
)
SPACES = st.integers(512, 70_000)
OPS = (
    st.tuples(st.just(1), SPACES, ROWS)
    | st.builds(lambda s, k, p: (2, s, k, *p), SPACES, KEYS, PAIRS)
    | st.tuples(st.just(3), SPACES, KEYS)
    | st.tuples(st.just(6), SPACES)
    | st.tuples(st.just(9), SPACES, st.lists(ROWS, max_size=3))
    | st.builds(lambda s, k, p: (10, s, k, *p), SPACES, st.lists(KEYS, max_size=3), PAIRS)
    | st.tuples(st.just(11), SPACES, st.lists(KEYS, max_size=3))
)
RECORDS = st.tuples(
    st.integers(0, 2**55),
    st.integers(1, 27),
    st.none() | st.binary(min_size=16, max_size=16),
    st.lists(OPS, max_size=4),
)


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_any_record(records: list[tuple[object, ...]]) -> None:
    frame = encode_frame(records, 1, b"t" * 16, 7, 6)  # type: ignore[arg-type]
    header = FrameHeader(len(frame) - HEADER, 0, 1, 7, len(records), 6)
    for one, other in zip(
        shred(frame, [(header, HEADER)]), shred_fast(frame, [(header, HEADER)]), strict=True
    ):
        assert one.shape == other.shape
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", sorted(SCENES)[::6])
def test_scenes(played: Callable[[str], Path], name: str) -> None:
    for part in NodeLog(str(played(name))).parts():
        found = shred(part.data, part.frames), shred_fast(part.data, part.frames)
        assert np.array_equal(found[0][0], found[1][0])
        assert np.array_equal(found[0][1], found[1][1])


def test_machine_code_that_was_kept_is_made_anew_when_its_sources_change() -> None:
    """numba looks at the file of the function it keeps, not at what that puts in."""
    sources = b"".join(Path(one.__file__ or "").read_bytes() for one in (heads, words))
    assert zlib.crc32(sources) == shred_compiled.MADE_OF, hex(zlib.crc32(sources))
