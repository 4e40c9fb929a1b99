"""The node's configuration: one schema, its sources, and every complaint about them in one line.

Here: what may be configured, in which range, and where a value came from. Must not be here:
what a setting does; the parts that are configured never import this room's loader.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandemq_server.config.schema import Settings
    from tandemq_server.config.sections import User
    from tandemq_server.config.units import ConfigError

__all__ = ["ConfigError", "Settings", "User"]

_HOMES = {"ConfigError": "units", "Settings": "schema", "User": "sections"}
_PLUGINS = "pydantic.plugin._loader"


def __getattr__(name: str) -> Any:
    # The schema costs more to import than most commands take: it waits for who needs it.
    if name not in _HOMES:
        raise AttributeError(f"module 'tandemq_server.config' has no attribute {name!r}")
    # Nor does pydantic look for plugins meanwhile: it would import what reads about installed
    # packages, and read about every one of them.
    before = sys.modules.get(_PLUGINS)
    none = ModuleType(_PLUGINS)
    none.get_plugins = tuple  # type: ignore[attr-defined]
    sys.modules[_PLUGINS] = none
    try:
        return getattr(import_module(f"tandemq_server.config.{_HOMES[name]}"), name)
    finally:
        del sys.modules[_PLUGINS]
        if before is not None:
            sys.modules[_PLUGINS] = before
