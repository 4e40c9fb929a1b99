"""The node's configuration: one schema, its sources, and every complaint about them in one line.

Here: what may be configured, in which range, and where a value came from. Must not be here:
what a setting does; the parts that are configured never import this room's loader.
"""

from __future__ import annotations

from node.config.schema import Settings
from node.config.sections import User
from node.config.units import ConfigError

__all__ = ["ConfigError", "Settings", "User"]
