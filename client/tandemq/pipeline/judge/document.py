"""`python -m tandemq.pipeline.judge.document`: the rules as a page, from their classes."""

from __future__ import annotations

import inspect

from tandemq.pipeline.judge.rules.base import Rule
from tandemq.pipeline.judge.rules.catalogue import ALL


def page() -> str:
    """A table of all rules, and what there is to say of each beyond its first sentence."""
    milder = " and ".join(f"`{rule.name}`" for rule in ALL if rule.severity != "error")
    lines = [f"All are errors but for the warnings {milder}.", ""]
    lines += ["| rule | broken by |", "|---|---|"]
    lines += [f"| `{rule.name}` | {_summary(rule)} |" for rule in ALL]
    more = [(rule, _rest(rule)) for rule in ALL]
    for rule, text in more:
        if text:
            lines += ["", f"**`{rule.name}`** {text}"]
    return "\n".join(lines) + "\n"


def _summary(rule: type[Rule]) -> str:
    text = rule.summary()
    return text[0].lower() + text[1:]


def _rest(rule: type[Rule]) -> str:
    paragraphs = (inspect.getdoc(rule) or "").split("\n\n")[1:]
    return " ".join(" ".join(paragraphs).split())


if __name__ == "__main__":
    print(page(), end="")
