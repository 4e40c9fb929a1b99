"""Strangers, floods and wrong passwords on a real socket: what they may not do to a node."""

from __future__ import annotations

import asyncio
import base64
import struct
import time
from typing import Any, ClassVar

import msgpack
import pytest

from tandemq_server.node.core.identity import ClientBounds
from tandemq_server.node.core.requests import FAILED_LOGINS_MAX
from tandemq_server.node.loop import doors
from tandemq_server.node.loop import shell as shell_module
from tandemq_server.node.loop.doors import (
    FAILURES_FREE,
    SLICE_BYTES,
    STRANGER_SECONDS,
    TURN_SECONDS,
    Guesses,
    InputRoom,
    Rotation,
)
from tandemq_server.wire.auth import chap_sha1_hash, chap_sha1_scramble, check_chap_sha1
from tandemq_server.wire.constants import AUTH, EVAL, ID, PING, SELECT, WATCH
from tests.node.harness import Wire, node

ACCESS_DENIED = 42
VSPACE = 281


class Closed:
    """Guests may do nothing; `ann` may use tubes, `peer` may replicate."""

    RIGHTS: ClassVar = {"ann": "queue.", "peer": "replication"}

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        return (chap_sha1_hash("secret"),)

    def may(self, user: str, call: str) -> bool:
        return user in self.RIGHTS and call.startswith(self.RIGHTS[user])

    def guest_may(self) -> bool:
        return False

    def grantees(self, user: str) -> tuple[str, ...]:
        return (user,)

    def dialect(self, user: str) -> str | None:
        return None

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return user in self.RIGHTS and check_chap_sha1(chap_sha1_hash("secret"), salt, data)


def closed(**options: Any) -> Any:
    return node(accounts=Closed(), **options)


@pytest.fixture(autouse=True)
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "SWEEP_SECONDS", 0.02)


def frame(rtype: int, body: Any, sync: int = 1) -> bytes:
    packet = msgpack.packb({0: rtype, 1: sync}) + msgpack.packb(body)
    return b"\xce" + struct.pack(">I", len(packet)) + packet


def login(wire: Wire, user: str = "ann", password: str = "secret") -> bytes:
    salt = base64.b64decode(wire.greeting[64:108])
    return frame(AUTH, {0x23: user, 0x21: ["chap-sha1", chap_sha1_scramble(password, salt)]})


async def logged_in(bench: Any, user: str = "ann") -> Wire:
    wire: Wire = await bench.dial()
    wire.writer.write(login(wire, user))
    assert (await wire.receive())[1] == 0
    return wire


async def silent(wire: Wire, seconds: float = 0.05) -> bool:
    try:
        await asyncio.wait_for(wire.receive(), seconds)
    except TimeoutError:
        return True
    return False


# -- before login ----------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("rtype", [PING, AUTH, EVAL, SELECT])
async def test_a_large_frame_of_a_stranger_ends_at_its_length(rtype: int) -> None:
    async with closed() as bench:
        wire = await bench.dial()
        wire.writer.write(b"\xce" + struct.pack(">I", 60 << 20) + bytes((0x82, 0, rtype)))
        sync, code, body = await wire.receive()
        assert (sync, code) == (0, 20)
        assert "8192" in body[0x31]
        assert await wire.closed()


@pytest.mark.asyncio
async def test_strangers_may_ping_and_ask_who_they_are_and_nothing_else() -> None:
    async with closed() as bench:
        wire = await bench.dial()
        for rtype, body in ((PING, {}), (ID, {})):
            wire.writer.write(frame(rtype, body))
            assert (await wire.receive())[1] == 0
        for rtype, body in (
            (EVAL, {0x27: "return box.info", 0x21: []}),
            (SELECT, {0x10: VSPACE, 0x12: 10, 0x20: []}),
            (0x0A, {0x22: "queue.tube.fifo:put", 0x21: ["x"]}),
            (99, {}),
        ):
            wire.writer.write(frame(rtype, body))
            assert (await wire.receive())[1] == ACCESS_DENIED, rtype
        wire.writer.write(frame(WATCH, {0x57: "box.status"}))
        assert await silent(wire)
        assert bench.core.engine.tubes["fifo"].statistics()["tasks"]["total"] == 0


@pytest.mark.asyncio
async def test_what_follows_a_login_in_one_write_is_that_of_the_user() -> None:
    async with closed() as bench:
        wire = await bench.dial()
        large = {0x22: "queue.tube.fifo:put", 0x21: ["x" * 20_000]}
        wire.writer.write(login(wire) + frame(0x0A, large, 2) + frame(PING, {}, 3))
        answers = sorted([(await wire.receive())[:2] for _ in range(3)])
        assert answers == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.asyncio
async def test_a_grant_to_guests_lets_them_in() -> None:
    async with closed() as bench:
        tube = bench.core.engine.tubes["fifo"]
        tube.engine.grants.insert(("guest", "queue.tube.fifo:put"))
        wire = await bench.dial()
        assert (await wire.call("queue.tube.fifo:put", "x" * 20_000))[0][1] == "r"


@pytest.mark.asyncio
async def test_who_does_not_log_in_goes() -> None:
    async with closed(handshake_s=0.15) as bench:
        wire, user = await bench.dial(), await logged_in(bench)
        assert await wire.ping()
        assert await asyncio.wait_for(wire.closed(), 5)
        assert any("no login within" in line for line in bench.lines)
        assert await user.ping()


@pytest.mark.asyncio
async def test_strangers_make_room_for_whoever_comes() -> None:
    async with closed(connections_max=3) as bench:
        strangers = [await bench.dial() for _ in range(3)]
        for one in strangers:
            assert await one.ping()
        users = [await logged_in(bench) for _ in range(3)]
        for one in strangers:
            assert await asyncio.wait_for(one.closed(), 5)
        for one in users:
            assert await one.ping()
        full = await bench.dial(greeted=False)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await full.reader.readexactly(128)


@pytest.mark.asyncio
async def test_places_are_kept_for_peers() -> None:
    async with closed(connections_max=4, reserved=2) as bench:
        for _ in range(2):
            await logged_in(bench)
        late = await bench.dial()
        late.writer.write(login(late))
        assert (await late.receive())[1] == 0
        assert await asyncio.wait_for(late.closed(), 5)
        assert any("for peers" in line for line in bench.lines)
        peer = await logged_in(bench, "peer")
        assert await peer.ping()


@pytest.mark.asyncio
async def test_wrong_passwords_end_a_connection() -> None:
    async with closed() as bench:
        wire = await bench.dial()
        wire.writer.write(login(wire, password="wrong") * 50)
        answers = 0
        while True:
            try:
                assert (await wire.receive())[1] != 0
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            answers += 1
        assert answers <= FAILED_LOGINS_MAX
        assert any("too many wrong passwords" in line for line in bench.lines)
        assert await (await logged_in(bench)).ping()


@pytest.mark.asyncio
async def test_of_a_long_name_the_log_keeps_the_beginning() -> None:
    async with closed() as bench:
        wire = await bench.dial()
        wire.writer.write(login(wire, "x" * 7000))
        assert (await wire.receive())[1] != 0
        (line,) = [line for line in bench.lines if "refused" in line]
        assert len(line) < 300


def test_an_address_that_guesses_is_heard_one_by_one() -> None:
    guesses = Guesses()
    for _ in range(int(FAILURES_FREE) - 1):
        guesses.failed("a", 0.0)
    assert guesses.wait("a", 0.0) == 0
    for _ in range(50):
        guesses.failed("a", 0.0)
    assert [guesses.wait("a", 0.0) for _ in range(3)] == pytest.approx(
        [STRANGER_SECONDS, 2 * STRANGER_SECONDS, 3 * STRANGER_SECONDS]
    )
    assert guesses.wait("b", 0.0) == 0
    assert guesses.wait("a", 3600.0) == 0


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_long_expression_is_not_parsed() -> None:
    async with node() as bench:
        wire = await bench.dial()
        text = "return " + "{" * (5 << 20)
        began = time.perf_counter()
        wire.writer.write(frame(EVAL, {0x27: text, 0x21: []}))
        _, code, body = await wire.receive()
        assert code == 32
        assert "expression of 5242887 bytes is not read" in body[0x31]
        wire.writer.write(frame(EVAL, {0x27: "return " + "{" * 9000, 0x21: []}))
        assert "at most 4096" in (await wire.receive())[2][0x31]
        assert time.perf_counter() - began < 5


@pytest.mark.asyncio
@pytest.mark.parametrize("rtype", [EVAL, 0x0A, 0x06])
async def test_nothing_is_kept_of_a_request_whose_name_is_longer_than_any(rtype: int) -> None:
    async with node() as bench:
        wire = await bench.dial()
        key = 0x27 if rtype == EVAL else 0x22
        packet = frame(rtype, {key: "x" * (20 << 20), 0x21: [1]}, 7)
        wire.writer.write(packet[:-1000])
        await wire.writer.drain()
        (connection,) = bench.core.connections.values()
        while connection.decoder.missing > 1000:
            await asyncio.sleep(0.01)
        assert bench.shell.input.bytes <= 1
        assert not connection.decoder._held
        wire.writer.write(packet[-1000:] + frame(PING, {}, 8))
        answers = {}
        for _ in range(2):
            sync, code, body = await wire.receive()
            answers[sync] = code
            assert sync == 8 or len(body[0x31]) < 200
        assert answers == {7: 32 if rtype == EVAL else 33, 8: 0}


@pytest.mark.asyncio
async def test_an_error_repeats_the_beginning_of_a_long_name() -> None:
    async with node() as bench:
        wire = await bench.dial()
        code, text = await wire.call("x" * (1 << 20))
        assert code == 33
        assert len(text) < 110_000


class Holder:
    def __init__(self) -> None:
        self.starved = False

    def starve(self) -> None:
        self.starved = True

    def feed(self) -> None:
        self.starved = False


def test_unfinished_requests_share_one_room_and_the_eldest_goes_on() -> None:
    room = InputRoom(100)
    first, second, third = Holder(), Holder(), Holder()
    room.hold(first, 60)
    room.hold(second, 60)
    assert (first.starved, second.starved) == (False, True)
    room.hold(first, 500)
    assert not first.starved
    room.hold(third, 10)
    assert third.starved
    room.hold(first, 0)
    assert (second.starved, third.starved) == (False, False)
    room.hold(second, 0)
    room.hold(third, 0)
    assert room.bytes == 0


@pytest.mark.asyncio
async def test_many_unfinished_frames_are_all_answered_in_the_end() -> None:
    async with node(ClientBounds(payload_bytes_max=1 << 20), input_bytes_max=1 << 20) as bench:
        wires = [await bench.dial() for _ in range(8)]
        packets = [frame(0x0A, {0x22: "queue.tube.fifo:put", 0x21: ["x" * 900_000]}) for _ in wires]
        for wire, packet in zip(wires, packets, strict=True):
            wire.writer.write(packet[:-1])
        await asyncio.sleep(0.1)
        assert bench.shell.input.bytes <= (1 << 20) + 8 * (1 << 18)
        for wire, packet in zip(wires, packets, strict=True):
            wire.writer.write(packet[-1:])
        for wire in wires:
            assert (await asyncio.wait_for(wire.receive(), 10))[1] == 0
        assert bench.shell.input.bytes == 0


# -- turns -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_one_who_pipelines_does_not_hold_the_others() -> None:
    async with node() as bench:
        flood, other = await bench.dial(), await bench.dial()
        assert await other.ping()
        one = frame(0x0A, {0x22: "queue.tube.fifo:put", 0x21: ["x"]})
        count = 40 * SLICE_BYTES // len(one)
        flood.writer.write(one * count)
        await flood.writer.drain()
        tube = bench.core.engine.tubes["fifo"]
        assert await other.ping()
        done = tube.statistics()["tasks"]["total"]
        assert done < count, "the ping waited for all that the flood had sent"
        for _ in range(count):
            assert (await flood.receive())[1] == 0
        assert tube.statistics()["tasks"]["total"] == count


def test_leftovers_go_on_in_rotation_and_the_loop_has_its_turn() -> None:
    now, soon, order = [0.0], [], []

    def worker(name: str, slices: int) -> Any:
        left = [slices]

        def go_on() -> bool:
            order.append(name)
            now[0] += 0.003
            left[0] -= 1
            return left[0] > 0

        return go_on

    rotation = Rotation(soon.append, lambda: now[0])
    rotation.add("ann", worker("a", 3))
    rotation.add("bob", worker("b", 2))
    assert len(soon) == 1
    rounds = 0
    while soon:
        soon.pop()()
        rounds += 1
    assert order == ["a", "b", "a", "b", "a"]
    assert rounds == 3


def test_a_user_has_one_share_however_many_connections() -> None:
    now, soon, order = [0.0], [], []

    def worker(name: str) -> Any:
        def go_on() -> bool:
            order.append(name)
            now[0] += 0.005
            return len(order) < 12

        return go_on

    rotation = Rotation(soon.append, lambda: now[0])
    for number in range(5):
        rotation.add("many", worker(f"m{number}"))
    rotation.add("one", worker("o"))
    while soon:
        soon.pop()()
    assert order[:6] == ["m0", "o", "m1", "o", "m2", "o"]


def test_reads_have_a_share_of_a_turn_and_what_comes_then_waits() -> None:
    now, soon = [5.0], []
    rotation = Rotation(soon.append, lambda: now[0])
    assert not rotation.spent()
    now[0] += TURN_SECONDS / 2
    assert not rotation.spent()
    now[0] += TURN_SECONDS
    assert rotation.spent()
    assert len(soon) == 1
    soon.pop()()
    assert not rotation.spent(), "another turn of the loop"


@pytest.mark.asyncio
async def test_who_guessed_waits_even_if_the_loop_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop begins to read once a connection is made, whatever it was told meanwhile."""
    async with closed() as bench:
        for _ in range(int(2 * FAILURES_FREE)):
            bench.shell.guesses.failed("127.0.0.1", bench.shell.loop.time())
        monkeypatch.setattr(asyncio.selector_events._SelectorTransport, "pause_reading", _no_pause)
        wire = await bench.dial()
        began = time.monotonic()
        wire.writer.write(login(wire, password="wrong"))
        assert (await wire.receive())[1] != 0
        assert time.monotonic() - began > STRANGER_SECONDS / 2
        again = await bench.dial()
        began = time.monotonic()
        again.writer.write(login(again))
        assert (await again.receive())[1] == 0
        assert time.monotonic() - began > STRANGER_SECONDS / 2


def _no_pause(self: Any) -> None:
    """As a transport that was told before it began to read."""


# -- schema ----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_schema_is_built_once_and_shows_what_a_user_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with closed() as bench:
        wire = await logged_in(bench)
        question = frame(SELECT, {0x10: VSPACE, 0x11: 0, 0x12: 10_000, 0x13: 0, 0x14: 2, 0x20: []})
        built = 0
        fresh = bench.core.schema._descriptions

        def counted(user: str) -> Any:
            nonlocal built
            built += 1
            return fresh(user)

        monkeypatch.setattr(bench.core.schema, "_descriptions", counted)
        names = set()
        for _ in range(20):
            wire.writer.write(question)
            names = {row[2] for row in (await wire.receive())[2][0x30]}
        assert built == 1
        assert {"fifo", "utube", "_vspace"} <= names
        assert "_queue_taken_2" not in names
        assert (await wire.call("queue.create_tube", "late", "fifo"))[0]
        wire.writer.write(question)
        assert "late" in {row[2] for row in (await wire.receive())[2][0x30]}


def test_slices_grow_while_they_are_quick_and_a_slow_one_is_remembered() -> None:
    slices = doors.Slices()
    sizes = []
    for _ in range(12):
        slices.took(slices.bytes, 0.0001)
        sizes.append(slices.bytes)
    assert sizes == [doors.SLICE_BYTES] * 8 + [doors.QUICK_SLICE_BYTES] * 4
    slices.took(slices.bytes, 0.0019)  # four times the bytes, four times the time
    assert slices.bytes == doors.QUICK_SLICE_BYTES
    slices.took(slices.bytes, 0.003)
    assert slices.bytes == doors.SLICE_BYTES
    for _ in range(doors.SLOW_COSTS):
        slices.took(slices.bytes, 0.0001)
    assert slices.bytes == doors.SLICE_BYTES
