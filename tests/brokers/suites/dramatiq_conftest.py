"""The conftest.py under which Dramatiq's own tests run against this broker, not edited.

Its source distribution has the tests without their conftest.py and common.py; `stub_broker` is what
nearly all of them ask for. See run.sh.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import QueueNotFound

import tandemq.testing
from tandemq.dramatiq import TandemBroker, dead_name


class Queue:
    """What the tests put into a queue past the broker, and what they look up there."""

    def __init__(self, broker: TandemBroker, name: str) -> None:
        self.broker, self.name = broker, name

    def put(self, message: bytes) -> None:
        self.broker.tube(self.name).put(message)

    def get(self, timeout: float) -> bytes:
        task = self.broker.tube(self.name).take(timeout)
        assert task is not None
        with task:
            data: bytes = task.data
        return data


class Tested(TandemBroker):
    """What the tests' broker has beyond others: queues, a `join` that raises what actors raised."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.raised: list[BaseException] = []

    def declare_queue(self, queue_name: str) -> None:
        super().declare_queue(queue_name)
        self.queues[queue_name] = Queue(self, queue_name)  # type: ignore[assignment]

    def join(self, queue_name: str, *, timeout: Any = None, fail_fast: bool = True) -> None:
        super().join(queue_name, timeout=timeout)
        raised, self.raised = self.raised[:1], []
        if fail_fast and raised:
            raise raised.pop()

    @property
    def dead_letters(self) -> list[Any]:
        found = []
        for name in self.queues:
            if name not in self._tubes:
                continue
            rows = self.client.call(f"box.space.{dead_name(name)}:select")[0]
            found += [dramatiq.Message.decode(row[-1]) for row in rows]
        return found


class _Raised(dramatiq.Middleware):
    def before_nack(self, broker: Any, message: Any) -> None:
        # Behind the nack a join could return before this was said.
        if message._exception is not None:
            broker.raised.append(message._exception)


@pytest.fixture(scope="session")
def address() -> Any:
    directory = Path(tempfile.mkdtemp())
    with tandemq.testing.node(directory) as node:
        yield node.address
    shutil.rmtree(directory)


@pytest.fixture
def stub_broker(address: str) -> Any:
    broker = Tested(address)
    broker.add_middleware(_Raised())
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    for name in list(broker.queues):
        with contextlib.suppress(QueueNotFound):
            broker.flush(name)
    broker.close()


@pytest.fixture
def stub_worker(stub_broker: Any) -> Any:
    worker = dramatiq.Worker(stub_broker, worker_timeout=100, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()
