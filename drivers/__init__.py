"""Tube drivers: fifo, fifottl, limfifottl, utube, utubettl, and the contract for custom ones.

A driver turns a call on a tube into row changes of its space and returns the rows it changed. It
never waits, logs, asks a clock or answers a client.
"""

from __future__ import annotations

from drivers.base import Driver, DriverMisuse
from drivers.fifo import Fifo
from drivers.fifottl import FifoTtl, LimFifoTtl
from drivers.utube import Utube
from drivers.utubettl import UtubeTtl

BUILT_IN: dict[str, type[Driver]] = {
    driver.name: driver for driver in (Fifo, FifoTtl, LimFifoTtl, Utube, UtubeTtl)
}

__all__ = [
    "BUILT_IN",
    "Driver",
    "DriverMisuse",
    "Fifo",
    "FifoTtl",
    "LimFifoTtl",
    "Utube",
    "UtubeTtl",
]
