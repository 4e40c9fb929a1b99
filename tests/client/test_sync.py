"""The client for programs without an event loop: the same promises, from plain threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tandemq
from tandemq import SyncTask, SyncTube
from tests.client.cutter import Cutter
from tests.cluster.cluster_nodes import Member, until

pytestmark = [pytest.mark.integration]


@pytest.fixture
def client(node: Member) -> Iterator[tandemq.SyncClient]:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as one:
        yield one


def taken(tube: SyncTube) -> SyncTask:
    task = tube.take(5)
    assert task is not None
    return task


def test_every_call(client: tandemq.SyncClient) -> None:
    tube = client.create_tube("sync", "fifottl")
    assert tube.name == "sync"
    assert tube.put_many([1, 2], keys=["one", "two"]) == [0, 1]
    assert (tube.put(1, key="one"), tube.put(3, pri=9)) == (0, 2)
    for task in tube.consume():
        with task:
            assert task.attempt == 1
        if task.data == 3:
            break
    assert tube.take(0) is None
    tube.put_many(["ack", "release", "bury", "finish"])
    ack, release, bury, finish = tube.take_many(9)
    ack.ack()
    with pytest.raises(tandemq.Refused, match="already ended"):
        ack.ack()
    release.release(60, "not now")
    bury.touch(5)
    bury.bury("odd")
    assert finish.finish([("sync", "after"), ("sync", "more", {"delay": 60})]) == [7, 8]
    assert repr(bury) == "<Task 5 of sync, attempt 1>"
    counts = client.statistics("sync")["tasks"]
    assert (counts["buried"], counts["delayed"], counts["ready"], counts["total"]) == (1, 2, 1, 4)
    assert tube.call("kick", [5]) == [1]
    assert client.session == client.client.session
    assert client.call("queue.tube", "sync") == [True]


def test_a_block_acks_or_gives_back(client: tandemq.SyncClient) -> None:
    client.create_tube("blocks-s", "fifo")
    tube = client.tube("blocks-s", max_attempts=2)
    tube.put("x")
    for attempt in (1, 2):
        task = taken(tube)
        assert task.attempt == attempt
        with pytest.raises(KeyError), task:
            raise KeyError("x")
    assert client.statistics("blocks-s")["tasks"]["buried"] == 1


def test_a_plain_block_is_touched_and_told_of_its_loss(client: tandemq.SyncClient) -> None:
    tube = client.create_tube("touched-s", ttr=1.2)
    tube.put("long")
    with taken(tube):
        time.sleep(1.8)
        assert client.statistics("touched-s")["tasks"]["taken"] == 1
    tube.put("lost")
    task = taken(tube)
    with pytest.raises(tandemq.LeaseLost), task:
        client.call("queue.tube.touched-s:release_all")
        until(lambda: task.is_lost)
    with pytest.raises(tandemq.LeaseLost):
        task.ack()
    with taken(tube) as again:
        assert again.data == "lost"


def test_an_interrupted_take_takes_nothing(client: tandemq.SyncClient) -> None:
    tube = client.create_tube("interrupted", "fifo")

    class Interrupt(BaseException):
        pass

    main = threading.main_thread().ident
    assert main is not None
    import signal

    def ring(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        bell = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGUSR1))
        bell.start()
        with pytest.raises(Interrupt):
            tube.take(60)
        bell.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    tube.put("x")
    with taken(tube) as task:
        assert task.data == "x"


def test_many_threads_share_one_client(client: tandemq.SyncClient) -> None:
    tube = client.create_tube("threads", "fifo")
    tube.put_many(range(60))

    def work(_: int) -> list[int]:
        found = []
        while (task := tube.take(0)) is not None:
            with task:
                found.append(task.data)
        return found

    with ThreadPoolExecutor(4) as pool:
        done = sorted(number for found in pool.map(work, range(4)) for number in found)
    assert done == list(range(60))


def test_closed_refused_and_unreachable(node: Member) -> None:
    client = tandemq.connect_sync(f"127.0.0.1:{node.port}", timeout=5)
    tube = client.tube("nowhere")
    with pytest.raises(tandemq.Refused, match="not defined"):
        tube.put(1)
    client.close()
    client.close()
    with pytest.raises(tandemq.Refused, match="the client is closed"):
        tube.put(1)
    with pytest.raises(ValueError, match="host:port"):
        tandemq.connect_sync("nonsense")
    with pytest.raises(tandemq.Unavailable), tandemq.connect_sync("127.0.0.1:1", timeout=0.2):
        pass


@pytest.mark.asyncio
async def test_lost_answers(cutter: Cutter) -> None:
    def work() -> list[int]:
        with tandemq.connect_sync(f"127.0.0.1:{cutter.port}") as client:
            tube = client.create_tube("cut-s", "fifo")
            cutter.cut(b":put", 9)
            with pytest.raises(tandemq.Unknown):
                tube.put("once")
            cutter.cut(b":put", 9)
            ids = [tube.put("keyed", key="k")]
            cutter.cut(b":take", 9)
            for task in (taken(tube), taken(tube)):
                cutter.cut(b":ack", 9)
                with task:
                    ids.append(task.id)
            assert client.statistics("cut-s")["tasks"]["total"] == 0
            return ids

    assert await asyncio.to_thread(work) == [1, 0, 1]
    assert cutter.cuts == 5
