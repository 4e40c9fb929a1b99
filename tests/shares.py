"""How tests are shared out when several processes run them (`pytest -n 2`, what `make unit` does).

A file goes to one process, so that what its tests have in common is made once. Those that take
longest come first, or one process would be left with them at the end.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Go to one process together: one Spark session for all.
SPARK = ("tests/spark/",)
#: Each test by itself: they have nothing in common and take long.
APART = ("tests/simulation/", "tests/crash/")
LONG = (
    "tests/chaos/test_scenarios.py",
    "tests/demo/test_command.py",
    "tests/property/",
    "tests/docs/test_pages.py",
    "tests/client/test_worker_survives_kill.py",
    "tests/admin/test_admin_schemathesis.py",
)
ORDER = (*SPARK, *APART, *LONG)


def share_of(nodeid: str) -> str:
    """Tests with one answer run in one process, in their order."""
    if nodeid.startswith(SPARK):
        return "spark"
    return nodeid if nodeid.startswith(APART) else nodeid.split("::")[0]


def rank(nodeid: str) -> int:
    return next((at for at, one in enumerate(ORDER) if nodeid.startswith(one)), len(ORDER))


class Shares(LoadScopeScheduling):
    """Gives a process its next share when it has almost done the one before."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)  # type: ignore[arg-type]
        # As collected, not by number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
