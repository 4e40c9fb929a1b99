"""Tube drivers: those of the queue module, queue15, xqueue, the contract for custom ones.

A driver turns a call on a tube into row changes of its space and returns the rows it changed. It
never waits, logs, asks a clock or answers a client.
"""

from __future__ import annotations

from drivers.base import Driver, DriverMisuse
from drivers.fifo import Fifo
from drivers.fifottl import FifoTtl, LimFifoTtl
from drivers.queue15 import Queue15
from drivers.utube import Utube
from drivers.utubettl import UtubeTtl
from drivers.xqueue import XQueue

BUILT_IN: dict[str, type[Driver]] = {
    driver.name: driver for driver in (Fifo, FifoTtl, LimFifoTtl, Utube, UtubeTtl)
}
#: Of other systems, with calls of their own.
FACADES: dict[str, type[Driver]] = {driver.name: driver for driver in (Queue15, XQueue)}
#: Every tube type that comes with the node.
KNOWN: dict[str, type[Driver]] = {**BUILT_IN, **FACADES}

__all__ = [
    "BUILT_IN",
    "FACADES",
    "KNOWN",
    "Driver",
    "DriverMisuse",
    "Fifo",
    "FifoTtl",
    "LimFifoTtl",
    "Queue15",
    "Utube",
    "UtubeTtl",
    "XQueue",
]
