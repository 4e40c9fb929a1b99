"""Arguments of `finish`, taken apart with payloads left as they are."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.errors import QueueError
from tandemq_server.wire.finish import split_finish

payloads = st.recursive(
    st.none() | st.integers(-5, 2**40) | st.text(max_size=40) | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
puts = st.lists(st.tuples(st.text(max_size=5), payloads, st.none() | st.just({"pri": 1})))


@given(task_id=st.integers(0, 2**63), wanted=puts, more=st.sampled_from([[], [{"token": 7}]]))
def test_what_goes_in_comes_out(task_id: int, wanted: list[Any], more: list[Any]) -> None:
    given_id, found, options = split_finish(msgpack.packb([task_id, wanted, *more]))
    assert given_id == task_id
    assert options == (more[0] if more else None)
    assert found == [(name, msgpack.packb(data), opts) for name, data, opts in wanted]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], (None, [], None)),
        ([5], (5, [], None)),
        ([5, None, {"token": 1}], (5, [], {"token": 1})),
        ([5, [["a", 1]], None, "ignored"], (5, [("a", b"\x01", None)], None)),
    ],
)
def test_shorter_forms(args: list[Any], expected: Any) -> None:
    assert split_finish(msgpack.packb(args)) == expected


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([1, 5], "finish: argument #2 should be an array"),
        ([1, {}], "finish: argument #2 should be an array"),
        ([1, ["a"]], "finish: put 1 should be [tube, data] or [tube, data, options]"),
        ([1, [["a", 1], ["a"]]], "finish: put 2 should be"),
        ([1, [["a", 1, None, 2]]], "finish: put 1 should be"),
    ],
)
def test_other_shapes_are_named(args: list[Any], text: str) -> None:
    with pytest.raises(QueueError) as caught:
        split_finish(msgpack.packb(args))
    assert (caught.value.code, text in caught.value.text) == (1, True)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_a_clean_error(args: bytes) -> None:
    try:
        split_finish(args)
    except QueueError as error:
        assert error.code in (1, 20)


def test_a_cut_or_a_tail_is_malformed() -> None:
    whole = msgpack.packb([1, [["a", "b"]], None])
    for bad in (*(whole[:end] for end in range(len(whole))), whole + b"\xc0"):
        with pytest.raises(QueueError) as caught:
            split_finish(bad)
        assert caught.value.code == 20
