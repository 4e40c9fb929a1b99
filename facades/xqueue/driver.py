"""The type xqueue as the engine is given it: what records do, and the tube that serves them."""

from __future__ import annotations

from typing import ClassVar

from tandemq_server.facades.xqueue.records import Records
from tandemq_server.facades.xqueue.tube import RecordTube


class XQueue(Records):
    name: ClassVar[str] = "xqueue"
    shape = RecordTube
