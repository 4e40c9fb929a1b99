"""A whole node from its settings: recovery, engine, listener, signals, orderly end.

Only this module knows everybody. `serve` returns the process's exit code.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import secrets
import signal
import sys
import uuid
from importlib.metadata import entry_points
from typing import Any

import uvloop

from drivers import BUILT_IN
from engine import admin
from engine.queue import Engine, check_driver
from model.errors import QueueError, StorageError
from node.clock import LogClock
from node.config import Settings
from node.core import Core, Identity, Limits
from node.logging import Logger
from node.shell import Shell
from node.snapshots import Snapshots, snapshot_now
from node.users import Users
from node.wal_writer import WalWriter
from storage.files import FileDisk
from storage.log import Log
from storage.meta import open_meta
from storage.recovery import Recovered, recover
from storage.snapshot import SnapshotWriter, prune

DRAIN_SECONDS = 3.0
ENTRY_POINTS = "tandemq.drivers"


def main_placeholder() -> None: ...
