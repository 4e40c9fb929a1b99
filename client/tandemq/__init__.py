"""What applications import: a client that follows the master, a worker runner, Spark sources.

Built on stock connectors. The client imports nothing of the server, the Spark sources only its
codec and log reader; names are loaded on first use, so that a part nobody uses costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandemq.client.api import Client, connect
    from tandemq.client.errors import (
        AccessDenied,
        LeaseLost,
        LoginRefused,
        NotWritable,
        QuotaReached,
        Refused,
        TandemError,
        TaskMissing,
        TaskNotTaken,
        TlsRefused,
        TubeFull,
        TubeMissing,
        Unavailable,
        Unknown,
    )
    from tandemq.client.sync import SyncClient, SyncTask, SyncTube, connect_sync
    from tandemq.client.task import Task
    from tandemq.client.tls import Tls
    from tandemq.client.tube import Tube

_HOMES = {
    "Client": "api",
    "connect": "api",
    "LeaseLost": "errors",
    "AccessDenied": "errors",
    "LoginRefused": "errors",
    "NotWritable": "errors",
    "TaskMissing": "errors",
    "TaskNotTaken": "errors",
    "TlsRefused": "errors",
    "TubeFull": "errors",
    "TubeMissing": "errors",
    "QuotaReached": "errors",
    "Refused": "errors",
    "TandemError": "errors",
    "Unavailable": "errors",
    "Unknown": "errors",
    "SyncClient": "sync",
    "SyncTask": "sync",
    "SyncTube": "sync",
    "connect_sync": "sync",
    "Task": "task",
    "Tls": "tls",
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
    "Tls",
    "TandemError",
    "Refused",
    "TubeMissing",
    "TaskMissing",
    "TaskNotTaken",
    "TubeFull",
    "QuotaReached",
    "AccessDenied",
    "LoginRefused",
    "TlsRefused",
    "Unavailable",
    "NotWritable",
    "Unknown",
    "LeaseLost",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tandemq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tandemq.client.{_HOMES[name]}"), name)
