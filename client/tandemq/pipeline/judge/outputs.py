"""Verdicts for programs: JSON lines and Parquet tables, JUnit for CI, metrics for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from tandemq.pipeline.judge.rules.catalogue import BY_NAME
from tandemq.pipeline.judge.verdict import Verdict
from tandemq.spark.parts import put_text

#: Findings of a rule that JUnit shows in its text.
SHOWN = 20
_COLUMNS = ("check", "severity", "tube", "task", "lsn", "node", "evidence")


def write_lines(verdict: Verdict, path: Path) -> None:
    """A finding each line, as JSON."""
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in verdict.rows))


def write_parquet(verdict: Verdict, path: Path) -> None:
    """The findings as a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.int64()
    kinds = {"task": number, "lsn": number}
    schema = pa.schema([(name, kinds.get(name, text)) for name in _COLUMNS])
    rows = [{name: row.get(name) for name in _COLUMNS} for row in verdict.rows]
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def write_junit(verdict: Verdict, path: Path) -> None:
    """A test case for each rule that was asked; broken ones fail, warnings are in their output."""
    names = [*verdict.judged]
    names += [name for name in verdict.broken if name not in names]
    suite = Xml.Element(
        "testsuite", name="tandemq audit", tests=str(len(names)), failures=str(len(verdict.broken))
    )
    for name in names:
        case = Xml.SubElement(suite, "testcase", classname="tandemq.audit", name=name)
        told = [row for row in verdict.rows if row["check"] == name][:SHOWN]
        text = "\n".join(line_of(row) for row in told)
        if name in verdict.broken:
            said = f"{verdict.broken[name]} times: {_summary(name)}"
            Xml.SubElement(case, "failure", message=said).text = _printable(text)
        elif name in verdict.warnings:
            Xml.SubElement(case, "system-out").text = _printable(text)
    Xml.indent(suite)
    Xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _summary(name: str) -> str:
    return BY_NAME[name].summary() if name in BY_NAME else name


def _printable(text: str) -> str:
    """XML has no place for control characters."""
    return "".join(one if one == "\n" or one.isprintable() else "?" for one in text)


def write_prometheus(verdict: Verdict, path: Path, now_s: float) -> None:
    """Metrics in the text format, for the textfile collector; replaced as a whole.

    now_s: the moment of the audit, in seconds since the epoch.
    """
    lines = _metric("tandemq_audit_ok", "Whether no rule is broken.", [("", int(verdict.ok))])
    lines += _metric("tandemq_audit_time_seconds", "When it was.", [("", f"{now_s:.3f}")])
    found = {**dict.fromkeys(verdict.judged, 0), **verdict.broken, **verdict.warnings}
    values: list[tuple[str, Any]] = [
        (f'{{rule="{name}",severity="{_severity(name)}"}}', count) for name, count in found.items()
    ]
    lines += _metric("tandemq_audit_findings", "Breaches of each rule.", values)
    counts = [(f'{{what="{name}"}}', count) for name, count in verdict.counts.items()]
    lines += _metric("tandemq_audit_count", "What was looked at.", counts)
    put_text(path, "\n".join(lines) + "\n")


def _severity(name: str) -> str:
    return BY_NAME[name].severity if name in BY_NAME else "error"


def _metric(name: str, text: str, values: Iterable[tuple[str, Any]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    return head + [f"{name}{labels} {value}" for labels, value in values]


def line_of(row: dict[str, Any]) -> str:
    """A finding in one line."""
    place = [
        f"{what} {row[what]}" for what in ("tube", "task", "lsn", "node") if row[what] is not None
    ]
    return f"{row['check']}: {' '.join(place) or 'the log'}: {row['evidence']}"
