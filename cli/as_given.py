"""Words of the command line that are text already are taken as they are.

The parser converts each value by a library that costs more to import than the whole of a command
such as `put`; it is asked only about numbers, paths and choices. Must not be here: flags.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

#: All that a command's own --help asks of the context.
_NAMES: Any = SimpleNamespace(help_option_names=["--help"])


class AsGiven:
    """Stands where the parser keeps a parameter's conversion until it is made."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """What the parser would give. Raises its error for what does not fit."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        annotation = param.type_descriptor.annotation
        if param.type_descriptor.parameter_info.parser is not None:
            annotation = None
        if annotation is str and isinstance(value, str) and not many:
            return value
        if annotation == list[str] and isinstance(value, list | tuple):
            return [str(one) for one in value]
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def lighten(command: Any) -> None:
    """Tell the parameters of a command, or of a group and all in it.

    An older parser, which converts by itself and imports nothing for it, is left alone.
    """
    for param in (*command.params, command.get_help_option(_NAMES)):
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = AsGiven()
    for inner in getattr(command, "commands", {}).values():
        lighten(inner)
