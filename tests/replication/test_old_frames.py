"""A frame larger than what is written today, in a log of an older version, reaches a replica."""

from __future__ import annotations

from random import Random

import pytest

from tandemq.model import record
from tandemq_server.replication import codec
from tests.replication.replication_twins import Node, same, settle

BOUND = 2_000


class Whole(Random):
    """Messages arrive whole, and as the log is read: a frame above the bound has one of its own."""

    def random(self) -> float:
        return 0.6


@pytest.mark.parametrize("live", [False, True], ids=["from the log", "as it is written"])
def test_a_frame_above_todays_bound_is_followed(
    monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    rng, one, two = Whole(1), Node("a"), Node("b")
    one.promote()
    one.write(5)
    if live:
        settle(one, two, rng)
    one.write(600)
    one.write(5)
    assert max(header.length for header, _, _ in one.frames) > 2 * BOUND
    # From here on neither such a frame nor such a message could be made any more.
    monkeypatch.setattr(record, "FRAME_BODY_BYTES_MAX", BOUND)
    monkeypatch.setattr(record, "FRAME_BODY_BYTES_AIM", BOUND // 2)
    monkeypatch.setattr(codec, "MESSAGE_BYTES_MAX", BOUND + 100)
    monkeypatch.setattr(codec.MessageDecoder.__init__, "__defaults__", (BOUND + 100,))
    settle(one, two, rng)
    assert same(one, two)
    assert not two.alarms
    # The replica hands it on in its turn.
    three = Node("c")
    settle(two, three, rng)
    assert same(one, three)
    # A message as large that is no frame is refused, as before.
    decoder = codec.MessageDecoder()
    with pytest.raises(codec.LinkError):
        list(decoder.feed((BOUND + 101).to_bytes(4, "big") + b"\x00" * 200))
