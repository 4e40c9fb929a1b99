"""What a right says, and what it must not."""

from __future__ import annotations

import time

import pytest

from tandemq_server.node.core.patterns import matcher


@pytest.mark.parametrize(
    ("pattern", "call", "allowed"),
    [
        ("*", "queue.tube.jobs:put", True),
        ("*", "space:jobs", True),
        ("queue.*", "queue.tube.jobs:secret:put", True),
        ("queue.*", "queue15.put", False),
        ("queue.tube.jobs:*", "queue.tube.jobs:put", True),
        ("queue.tube.jobs:*", "queue.tube.jobs:secret:put", False),
        ("queue.tube.jobs:*", "queue.tube.jobs2:put", False),
        ("queue.tube.jobs:secret:*", "queue.tube.jobs:secret:put", True),
        ("queue.tube.jobs:p*", "queue.tube.jobs:put_many", True),
        ("queue.tube.jobs*:put", "queue.tube.jobs:secret:put", True),
        ("queue.tube.jobs:put", "queue.tube.jobs:put", True),
        ("queue.tube.jobs:put", "queue.tube.jobs:take", False),
        ("queue.tube.*:put", "queue.tube.a:b:put", True),
        # Rights are handed on by those only who were told that they may.
        ("queue.tube.jobs:*", "queue.tube.jobs:grant", False),
        ("queue.tube.*:*", "queue.tube.jobs:revoke_role", False),
        ("queue.tube.jobs:g*", "queue.tube.jobs:grant", False),
        ("queue.tube.jobs:grant", "queue.tube.jobs:grant", True),
        ("queue.tube.jobs:grant", "queue.tube.jobs:grant_role", False),
        ("queue.*", "queue.tube.jobs:grant", True),
        # Only stars are special: tubes may be called anything.
        ("queue.tube.a[bc]:put", "queue.tube.ab:put", False),
        ("queue.tube.a[bc]:put", "queue.tube.a[bc]:put", True),
        ("queue.tube.jo?s:put", "queue.tube.jobs:put", False),
        ("queue.tube.a.b:put", "queue.tube.aXb:put", False),
        ("space:jobs", "space:jobs", True),
        ("space:jobs", "space:jobs:secret", False),
        ("space:*", "space:a:b", True),
        ("queue.tube.*", "space:jobs", False),
        ("box.space.rec:*", "box.space.rec:get", True),
        ("box.space.rec:*", "box.space.rec:x:get", False),
        ("replication", "replication", True),
        ("box.session.*", "box.session.id", True),
    ],
)
def test_patterns(pattern: str, call: str, allowed: bool) -> None:
    assert matcher(pattern)(call) is allowed


def test_many_stars_are_not_slow() -> None:
    began = time.perf_counter()
    assert not matcher("queue.tube." + "*" * 50 + "x:put")("queue.tube." + "a" * 50_000 + ":put")
    assert time.perf_counter() - began < 1
