"""The page's charts, as Vega-Lite tells them.

Colours are the page's own variables, so that light and dark need no second drawing.
"""

from __future__ import annotations

from typing import Any

#: Drawn at the page's width; a card's is part of a row of such.
HEIGHT, CARD_HEIGHT = 190, 46
FLOW = {"put": "var(--put)", "gone": "var(--left)"}
QUANTILES = {"p50": "var(--p50)", "p95": "var(--p95)", "p99": "var(--p99)"}
REASONS = {
    "released": "var(--released)",
    "ttr": "var(--ttr)",
    "buried": "var(--buried)",
    "dead": "var(--dead)",
}
CONFIG = {
    "background": "transparent",
    "font": "inherit",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
    },
    "legend": {"labelColor": "var(--ink)", "orient": "top", "title": None},
}


#: Times of the day by 24 hours, days by name of the month.
TIMES = {"seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M", "day": "%d %b"}
TIMES |= {"date": "%d %b", "week": "%d %b", "month": "%b %Y", "year": "%Y"}


def _time(axis: bool = True) -> dict[str, Any]:
    shown = {
        "title": None,
        "labelFlush": True,
        "labelOverlap": True,
        "grid": False,
        "format": TIMES,
    }
    return {
        "field": "t",
        "type": "temporal",
        "scale": {"type": "utc"},
        "axis": {**shown, "tickCount": {"signal": "ceil(width/90)"}} if axis else None,
    }


def _colours(of: dict[str, str], legend: bool = True) -> dict[str, Any]:
    scale = {"domain": [*of], "range": [*of.values()]}
    return {"field": "k", "type": "nominal", "scale": scale, **({} if legend else {"legend": None})}


def _value(title: str, field: str = "v") -> dict[str, Any]:
    axis = {"title": title, "tickCount": 4, "format": "~s" if "second" not in title else "~r"}
    return {"field": field, "type": "quantitative", "axis": axis}


def _tips(*of: tuple[str, str]) -> list[dict[str, Any]]:
    kinds = {"t": {"type": "temporal", "format": "%d %b %Y %H:%M:%S"}, "k": {"type": "nominal"}}
    number: dict[str, Any] = {"type": "quantitative", "format": ",.4~r"}
    return [{"field": field, "title": title, **kinds.get(field, number)} for field, title in of]


def _lines(of: dict[str, str], title: str) -> dict[str, Any]:
    tips = _tips(("t", "from (UTC)"), ("k", "what"), ("v", title))
    return {
        "mark": {"type": "line", "point": {"size": 18}, "strokeWidth": 1.7},
        "encoding": {"x": _time(), "y": _value(title), "color": _colours(of), "tooltip": tips},
    }


def _chart(layer: dict[str, Any], height: int = HEIGHT, marked: bool = True) -> dict[str, Any]:
    """A drawing over rows, with a line where the period begins."""
    begin = {
        "data": {"name": "begins", "values": []},
        "mark": {"type": "rule", "strokeDash": [4, 4], "stroke": "var(--soft)"},
        "encoding": {
            "x": {"field": "t", "type": "temporal", "scale": {"type": "utc"}},
            "opacity": {"field": "o", "type": "quantitative", "scale": None},
        },
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "rows", "values": []},
        "config": CONFIG,
        "layer": [layer, begin] if marked else [layer],
    }


def _bars() -> dict[str, Any]:
    axis = {"title": None, "labelAngle": -40, "labelOverlap": True}
    tips = _tips(("k", "took"), ("v", "deliveries"), ("b", "the period before"))
    return {
        "mark": {"type": "bar", "color": "var(--put)"},
        "encoding": {
            "x": {"field": "k", "type": "ordinal", "sort": None, "axis": axis},
            "y": _value("deliveries"),
            "tooltip": tips,
        },
    }


def _stacked() -> dict[str, Any]:
    made = _lines(REASONS, "failed deliveries")
    made["mark"] = {"type": "bar", "width": {"band": 0.9}}
    made["encoding"]["x"] = _time() | {"field": "t", "bandPosition": 0}
    made["mark"] = {"type": "bar", "size": 5}
    return made


def _area(title: str) -> dict[str, Any]:
    mark = {"type": "area", "line": {"color": "var(--stock)"}, "color": "var(--stock)"}
    tips = _tips(("t", "from (UTC)"), ("v", title))
    return {
        "mark": {**mark, "fillOpacity": 0.25},
        "encoding": {"x": _time(), "y": _value(title), "tooltip": tips},
    }


def _card() -> dict[str, Any]:
    hidden = {"field": "v", "type": "quantitative", "axis": None}
    return {
        "mark": {"type": "line", "strokeWidth": 1.5},
        "encoding": {"x": _time(False), "y": hidden, "color": _colours(FLOW, legend=False)},
    }


def specs() -> dict[str, dict[str, Any]]:
    """Vega-Lite by kind of chart."""
    return {
        "flow": _chart(_lines(FLOW, "tasks")),
        "stock": _chart(_area("tasks")),
        "oldest": _chart(_area("seconds")),
        "times": _chart(_lines(QUANTILES, "seconds")),
        "reasons": _chart(_stacked()),
        "spread": _chart(_bars(), marked=False),
        "card": _chart(_card(), CARD_HEIGHT, marked=False),
    }
