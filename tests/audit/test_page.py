"""docs/audit.md says what the rules' own classes say."""

from __future__ import annotations

from pathlib import Path

from tandemq.pipeline.judge.document import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_rules_as_they_are() -> None:
    say = "python -m tandemq.pipeline.judge.document writes the rules of docs/audit.md"
    assert page() in (ROOT / "docs" / "audit.md").read_text(encoding="utf-8"), say
