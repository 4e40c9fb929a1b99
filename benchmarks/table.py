"""The one table a run ends with: figures, the yardstick beside them, goals with ok or MISS.

Here: rows, goals, drawing, the JSON file. Must not be here: measuring.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

LAST_MARK = "<!-- tables end -->"
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure; `unit` follows both numbers when shown."""

    value: float
    bound: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        """True when the figure is within the bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def text(self) -> str:
        """`1.20x >= 1.00x ok`"""
        sign = ">=" if self.at_least else "<="
        mark = "ok" if self.met else "MISS"
        return f"{_figure(self.value)}{self.unit} {sign} {_figure(self.bound)}{self.unit} {mark}"


def at_least(value: float, bound: float, unit: str = "x") -> Goal:
    """A goal from below."""
    return Goal(value, bound, True, unit)


def at_most(value: float, bound: float, unit: str = " us") -> Goal:
    """A goal from above."""
    return Goal(value, bound, False, unit)


@dataclass(slots=True)
class Row:
    """One line. `figure` is our main number, with its unit; `yardstick` what it is held against."""

    section: str
    name: str
    figure: str
    server_us: float | None = None
    client_us: float | None = None
    yardstick: str = ""
    goals: list[Goal] = field(default_factory=list)


def rate(value: float) -> str:
    """Operations per second, as shown."""
    return f"{value:,.0f}/s"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.2f}"


def _micros(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def draw(console: Console, rows: Sequence[Row]) -> None:
    """Print the table, one rule between sections, and how many goals were met."""
    table = Table(title="Tandem, with the yardstick beside it", title_justify="left")
    table.add_column("what", no_wrap=True)
    for heading in ("figure", "server us/op", "client us/op"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("yardstick", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    section = ""
    for row in rows:
        if row.section != section:
            table.add_section()
            table.add_row(f"[bold]{row.section}[/bold]")
            section = row.section
        table.add_row(
            f"  {row.name}",
            row.figure,
            _micros(row.server_us),
            _micros(row.client_us),
            row.yardstick,
            "\n".join(_coloured(goal) for goal in row.goals),
        )
    console.print(table)
    goals = [goal for row in rows for goal in row.goals]
    console.print(f"goals met: {sum(goal.met for goal in goals)} of {len(goals)}", highlight=False)


def _coloured(goal: Goal) -> str:
    colour = "green" if goal.met else "red"
    return f"[{colour}]{goal.text()}[/{colour}]"


def _bound(row: Row, goal: Goal) -> str:
    """The goal, without its figure where the row's other cells have that."""
    figure = f"{_figure(goal.value)}{goal.unit}"
    server = "" if row.server_us is None else f"{row.server_us:.2f} us"
    said = figure in (row.figure, server) or f"({figure})" in row.yardstick
    return goal.text().removeprefix(f"{figure} ") if said else goal.text()


def markdown(rows: Sequence[Row], about: dict[str, object]) -> str:
    """The table for the documentation, under a line that says where it comes from."""
    heads = ["what", "figure", "server us/op", "client us/op", "yardstick", "goal"]
    one = len({row.section for row in rows}) == 1
    cells = [
        [
            row.name if one else f"{row.section}: {row.name}",
            row.figure,
            _micros(row.server_us),
            _micros(row.client_us),
            row.yardstick,
            "<br>".join(_bound(row, goal) for goal in row.goals),
        ]
        for row in rows
    ]
    used = [at for at in range(len(heads)) if any(line[at] for line in cells)]
    rules = ["--:" if 1 <= at <= 3 else "---" for at in used]
    lines = [
        f"Commit {about['commit']}, {about['time']} UTC, Python {about['python']}, "
        f"{about['cores']} cores ({about['cpu']}), Linux {about['kernel']}; "
        f"other programs took {about['others']:.0%}.",
        "",
        f"| {' | '.join(heads[at] for at in used)} |",
        f"|{'|'.join(rules)}|",
        *(f"| {' | '.join(line[at] for at in used)} |" for line in cells),
    ]
    return "\n".join(lines) + "\n"


def _marks(section: str) -> tuple[str, str]:
    return f"<!-- table {section} begins -->", f"<!-- table {section} ends -->"


def update_docs(path: Path, section: str, text: str) -> None:
    """Put `text` in the place of a section's table in a Markdown file; other tables stay.

    A section that has none yet gets one, under a heading, behind the others. Raises `ValueError`
    when the file has no place for tables.
    """
    whole = path.read_text(encoding="utf-8")
    begins, ends = _marks(section)
    if begins not in whole:
        if LAST_MARK not in whole:
            raise ValueError(f"{path}: no line {LAST_MARK}, before which tables go")
        whole = whole.replace(LAST_MARK, f"### {section}\n{begins}\n{ends}\n\n{LAST_MARK}")
    before, rest = whole.split(begins, 1)
    for machine in re.findall(r"(, Python .*);", text):
        # Said once, above all tables.
        if machine.removeprefix(", ") in whole.split("<!-- table ", 1)[0]:
            text = text.replace(machine, "")
    after = rest.split(ends, 1)[1]
    path.write_text(f"{before}{begins}\n{text}{ends}{after}", encoding="utf-8")


def all_met(rows: Sequence[Row]) -> bool:
    """True when no goal was missed."""
    return all(goal.met for row in rows for goal in row.goals)


def save(rows: Sequence[Row], about: dict[str, object], raw: dict[str, object]) -> Path:
    """Write everything as JSON into `benchmarks/results/`; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / time.strftime("%Y%m%d-%H%M%S.json", time.gmtime())
    content = {
        "about": about,
        "rows": [
            {**asdict(row), "goals": [{**asdict(g), "met": g.met} for g in row.goals]}
            for row in rows
        ],
        "samples": raw,
    }
    text = json.dumps(content, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    (RESULTS / "last.json").write_text(text + "\n", encoding="utf-8")
    return path
