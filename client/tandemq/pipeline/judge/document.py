"""`python -m tandemq.pipeline.judge.document`: the rules as a page, from their classes."""

from __future__ import annotations

import inspect

from tandemq.pipeline.judge.rules.base import Rule
from tandemq.pipeline.judge.rules.catalogue import ALL


def page() -> str:
    """A list of all rules: what breaks each, and what else there is to say of it."""
    milder = ", ".join(f"`{rule.name}`" for rule in ALL if rule.severity != "error")
    lines = [f"Warnings are {milder}; all others are errors. What breaks each:", ""]
    lines += [f"* `{rule.name}`: {_summary(rule)}.{_rest(rule)}" for rule in ALL]
    return "\n".join(lines) + "\n"


def _summary(rule: type[Rule]) -> str:
    text = rule.summary()
    return text[0].lower() + text[1:]


def _rest(rule: type[Rule]) -> str:
    paragraphs = (inspect.getdoc(rule) or "").split("\n\n")[1:]
    return " ".join(["", *" ".join(paragraphs).split()])


if __name__ == "__main__":
    print(page(), end="")
