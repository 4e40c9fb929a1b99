"""Flags that many commands have, declared once: a decorator puts them in a parameter's place.

    @given(remote=remote_of)
    def peek(tube: TubeName, task: TaskIds, *, remote: Remote, as_lines: Json = False) -> None: ...

`peek` is called with what `remote_of` makes of its own flags. Must not be here: flags of commands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

Command = Callable[..., None]


def given(**sources: Callable[..., Any]) -> Callable[[Command], Command]:
    """Each named parameter is made by its source, whose parameters become flags in its place."""

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        taken: dict[str, list[str]] = {}
        for parameter in _resolved(command):
            source = sources.get(parameter.name)
            if source is None:
                parameters.append(parameter)
                continue
            flags = _resolved(source)
            taken[parameter.name] = [flag.name for flag in flags]
            parameters += flags

        @functools.wraps(command)
        def called(**values: Any) -> None:
            for name, flags in taken.items():
                values[name] = sources[name](**{flag: values.pop(flag) for flag in flags})
            command(**values)

        # The parser reads these two, and would otherwise look through to the command itself.
        shown: Any = called
        del shown.__wrapped__
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        shown.__signature__ = inspect.Signature(parameters)
        shown.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


def _resolved(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters with their annotations as objects; a parameter a source makes needs none."""
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    return [one.replace(annotation=hints[one.name]) for one in found]
