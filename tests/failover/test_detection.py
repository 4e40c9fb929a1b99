"""When a master counts as gone: case by case, and how often a node takes over automatically."""

from __future__ import annotations

import pytest

from tandemq_server.node.cluster.failover.detection import AnswerPace, Seen, gone

SECOND = 1_000_000
#: Of failover.silence.
SILENCE = 2 * SECOND
#: A link that broke just now, dials refused, the arbiter still hears it.
BROKEN = Seen(linked=False, silent_us=300_000, refused_us=300_000, key_gone=False, asked="")


@pytest.mark.parametrize(
    ("seen", "careful", "why"),
    [
        (BROKEN, False, "its process is gone: refused for 0.30 s"),
        (BROKEN._replace(refused_us=299_999), False, ""),
        (BROKEN._replace(refused_us=None), False, ""),
        # It may acknowledge alone: the arbiter must say so, too.
        (BROKEN, True, ""),
        (BROKEN._replace(key_gone=True), True, "its process is gone: refused for 0.30 s"),
        # Never heard in this process: a refused dial alone may be of anybody.
        (BROKEN._replace(silent_us=None), False, ""),
        (
            BROKEN._replace(silent_us=None, refused_us=None, key_gone=True),
            False,
            "nothing was ever heard of it here, nor does the arbiter hear it",
        ),
        # Only the link is cut: it lives as far as the arbiter knows.
        (Seen(False, 60 * SECOND, None, False, ""), False, ""),
        (Seen(False, SILENCE - 1, None, True, ""), False, ""),
        (
            Seen(False, SILENCE, None, True, ""),
            True,
            "silent for 2.00 s, and the arbiter does not hear it either",
        ),
        # A link that is heard outweighs all else; one that stands and is silent does not.
        (Seen(True, SILENCE - 1, 9 * SECOND, True, "a ends"), False, ""),
        (
            Seen(True, SILENCE, None, True, ""),
            False,
            "silent for 2.00 s, and the arbiter does not hear it either",
        ),
        (Seen(True, SILENCE, None, False, ""), False, ""),
        (Seen(False, 1, None, False, "a ends"), True, "a ends"),
    ],
)
def test_when_a_master_counts_as_gone(seen: Seen, careful: bool, why: str) -> None:
    assert gone(seen, SILENCE, careful) == why


def test_so_often_a_minute_so_often_an_hour_until_an_operator_has_looked() -> None:
    pace = AnswerPace(1, 2)
    assert not pace.wait_us(0)
    assert not pace.spent(0)
    pace.took(0)
    assert pace.wait_us(1) == 60 * SECOND - 1
    assert not pace.wait_us(60 * SECOND)
    pace.took(60 * SECOND)
    assert pace.spent(61 * SECOND)
    assert pace.spent(3_599 * SECOND)
    assert not pace.spent(3_600 * SECOND)
    pace.took(3_600 * SECOND)
    assert pace.spent(3_601 * SECOND)
    pace.forget()
    assert not pace.spent(3_601 * SECOND)
