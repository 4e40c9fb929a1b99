"""The recording of `make run`: every line is there, and appears when it came."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from demo.record import SPEED, STAY, WIDTH, drawn

LINES = [(2.0, "first"), (6.0, "\x1b[32msecond\x1b[0m"), (10.0, "x" * 500)]


def test_lines_appear_in_their_time() -> None:
    svg = drawn(LINES, "a title")
    ElementTree.fromstring(svg)
    for text in ("a&#160;title", "first", "second"):
        assert text in svg
    assert "x" * (WIDTH - 1) + "…" in svg
    assert "x" * WIDTH not in svg
    assert "url(http" not in svg.replace(" ", "").replace('"', "")
    whole = 8.0 / SPEED + STAY
    shares = re.findall(r"@keyframes at(\d) \{ 0% \{ opacity: 0 \} ([0-9.]+)%", svg)
    assert [(int(number), float(share)) for number, share in shares] == [
        (number, round(100 * (at - 2.0) / SPEED / whole, 2)) for number, (at, _) in enumerate(LINES)
    ]
    for number in range(len(LINES)):
        assert f'late at{number}"' in svg
