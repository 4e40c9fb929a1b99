"""A node in a thread of this process: real sockets and a real log, and a clock that can be turned.

Here: start, stop, clock. Must not be here: pytest; what a node does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import tandemq
from tandemq.model.units import SECOND_US
from tandemq_server.config import Settings
from tandemq_server.node.loop.log_lines import Logger
from tandemq_server.node.main import Node

#: A node that is not there, or does not end, within so many seconds never will.
_PATIENCE = 20.0
#: Deadlines handled in one turn of the clock; more than that is a loop that feeds itself.
_TURNS_MAX = 100_000


class TandemNode:
    """One node, at `address` from `start` on; as a context manager it is started and stopped.

    It listens on loopback only, lets everybody do everything, and keeps its log in `directory`, so
    that a restart finds what was there. Its clock runs as the machine's does, and is ahead of it by
    all that was ever `advance`d.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        """`settings`: any of docs/configuration.md, their dots as `__`: `queue__ttr=60`."""
        self.directory = directory
        self.settings = {key.replace("__", "."): value for key, value in settings.items()}
        self.port = 0
        self._node: _Quiet | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ahead_us = 0

    @property
    def address(self) -> str:
        """`host:port`, for `tandemq.connect` or any connector."""
        return f"127.0.0.1:{self.port}"

    def connect(self, **options: Any) -> tandemq.Client:
        """A client of this node; options as of `tandemq.connect`."""
        return tandemq.connect(self.address, **options)

    def connect_sync(self, **options: Any) -> tandemq.SyncClient:
        """A client for programs without an event loop."""
        return tandemq.connect_sync(self.address, **options)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> TandemNode:
        """Returns once it serves. Raises RuntimeError with the reason if it does not."""
        assert self._thread is None, "it runs"
        began, failed = threading.Event(), []
        given = {
            "listen": f"127.0.0.1:{self.port}",
            "data_dir": str(self.directory / "data"),
            "wal.mode": "write",
            "guest": "all",
            "queue.ttr": 60,
            "log.level": "error",
            **self.settings,
        }
        settings = Settings.load(None, given, {})

        def ready(_host: str, port: int) -> None:
            self.port = port
            began.set()

        async def whole() -> None:
            self._loop = asyncio.get_running_loop()
            self._node = node = _Quiet(settings, Logger("error", "human"))
            node.ready = ready
            await node.run()

        def live() -> None:
            try:
                asyncio.run(whole())
            except BaseException as error:
                failed.append(error)
            finally:
                began.set()

        self._thread = threading.Thread(target=live, name="tandemq node", daemon=True)
        self._thread.start()
        if not began.wait(_PATIENCE) or failed:
            self._thread = None
            raise RuntimeError(f"the node did not start: {failed[0] if failed else 'no answer'}")
        if self._ahead_us:
            self._do(lambda node: _turn(node, self._ahead_us))
        return self

    def stop(self) -> None:
        """End in good order; clients lose their connections. A second time does nothing."""
        thread, node, loop = self._thread, self._node, self._loop
        if thread is None or node is None or loop is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(node.ended.set)
        thread.join(_PATIENCE)
        self._thread = self._node = self._loop = None
        if thread.is_alive():
            raise RuntimeError("the node does not end")

    def restart(self) -> None:
        """Stop, and start at the same address with all that was there."""
        self.stop()
        self.start()

    def __enter__(self) -> TandemNode:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- the clock -------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch by the node's clock, by which ttl, ttr and delay are counted."""
        return float(self._do(lambda node: node.clock.now())) / SECOND_US

    def advance(self, seconds: float) -> None:
        """Let so much time pass for the node at once.

        On return every ttl, ttr, delay, waiting take and session that ends within it has ended, in
        the order of their moments. Raises ValueError for a negative time: it never runs back.
        """
        if seconds < 0:
            raise ValueError("time does not run backwards")
        by_us = round(seconds * SECOND_US)
        self._ahead_us += by_us
        self._do(lambda node: _turn(node, by_us))

    # -- looking and interfering -----------------------------------------------------------------

    def tasks(self, tube: str) -> list[tuple[int, str, Any]]:
        """(id, state, data) of all tasks of a tube by id, for assertions; it waits for nothing."""
        with self.connect_sync() as client:
            rows = client.call(f"box.space.{tube}:select")[0]
            return [(row[0], row[1], row[-1]) for row in rows]

    def read_only(self, wanted: bool = True) -> None:
        """Refuse writes, as a node that gave its role away does, or take them again."""
        settled = threading.Event()

        def ask(node: Node) -> None:
            node.role.request(wanted, done=lambda _settled: settled.set())
            node.shell.ask_flush()

        self._do(ask)
        if not settled.wait(_PATIENCE):
            raise RuntimeError("the node does not change its role")

    def _do(self, what: Callable[[Any], Any]) -> Any:
        """Something done in the node's own thread."""
        node, loop = self._node, self._loop
        if node is None or loop is None or self._thread is None:
            raise RuntimeError("the node does not run")

        async def done() -> Any:
            return what(node)

        return asyncio.run_coroutine_threadsafe(done(), loop).result(_PATIENCE)


class _Quiet(Node):
    """A node that leaves the process's signals, output and collector alone."""

    def _install_signals(self) -> None:
        return


def _turn(node: Node, by_us: int) -> None:
    """The clock goes on by so much, and everything that is due then is done."""
    node.clock.at_least(node.clock.now() + by_us)
    for _ in range(_TURNS_MAX):
        node.core.advance(node.clock.now())
        node.shell.flush()
        due = node.engine.next_due() if node.engine.running else None
        if due is None or due > node.engine.now:
            return
    raise RuntimeError("deadlines give rise to deadlines without end")


__all__ = ["TandemNode"]
