"""The proxy does what the scenarios believe it does, and its wrapper notices when it does not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.chaos_toxi import Link, Server, ToxiproxyError, serving
from tests.cluster.cluster_nodes import free_ports


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def echo() -> Iterator[int]:
    """A port that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with client:
            try:
                while got := client.recv(65_536):
                    client.sendall(got)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def dial(link: Link) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", link.port), 15)
    client.settimeout(15)
    return client


def test_cut_closes_and_heals(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    with dial(link) as client:
        client.sendall(b"x")
        assert client.recv(9) == b"x"
        link.cut()
        assert client.recv(9) == b""
    with pytest.raises(ConnectionRefusedError):
        dial(link)
    link.heal()
    with dial(link) as client:
        client.sendall(b"y")
        assert client.recv(9) == b"y"


def test_no_bandwidth_holds_bytes_back_and_gives_them_later(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    with dial(link) as client:
        client.settimeout(0.3)
        held = link.add("bandwidth", "upstream", rate=0)
        client.sendall(b"later")
        with pytest.raises(TimeoutError):
            client.recv(9)
        link.release(held)
        client.settimeout(15)
        assert client.recv(9) == b"later"


def test_a_black_hole_swallows_one_direction(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    link.add("timeout", "downstream", timeout=0)
    with dial(link) as client:
        client.settimeout(0.3)
        client.sendall(b"swallowed")
        with pytest.raises(TimeoutError):
            client.recv(9)
        link.heal()
        assert client.recv(9) == b""


def test_limit_data_ends_after_that_many_bytes(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    link.add("limit_data", bytes=3)
    with dial(link) as client:
        client.sendall(b"abcdef")
        assert (client.recv(9), client.recv(9)) == (b"abc", b"")


def test_latency_and_its_update(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    name = link.add("latency", latency=200, jitter=0)
    with dial(link) as client:
        began = time.monotonic()
        client.sendall(b"x")
        assert client.recv(9) == b"x"
        assert time.monotonic() - began >= 0.2
        link.update(name, latency=0, jitter=0)
        client.sendall(b"y")
        assert client.recv(9) == b"y"


def test_errors_carry_the_words_of_the_server(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    with pytest.raises(ToxiproxyError, match="invalid toxic type"):
        link.add("gravity")
    link.add("latency", latency=1, jitter=0)
    with pytest.raises(ToxiproxyError, match="409"):
        link.add("latency", latency=1, jitter=0)
    with pytest.raises(ToxiproxyError, match="404"):
        link.update("nothing", latency=1)


def test_a_port_that_was_taken_meanwhile_is_noticed(server: Server, echo: int) -> None:
    link = server.link("one", echo)
    link.cut()
    with (
        socket.create_server(("127.0.0.1", link.port), reuse_port=False),
        pytest.raises(ToxiproxyError),
    ):
        link.heal()


def test_a_server_that_does_not_answer_is_noticed(server: Server) -> None:
    server.client.update_api_consumer("127.0.0.1", free_ports(1)[0])
    with pytest.raises(ToxiproxyError):
        server.client.proxies()
