"""The page of a report: one HTML text made of its tables, which loads nothing from anywhere.

Here: its sections. What they say is made in `summary.py`, charts are told in `charts.py`, their
numbers in `data.py`; `markup.py` escapes. `page.js` draws. Must not be here: Spark, files, a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files

from tandemq.pipeline.page import markup
from tandemq.pipeline.page.data import of_page
from tandemq.pipeline.page.library import drawing
from tandemq.pipeline.page.markup import change, data, duration, number, rate, share, table, text
from tandemq.pipeline.page.summary import (
    BUSY_LOOK,
    FAILED_ACT,
    FAILED_LOOK,
    FEW_MIN,
    GRAVITY,
    GREW_MIN,
    LEFT_SHARE,
    Flow,
    Tables,
    capacity,
    durations,
    flows,
    total,
    verdict,
)
from tandemq.pipeline.spans import BEFORE, CURRENT, TimeSpan

ROWS = 20
STATES = {"ok": "Good", "look": "Look", "act": "Act"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"
#: What a delivery ends with that makes another one necessary, in words.
REASONS = {
    "released": "given back by its worker",
    "ttr": "not done within its time to run, or its worker gone",
    "buried": "buried by its worker",
    "dead": "given up: no attempt left",
}
CHARTS = (
    ("flow", "flow", "Tasks put and gone"),
    ("stock", "stock", "Tasks there at the end of each slot"),
    ("wait", "times", "Waiting, of deliveries taken"),
    ("run", "times", "Running, of deliveries taken"),
    ("oldest", "oldest", "Age of the oldest task there"),
    ("failed", "reasons", "Failed deliveries by reason"),
)
SPREADS = (("wait", "How long tasks waited"), ("run", "How long deliveries ran"))


def page(tables: Tables, span: TimeSpan) -> str:
    """The whole page."""
    now = flows(tables, CURRENT)
    seen = {*now}.union(*({*tables[name]["tube"]} for name in ("throughput", "backlog")))
    quiet = Flow()
    names = sorted(
        seen,
        key=lambda tube: (GRAVITY[now.get(tube, quiet).state], -now.get(tube, quiet).puts, tube),
    )
    sections = (
        _head(tables, span),
        _headline(tables, span),
        _over_time(),
        _capacity(tables, span),
        _spreads(tables, span),
        _failures(tables, span),
        _tubes(names, now),
        _workers(tables),
        _method(span),
    )
    library, specs = drawing()
    given = {"page": of_page(tables, span, names, now), "specs": specs}
    own = files("tandemq.pipeline.page")
    style, script = ((own / name).read_text("utf-8") for name in ("page.css", "page.js"))
    head = (
        "<meta charset='utf-8'><title>Queue report</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<style>{style}</style>"
    )
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}</head><body>\n<main id='report'>\n"
        + "\n".join(sections)
        + f"\n</main>\n{_tube_page()}\n"
        + f"<script type='application/json' id='given'>{data(given)}</script>\n"
        + f"<script>{library}</script>\n<script>{script}</script>\n</body></html>\n"
    )


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%d %b %Y %H:%M:%S} UTC"


def _section(name: str, title: str, *parts: str) -> str:
    return f"<section id='{name}'><h2>{title}</h2>\n" + "\n".join(parts) + "\n</section>"


def _length(span: TimeSpan) -> str:
    first, last = span.bounds(CURRENT)
    return duration((last - first) / 1000)


def _head(tables: Tables, span: TimeSpan) -> str:
    found = verdict(tables, span)
    first, last = span.bounds(CURRENT)
    if span.compared:
        when = (
            f"The last {_length(span)} of the log, from {_moment(first)} to {_moment(last)}, "
            f"beside the {_length(span)} before. The log begins {_moment(span.first_us)}."
        )
    elif span.last_us:
        when = (
            f"The whole log, {_length(span)} from {_moment(first)} to {_moment(last)}. "
            "It is too short for a period before to compare with."
        )
    else:
        when = "The log has no task."
    reasons = "".join(f"<li>{text(one, None)}</li>" for one in found.reasons)
    return (
        f"<header><h1>Queue report</h1><p id='period'>{when}</p></header>\n"
        f"<section id='verdict' class='{found.state}'><p><strong>{STATES[found.state]}.</strong> "
        f"{text(found.says, None)}</p>{f'<ul>{reasons}</ul>' if reasons else ''}</section>"
    )


def _tile(key: str, title: str, value: float | None, shown: str, beside: str) -> str:
    exact = "" if value is None else f"{value:.15g}"
    return (
        f"<div class='tile' data-figure='{key}' data-value='{exact}'><h3>{title}</h3>"
        f"<p class='value'>{shown}</p><p class='beside'>{beside}</p></div>"
    )


def _headline(tables: Tables, span: TimeSpan) -> str:
    sums = {period: total(flows(tables, period)) for period in span.periods}
    now, before = sums[CURRENT], sums.get(BEFORE)
    tiles = []
    counts = (("puts", "Tasks put"), ("left", "Tasks gone"), ("acked", "of them acknowledged"))
    for key, title in counts:
        value, was = getattr(now, key), getattr(before, key, None)
        tiles.append(_tile(key, title, value, number(value), _beside(value, was, number(was))))
    part, was = now.failed_share, before.failed_share if before else None
    points = f"{share(was)} before" if before else ""
    failed = f"{number(now.failed)} of {number(now.takes)} deliveries. {points}"
    tiles.append(_tile("failed", "Deliveries failed", now.failed, share(part), failed))
    for measure, title in (("wait", "Waiting"), ("run", "Running")):
        of = [durations(tables["distribution"], period, measure) for period in span.periods]
        for p, name in (("p50", "median"), ("p95", "95 of 100 within")):
            value, old = of[0][p], of[1][p] if span.compared else None
            shown, beside = duration(value), _beside(value, old, duration(old))
            tiles.append(_tile(f"{measure}_{p}", f"{title}, {name}", value, shown, beside))
    grew = f"{'+' if now.grew > 0 else ''}{number(now.grew)} since the period began"
    there = _tile("there", "Tasks there now", now.there_after, number(now.there_after), grew)
    tiles.append(there if span.compared else there.replace(grew, "at the log's end"))
    return _section("headline", "In short", f"<div class='tiles'>{''.join(tiles)}</div>")


def _beside(now: float | None, before: float | None, shown: str) -> str:
    if before is None:
        return ""
    return f"{change(now, before)}; {shown} before"


def _plot(name: str, kind: str, title: str) -> str:
    return (
        f"<figure><figcaption>{title}</figcaption>"
        f"<div class='chart' data-chart='{name}' data-kind='{kind}' role='img' "
        f"aria-label='{title}'></div></figure>"
    )


def _over_time() -> str:
    drawn = "".join(_plot(*one) for one in CHARTS[:-1])
    note = (
        "<noscript><p>The charts are drawn by the page's own script, which is switched off."
        "</p></noscript>"
    )
    return _section("time", "Over time, all tubes", note, f"<div class='charts'>{drawn}</div>")


def _capacity(tables: Tables, span: TimeSpan) -> str:
    found = capacity(tables, span, CURRENT)
    rows = [
        ("Arrival rate", "arrival", found.arrival, rate(found.arrival), "tasks put"),
        ("Service rate", "service", found.service, rate(found.service), "tasks acknowledged"),
        ("In hand", "busy", found.busy, number(round(found.busy, 2)), "tasks at work on average"),
        (
            "Consumers",
            "present",
            found.present,
            number(round(found.present, 2)),
            f"there on average, of {number(found.consumers)} seen",
        ),
    ]
    if span.compared:
        old = capacity(tables, span, BEFORE)
        before = (rate(old.arrival), rate(old.service), number(round(old.busy, 2)))
        was = [*before, number(round(old.present, 2))]
    else:
        was = [markup.NONE] * 4
    cells = [
        (name, f"<span data-figure='{key}' data-value='{value:.15g}'>{shown}</span>", b, says)
        for (name, key, value, shown, says), b in zip(rows, was, strict=True)
    ]
    heads = ("", "this period", "before", "")
    return _section(
        "capacity",
        "Capacity",
        f"<p id='capacity-says'>{_means(tables, span)}</p>",
        table(heads, cells, "rates"),
        "<p class='note'>A consumer is there from its first take to the last end of what it took; "
        "one that never took a task is not in the log. Capacity is the service rate divided by the "
        "part of that time in which consumers had a task: what they would do without a pause, if "
        "tasks went on taking as long. It is an estimate of all tubes together, not a test.</p>",
    )


def _means(tables: Tables, span: TimeSpan) -> str:
    """What the rates mean, in sentences."""
    found, flow = capacity(tables, span, CURRENT), total(flows(tables, CURRENT))
    if not found.consumers:
        return "No consumer took a task in this period: nothing can be said of capacity."
    grows = (flow.puts - flow.left) / found.seconds
    said = []
    if abs(flow.puts - flow.left) < GREW_MIN:
        said.append("About as many tasks left as came.")
    elif grows > 0:
        said.append(f"More tasks came than left: the stock grew by {rate(grows)}.")
    else:
        said.append(f"More tasks left than came: the stock shrank by {rate(-grows)}.")
        if flow.there_after:
            left = duration(flow.there_after / -grows * 1000)
            said.append(f"At that pace what is there would be gone in {left}.")
    used = found.utilisation or 0
    if found.most is None:
        if used > 1:
            said.append(
                f"Consumers held {number(round(used, 2))} tasks at once on average: the log does "
                "not tell how many more they could have held, so no capacity is given."
            )
        else:
            said.append("No task was acknowledged: no capacity is given.")
        return " ".join(said)
    room = found.most / found.arrival if found.arrival else None
    said.append(
        f"Consumers were at work {share(used)} of the time they were there; without pauses they "
        f"could have done about <strong>{rate(found.most)}</strong>"
        + (f", {room:.1f} times what came." if room is not None else ".")
    )
    return " ".join(said)


def _spreads(tables: Tables, span: TimeSpan) -> str:
    drawn = "".join(_plot(f"bars-{name}", "spread", title) for name, title in SPREADS)
    rows = []
    for measure, _ in SPREADS:
        for period in span.periods:
            of = durations(tables["distribution"], period, measure)
            when = "this period" if period == CURRENT else "before"
            name = "waiting" if measure == "wait" else "running"
            rows.append((name, when, *(duration(of[p]) for p in ("p50", "p95", "p99"))))
    heads = ("", "", "half within", "95 of 100 within", "99 of 100 within")
    return _section(
        "durations",
        "How long things take",
        f"<div class='charts'>{drawn}</div>",
        table(heads, rows, "quantiles"),
    )


def _failures(tables: Tables, span: TimeSpan) -> str:
    reasons = tables["reasons"]
    sums = reasons.groupby("reason")["deliveries"].sum().to_dict() if len(reasons) else {}
    whole = sum(sums.values())
    rows = [
        (reason, says, number(sums.get(reason, 0)), share(sums.get(reason, 0) / whole))
        for reason, says in REASONS.items()
        if whole
    ]
    failing = [
        (
            text(row["tube"]),
            f"<code>{text(row['key'], 160)}</code>",
            number(row["failures"]),
            number(row["tasks"]),
        )
        for row in tables["failing"].head(ROWS).to_dict("records")
    ]
    outcomes = tables["outcomes"].groupby("outcome")[["tasks", "deliveries"]].sum()
    ends = [
        (text(name), number(tasks), number(given))
        for name, tasks, given in outcomes.sort_values("tasks", ascending=False).itertuples()
    ]
    return _section(
        "failures",
        "Failures by reason",
        "<p class='note'>Of the whole log.</p>" if span.compared else "",
        f"<div class='charts'>{_plot(*CHARTS[-1])}</div>",
        table(("reason", "a delivery is", "deliveries", "share"), rows, "reasons"),
        "<h3>What failed most</h3>",
        table(("tube", "payload", "failures", "tasks"), failing, "failing"),
        "<h3>How tasks ended, or what they are</h3>",
        table(("outcome", "tasks", "deliveries"), ends, "outcomes"),
    )


def _card(at: int, name: str, flow: Flow) -> str:
    failed = share(flow.failed_share)
    return (
        f"<a class='card {flow.state}' href='#tube-{at}' data-at='{at}'>"
        f"<h3>{text(name)}</h3><p class='state'>{text(flow.says)}</p>"
        f"<div class='chart' data-chart='flow' data-kind='card' data-tube='{at}'></div>"
        f"<p class='sums'><b>{number(flow.puts)}</b> put <b>{number(flow.left)}</b> gone "
        f"<b>{number(flow.there_after)}</b> there <b>{failed}</b> failed</p></a>"
    )


def _tubes(names: list[str], now: dict[str, Flow]) -> str:
    cards = "".join(_card(at, name, now.get(name, Flow())) for at, name in enumerate(names))
    tools = (
        "<p class='tools'><label>Find <input type='search' id='find' autocomplete='off'></label> "
        "<label>Order <select id='order'><option value='state'>gravest first</option>"
        "<option value='name'>name</option><option value='0'>most put</option>"
        "<option value='2'>most failed</option><option value='3'>most there</option></select>"
        f"</label> <span id='found'>{number(len(names))} shown</span></p>"
    )
    note = "<p class='note'>Each chart has its own scale. Follow one for all of the tube.</p>"
    title = f"Tubes ({number(len(names))})"
    return _section("tubes", title, note, tools, f"<div class='cards'>{cards}</div>")


def _workers(tables: Tables) -> str:
    rows = [
        (
            f"<code>{text(row['consumer'])}</code>",
            number(row["deliveries"]),
            number(row["acked"]),
            duration(row["busy_s"] * 1000),
            share(row["utilisation"]),
        )
        for row in tables["workers"].head(ROWS).to_dict("records")
    ]
    count = len(tables["workers"])
    note = f"The {ROWS} busiest of {number(count)}; all are in workers.csv." if count > ROWS else ""
    heads = ("consumer", "deliveries", "acked", "at work", "of its time")
    return _section("workers", "Consumers", f"<p class='note'>{note}</p>", table(heads, rows, "w"))


def _method(span: TimeSpan) -> str:
    grain = duration(span.grain_us / 1000)
    return _section(
        "method",
        "How this is counted",
        f"<ul><li>Everything comes from the queue's own log; times are UTC, a slot is {grain}."
        "<li>A task is there while it waits, is delayed, in work or buried. It is gone when it is "
        "acknowledged, deleted, expired, moved or given up."
        f"<li>A tube falls behind if at least {GREW_MIN} more tasks are there than when the period "
        f"began and fewer left than {LEFT_SHARE:.0%} of those that came. Failures are told from "
        f"{FAILED_LOOK:.0%} of at least {FEW_MIN} deliveries on, and need action from "
        f"{FAILED_ACT:.0%} on; consumers that work {BUSY_LOOK:.0%} of their time are near their "
        "limit."
        "<li>Quantiles of a tube and slot are exact to a thousandth; those of a period, and of all "
        "tubes, to a tenth."
        "<li>A dashed line marks where the period begins.</ul>"
        "<p class='note'>Charts: Vega, © 2015-2025 University of Washington Interactive Data Lab, "
        "BSD-3-Clause.</p>",
    )


def _tube_page() -> str:
    drawn = "".join(_plot(*one) for one in CHARTS)
    bars = "".join(_plot(f"bars-{name}", "spread", title) for name, title in SPREADS)
    return (
        "<main id='tube' hidden><p><a href='#tubes'>All tubes</a></p>"
        "<h1 id='tube-name'></h1><p id='tube-says'></p><div class='tiles' id='tube-tiles'></div>"
        f"<div class='charts'>{drawn}{bars}</div></main>"
    )
