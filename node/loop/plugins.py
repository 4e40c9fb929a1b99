"""Code and values from outside the house: drivers and callbacks by name, arguments of node calls.

Everything is checked when it is loaded, so that a misspelt name is a refusal to start.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from typing import Any

from tandemq.model.errors import QueueError, failure
from tandemq_server.config import Settings
from tandemq_server.drivers.base import Driver, check_driver
from tandemq_server.engine.clients import EMPTY
from tandemq_server.engine.tube import Callback
from tandemq_server.node.core.calls import argument, reply
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.replies import values_reply

ENTRY_POINTS = "tandemq.drivers"


class PluginError(Exception):
    """A configured `module:name` that cannot be used, in one line."""


def load(reference: str, what: str) -> Any:
    """The object a `module:name` stands for."""
    module_name, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise PluginError(f"{what}: cannot load {reference}: {error}") from error


def load_drivers(
    known: Mapping[str, type[Driver]], configured: Mapping[str, str]
) -> dict[str, type[Driver]]:
    """Those that come with the node, those of installed packages, and of the configuration."""
    drivers = dict(known)
    for name, reference in {**installed_drivers(), **configured}.items():
        what = f"drivers.{name}"
        if name in drivers:
            raise PluginError(f'{what}: overriding registered driver "{name}"')
        driver = load(reference, what)
        try:
            check_driver(name, driver)
        except QueueError as error:
            raise PluginError(f"{what}: {error.text}") from error
        drivers[name] = driver
    return drivers


def installed_drivers() -> dict[str, str]:
    """What installed packages bring, `module:name` by the tube's type."""
    if not _may_be_installed():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _may_be_installed() -> bool:
    """Whether any package says the group's name. Places that are no plain directories count as yes.

    Asking for the group itself reads about every package there is, for a tenth of a start.
    """
    if any(hasattr(one, "find_distributions") for one in sys.meta_path if one is not PathFinder):
        return True
    wanted = ENTRY_POINTS.encode()
    for place in dict.fromkeys(sys.path):
        try:
            names = os.listdir(place or ".")
        except FileNotFoundError:
            continue
        except OSError:
            return True  # an archive
        for name in names:
            if name.endswith(".egg"):
                return True
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:
                        if wanted in file.read():
                            return True
                except OSError:
                    continue
    return False


def load_callbacks(configured: Mapping[str, str]) -> dict[str, Callback]:
    """Functions told of every change of a tube's tasks, by tube."""
    callbacks: dict[str, Callback] = {}
    for tube, reference in configured.items():
        callback = load(reference, f"on_task_change.{tube}")
        if not callable(callback):
            raise PluginError(f"on_task_change.{tube}: {reference} is not a function")
        callbacks[tube] = callback
    return callbacks


def functions(settings: Settings) -> Callable[[str], Callable[..., Any]]:
    """`f(reference)`: one of the functions that declarations of tubes may name.

    These are what `functions` of the configuration lists and what its own `tubes` name: whoever
    may create tubes by a call does not get to run any function there is.
    """
    listed = [(reference, "functions") for reference in settings.functions]
    for tube in settings.tubes:
        features = tube.options.get("features")
        named = [tube.options.get("worker"), features.get("id") if type(features) is dict else None]
        what = f"tubes: {tube.name}"
        listed += [(name, what) for name in named if type(name) is str and ":" in name]
    found = {reference: load(reference, what) for reference, what in listed}
    for reference, what in listed:
        if not callable(found[reference]):
            raise PluginError(f"{what}: {reference} is not a function")

    def function(reference: str) -> Callable[..., Any]:
        if reference not in found:
            raise failure(f"{reference} is not one of `functions` of this node's configuration")
        known: Callable[..., Any] = found[reference]
        return known

    return function


def read_only_argument(args: bytes) -> bool | None:
    """`box.cfg{read_only = bool}`: the value, None when nothing is to change."""
    options = argument(plain(args), 0)
    if options is None or options == []:
        return None
    if type(options) is not dict:
        raise failure("Invalid options of box.cfg: expected a map")
    for option in options:
        if option != "read_only":
            raise failure(f"Unknown option {option}: only read_only can be changed by a call")
    read_only = options.get("read_only")
    if read_only is not None and type(read_only) is not bool:
        raise failure(f"Invalid value of read_only: {read_only} (expected true or false)")
    return read_only


def empty(ticket: int) -> bytes | None:
    return reply(ticket, EMPTY)


def value(ticket: int, result: Any) -> bytes:
    return values_reply(ticket >> 1, [result], bool(ticket & 1))


__all__ = [
    "PluginError",
    "empty",
    "failure",
    "functions",
    "load_callbacks",
    "load_drivers",
    "value",
]
