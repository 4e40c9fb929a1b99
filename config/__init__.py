"""The node's configuration: one schema, its sources, and every complaint about them in one line.

Here: what may be configured, in which range, and where a value came from. Must not be here:
what a setting does; the parts that are configured never import this room's loader.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandemq_server.config.schema import Settings
    from tandemq_server.config.sections import User
    from tandemq_server.config.units import ConfigError

__all__ = ["ConfigError", "Settings", "User"]

_HOMES = {"ConfigError": "units", "Settings": "schema", "User": "sections"}
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def __getattr__(name: str) -> Any:
    # The schema costs more to import than most commands take: it waits for who needs it.
    if name not in _HOMES:
        raise AttributeError(f"module 'tandemq_server.config' has no attribute {name!r}")
    # Nor does pydantic look for plugins meanwhile: it would read about every package installed.
    before = os.environ.get(_NO_PLUGINS)
    os.environ[_NO_PLUGINS] = "__all__"
    try:
        return getattr(import_module(f"tandemq_server.config.{_HOMES[name]}"), name)
    finally:
        del os.environ[_NO_PLUGINS]
        if before is not None:
            os.environ[_NO_PLUGINS] = before
