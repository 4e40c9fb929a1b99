"""What applications import: a client that follows the master, a worker runner, Spark sources.

Built on stock connectors. The client imports nothing of the server, the Spark sources only its
codec and log reader; names are loaded on first use, so that a part nobody uses costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandemq.client.api import Client, connect
    from tandemq.client.errors import LeaseLost, Refused, TandemError, Unavailable, Unknown
    from tandemq.client.sync import SyncClient, SyncTask, SyncTube, connect_sync
    from tandemq.client.task import Task
    from tandemq.client.tube import Tube

_HOMES = {
    "Client": "api",
    "connect": "api",
    "LeaseLost": "errors",
    "Refused": "errors",
    "TandemError": "errors",
    "Unavailable": "errors",
    "Unknown": "errors",
    "SyncClient": "sync",
    "SyncTask": "sync",
    "SyncTube": "sync",
    "connect_sync": "sync",
    "Task": "task",
    "Tube": "tube",
}

__all__ = [
    "connect",
    "connect_sync",
    "Client",
    "SyncClient",
    "Tube",
    "Task",
    "SyncTube",
    "SyncTask",
    "TandemError",
    "Refused",
    "Unavailable",
    "Unknown",
    "LeaseLost",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tandemq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tandemq.client.{_HOMES[name]}"), name)
