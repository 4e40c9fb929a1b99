"""The page of a report: one HTML text made of its tables, which loads nothing from anywhere."""

from __future__ import annotations

import html
import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

#: Of a tube's name in a legend.
LABEL_CHARS = 40
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left } svg { max-width: 100%; height: auto }
"""


def label_of(tube: str, says: str) -> str:
    """A line's name in the legend, which leaves out what begins with an underscore; a tube's name
    may be longer than the chart is wide."""
    tube = tube if len(tube) <= LABEL_CHARS else tube[: LABEL_CHARS - 1] + "…"
    text = f"{tube} {says}".strip()
    return f" {text}" if text.startswith("_") else text


def chart(table: pd.DataFrame, values: dict[str, str], title: str, unit: str) -> str:
    """One SVG: a line per tube and column. `values`: column to what the legend says."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for tube, rows in table.groupby("tube"):
        for column, says in values.items():
            axes.plot(rows["time"], rows[column], marker=".", label=label_of(tube, says))
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.autofmt_xdate()
    if len(table):
        for said in axes.legend(fontsize="small", ncols=3).get_texts():
            said.set_parse_math(False)
    text = io.StringIO()
    # Names stay text: what letters there are is the reader's fonts' business.
    with rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # Only the drawing: the XML head names a DTD on another server.
    return text.getvalue()[text.getvalue().index("<svg") :]


def page(tables: dict[str, pd.DataFrame]) -> str:
    """The whole page; it refers to nothing outside itself."""
    rates, stock = tables["throughput"], tables["backlog"]
    charts = [
        chart(rates, {"puts": "put", "ended": "ended"}, "Throughput", "tasks per hour"),
        chart(rates, {"wait_p50_ms": "p50", "wait_p99_ms": "p99"}, "Waiting", "ms"),
        chart(rates, {"run_p50_ms": "p50", "run_p99_ms": "p99"}, "Running", "ms"),
        chart(stock, {"backlog": ""}, "Backlog at the end of the hour", "tasks"),
        chart(stock, {"oldest_s": ""}, "Age of the oldest task", "s"),
    ]
    titles = {
        "outcomes": "How tasks ended",
        "throughput": "Hour by hour",
        "backlog": "Backlog",
        "failing": "What failed most",
        "workers": "Workers",
    }
    parts = ["<h1>Queue report</h1>", *charts]
    for name, title in titles.items():
        parts.append(f"<h2>{html.escape(title)}</h2>")
        parts.append(tables[name].to_html(index=False, border=0, na_rep="", max_rows=200))
    body = "\n".join(parts)
    head = f"<meta charset='utf-8'><title>Queue report</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"
