"""A real node for tests of one's own: the pytest fixture `tandem`, with a clock to turn.

A plugin of pytest by an entry point, so nothing is loaded here before a test asks for a node. The
node is the server's, found by the name it registers: this distribution does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import pytest

if TYPE_CHECKING:
    from tandemq.client.api import Client
    from tandemq.client.sync import SyncClient

__all__ = ["TandemNode", "node", "tandem"]


class TandemNode(Protocol):
    """One node in a thread of this process; as a context manager it is started and stopped.

    It listens on loopback only, lets everybody do everything, and keeps its log in a directory, so
    that a restart finds what was there. Its clock runs as the machine's does, and is ahead of it by
    all that was ever `advance`d.
    """

    @property
    def address(self) -> str:
        """`host:port`, for `tandemq.connect` or any connector."""

    def connect(self, **options: Any) -> Client:
        """A client of this node; options as of `tandemq.connect`."""

    def connect_sync(self, **options: Any) -> SyncClient:
        """A client for programs without an event loop."""

    def start(self) -> Self:
        """Returns once it serves. Raises RuntimeError with the reason if it does not."""

    def stop(self) -> None:
        """End in good order; clients lose their connections. A second time does nothing."""

    def restart(self) -> None:
        """Stop, and start at the same address with all that was there."""

    def now(self) -> float:
        """Seconds since the epoch by the node's clock, by which ttl, ttr and delay are counted."""

    def advance(self, seconds: float) -> None:
        """Let so much time pass for the node at once.

        On return every ttl, ttr, delay, waiting take and session that ends within it has ended, in
        the order of their moments. Raises ValueError for a negative time: it never runs back.
        """

    def tasks(self, tube: str) -> list[tuple[int, str, Any]]:
        """(id, state, data) of all tasks of a tube by id, for assertions; it waits for nothing."""

    def read_only(self, wanted: bool = True) -> None:
        """Refuse writes, as a node that gave its role away does, or take them again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...


def node(directory: Path, **settings: Any) -> TandemNode:
    """A node that is not started yet: `with node(directory) as queue: ...`.

    `settings`: any of docs/configuration.md, their dots as `__`: `queue__ttr=60`. Raises
    `pytest.UsageError` where the server is not installed.
    """
    for entry in entry_points(group="tandemq.server", name="testing"):
        made: TandemNode = entry.load()(directory, **settings)
        return made
    raise pytest.UsageError("the fixture `tandem` needs the server: pip install tandemq-server")


@pytest.fixture
def tandem(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TandemNode]:
    """A node of the test's own on a free port of this machine, empty; stopped when the test ends.

    `tandem.address` for the program under test, `tandem.advance(seconds)` for ttl, ttr and delay.
    """
    with node(tmp_path_factory.mktemp("tandem")) as started:
        yield started
