"""All rules, in the order of the report."""

from __future__ import annotations

from collections.abc import Collection

from tandemq.pipeline.judge.rules import (
    attempts,
    keys,
    logs,
    owners,
    queues,
    sessions,
    tasks,
    times,
)
from tandemq.pipeline.judge.rules.base import Rule

ALL: tuple[type[Rule], ...] = (
    *logs.RULES, *tasks.RULES, *owners.RULES, *times.RULES, *queues.RULES, *attempts.RULES,
    *keys.RULES, *sessions.RULES,
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in ALL}


def chosen(only: Collection[str] = (), without: Collection[str] = ()) -> list[Rule]:
    """The rules asked for. Raises `ValueError` for a name nobody knows."""
    for name in (*only, *without):
        if name not in BY_NAME:
            raise ValueError(f"no rule is called {name}; there are {', '.join(BY_NAME)}")
    return [
        rule()
        for name, rule in BY_NAME.items()
        if (not only or name in only) and name not in without
    ]
