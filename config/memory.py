"""The section of the configuration that bounds the memory of the process."""

from __future__ import annotations

from tandemq_server.config.kinds import Share
from tandemq_server.config.sections import Section, text


class Memory(Section):
    """Bounds on the memory of the process, in bytes or as a share of what there is.

    What there is: the machine's, or less where its control group (v1, v2) says so.
    """

    high: Share | None = text(
        "80%",
        "Memory in use above which the node warns; null: never.",
        "1MiB to 1024TiB, 1% to 100%, null",
    )
    max: Share | None = text(
        "90%",
        "Memory in use above which puts are refused, or wait, until it is 5 % lower; all "
        "else goes on. null: no bound.",
        "1MiB to 1024TiB, 1% to 100%, null",
    )
