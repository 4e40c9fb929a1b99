"""Text as HTML: foreign text is escaped here, numbers are written for people."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

#: Of a foreign text so many characters are shown where it is one of many.
TEXT_CHARS = 80
MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
_PICTURES = {code: 0x2400 + code for code in range(32)} | {127: 0x2421}
#: ms of a unit, from which on it is used.
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def text(value: object, most: int | None = TEXT_CHARS) -> str:
    """A foreign text, escaped; cut if longer than `most`. Control characters become pictures."""
    found = str(value)
    if most is not None and len(found) > most:
        found = found[: most - 1] + "…"
    found = found.translate(_PICTURES).encode("utf-8", "replace").decode()
    return html.escape(found)


def number(value: float | None) -> str:
    """1,234 or 0.25; an en dash where there is none."""
    if value is None or value != value:
        return NONE
    sign, value = (MINUS if value < 0 else ""), abs(value)
    if value == int(value) or value >= 100:
        return f"{sign}{round(value):,}"
    return f"{sign}{value:.2g}" if value < 10 else f"{sign}{value:.1f}"


def duration(ms: float | None) -> str:
    if ms is None or ms != ms:
        return NONE
    for unit, name in _UNITS:
        if ms >= unit:
            return f"{number(round(ms / unit, 3))} {name}"
    return f"{number(round(ms, 3))} ms"


def rate(per_second: float | None) -> str:
    """A rate in the unit in which it is a number one can grasp."""
    if per_second is None:
        return NONE
    for seconds, name in ((1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day")):
        if per_second * seconds >= 1 or name == "day":
            return f"{number(round(per_second * seconds, 2))} a {name}".replace("a hour", "an hour")
    raise AssertionError("a day is always enough")


def share(value: float | None) -> str:
    if value is None or value != value:
        return NONE
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def change(now: float | None, before: float | None) -> str:
    """By how much it changed, in words short enough for a tile."""
    if now is None or before is None:
        return ""
    if now == before:
        return "unchanged"
    if not before:
        return "none before"
    grown = now / before - 1
    if grown >= 9:
        return f"{now / before:,.0f} times as much"
    return f"{'+' if grown > 0 else MINUS}{abs(grown):.0%}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], name: str) -> str:
    """A table that scrolls by itself where it is too wide; cells are HTML already."""
    head = "".join(f"<th scope='col'>{one}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{one}</td>" for one in row) + "</tr>" for row in rows)
    if not body:
        return "<p class='none'>Nothing to tell.</p>"
    return (
        f"<div class='wide' tabindex='0' role='region' aria-label='{html.escape(name)}'>"
        f"<table id='{html.escape(name)}'><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def data(value: Any) -> str:
    """JSON that may stand in a script: no foreign text can end it."""
    found = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
