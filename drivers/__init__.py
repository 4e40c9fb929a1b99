"""Tube drivers: those of the queue module, and the contract for all others.

A driver turns a call on a tube into row changes of its space and returns the rows it changed. It
never waits, logs, asks a clock or answers a client.
"""

from __future__ import annotations

from tandemq_server.drivers.base import Driver, DriverMisuse
from tandemq_server.drivers.fifo import Fifo
from tandemq_server.drivers.fifottl import FifoTtl, LimFifoTtl
from tandemq_server.drivers.utube import Utube
from tandemq_server.drivers.utubettl import UtubeTtl

BUILT_IN: dict[str, type[Driver]] = {
    driver.name: driver for driver in (Fifo, FifoTtl, LimFifoTtl, Utube, UtubeTtl)
}
#: Types of the facades, which are registered above (facades/registered.py): no driver's of a user.
RESERVED = frozenset({"queue15", "xqueue"})

__all__ = [
    "BUILT_IN",
    "RESERVED",
    "Driver",
    "DriverMisuse",
    "Fifo",
    "FifoTtl",
    "LimFifoTtl",
    "Utube",
    "UtubeTtl",
]
