"""The list: every type of tube that comes with the node, and the calls of the facades."""

from __future__ import annotations

from tandemq_server.drivers import BUILT_IN, Driver
from tandemq_server.facades.queue15 import calls as queue15
from tandemq_server.facades.queue15.driver import Queue15
from tandemq_server.facades.xqueue import calls as xqueue
from tandemq_server.facades.xqueue.driver import XQueue

#: Every tube type that comes with the node.
KNOWN: dict[str, type[Driver]] = {**BUILT_IN, Queue15.name: Queue15, XQueue.name: XQueue}
FACADES = (queue15.FACADE, xqueue.FACADE)
