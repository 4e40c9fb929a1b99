"""Producers and workers: real IPROTO bytes, deadlines, fail-over, and honest notes of outcomes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.simulation.sim_node import SimNode
from tests.simulation.sim_rim import Process
from tests.simulation.sim_world import SECOND, Network, Stream, World

CALL, KEY_FUNCTION, KEY_TUPLE, KEY_DATA, KEY_ERROR = 0x0A, 0x22, 0x21, 0x30, 0x31
#: How long a client waits for a reply before it gives the connection up.
DEADLINE_US = 3 * SECOND

Script = Generator[Any, Any, None]


@dataclass(slots=True)
class Outcome:
    """ok: the values; error: (code, text); neither: nobody knows (the connection went first)."""

    ok: list[Any] | None = None
    error: tuple[int, str] | None = None

    @property
    def unknown(self) -> bool:
        return self.ok is None and self.error is None


@dataclass(slots=True)
class Op:
    """One call as the client saw it. Times in µs of the world; end None: never answered."""

    client: str
    kind: str
    tube: str
    #: What its payload says it is; None for what concerns no task, or none was found.
    number: int | None
    node: str = ""
    began: int = 0
    ended: int | None = None
    outcome: Outcome = field(default_factory=Outcome)
    task_id: Any = None
    session: str | None = None
    key: str | None = None
    #: Seconds until it may be taken; the moment it may vanish, or its lease may end.
    delay: float = 0.0
    expires: int | None = None
    until: int | None = None
    pri: int = 0
    subqueue: str | None = None
    #: Of the delivery it names, or is.
    token: int | None = None
    #: The number of its call, by which its answer is known.
    sync: int = 0
    #: What its answer told of was cut, and no record of it is in a rescue file: the log did not
    #: reach back so far, and a saved state stands for it.
    untold: bool = False


@dataclass(slots=True)
class Contact:
    """A node answered a client for whom it knew its session.

    asked: when. until: the next contact, or the end of the connection; None: it goes on.
    """

    session: str
    node: str
    sync: int
    asked: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    args: tuple[Any, ...]
    #: How long the client waits for the answer before it gives its connection up.
    patience_us: int = DEADLINE_US


@dataclass(frozen=True, slots=True)
class Sleep:
    us: int


@dataclass(frozen=True, slots=True)
class Connect:
    node: str


class Client:
    """Runs a script; one call at a time. Yield Call, Sleep or Connect; get what came of it."""

    def __init__(
        self, world: World, network: Network, machines: dict[str, SimNode], name: str
    ) -> None:
        self.world = world
        self.network = network
        self.machines = machines
        self.name = name
        self.stopped = False
        #: Whose tasks are in its hands, if this connection's node was told.
        self.session = ""
        self.contacts: list[Contact] = []
        self.connected_to: str | None = None
        self._generation = 0
        self._out: Stream | None = None
        self._waiting: int | None = None
        self.sync = 0
        self._asked = 0
        self._buffer = b""
        self._script: Script | None = None

    def run(self, script: Script) -> None:
        self._script = script
        self._advance(None)

    def retire(self) -> None:
        """The program ends: its connection goes, nothing of it is answered any more."""
        self.disconnect()
        self.stopped = True

    def deliver(self, call: Callable[[], None]) -> None:
        call()

    def _advance(self, value: Any) -> None:
        assert self._script is not None
        if self.stopped:
            return
        try:
            wanted = self._script.send(value)
        except StopIteration:
            self.stopped = True
            return
        if isinstance(wanted, Sleep):
            self.world.after(wanted.us, lambda: self._advance(None))
        elif isinstance(wanted, Connect):
            self.disconnect()
            self.world.after(self.network.delay(), lambda: self._connect(wanted.node))
        else:
            self._call(wanted)

    def _connect(self, name: str) -> None:
        node = self.machines[name]
        if not node.alive or node.paused:
            self._advance(False)
            return
        self._generation += 1
        self._buffer = b""
        generation = self._generation

        def mine(call: Callable[[Any], None]) -> Callable[[Any], None]:
            return lambda value: call(value) if self._generation == generation else None

        reset = mine(lambda _none: self._lost())
        back = Stream(self.network, (name, self.name), self, mine(self._got), lambda: reset(None))
        connection = node.accept(back, self.name)
        process = Process(node, node.incarnation)
        self._out = Stream(
            self.network,
            (self.name, name),
            process,
            lambda data: node.received(connection, data),
            lambda: node.lost(connection),
        )
        self.connected_to = name
        self._advance(True)

    def disconnect(self) -> None:
        self._touched(self.world.now)
        self._generation += 1
        self.connected_to = None
        self.session = ""
        self._waiting = None
        if self._out is not None:
            self._out.close()
            self._out = None

    def _call(self, call: Call) -> None:
        if self._out is None:
            self.world.after(1, lambda: self._advance(Outcome()))
            return
        self.sync += 1
        self._asked = self.world.now
        sync = self._waiting = self.sync
        packet = msgpack.packb({0: CALL, 1: sync})
        packet += msgpack.packb({KEY_FUNCTION: call.name, KEY_TUPLE: list(call.args)})
        self._out.write(b"\xce" + struct.pack(">I", len(packet)) + packet)
        self.world.after(call.patience_us, lambda: self._overdue(sync))

    def _overdue(self, sync: int) -> None:
        if self._waiting == sync:
            self._lost()

    def _lost(self) -> None:
        waited = self._waiting is not None
        self.disconnect()
        if waited:
            self._advance(Outcome())

    def _got(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 5:
            length = int.from_bytes(self._buffer[1:5], "big")
            if len(self._buffer) < 5 + length:
                return
            packet, self._buffer = self._buffer[5 : 5 + length], self._buffer[5 + length :]
            unpacker = msgpack.Unpacker(strict_map_key=False, raw=True)
            unpacker.feed(packet)
            header, body = unpacker.unpack(), unpacker.unpack()
            if header[1] != self._waiting:
                continue
            self._waiting = None
            code = header[0] & 0x7FFF
            if code:
                self._advance(Outcome(error=(code, body[KEY_ERROR].decode())))
            else:
                self.met()
                self._advance(Outcome(ok=body.get(KEY_DATA, [])))

    def met(self) -> None:
        """A node has answered its last call for its session."""
        if self.session and self.connected_to is not None:
            self._touched(self._asked)
            contact = Contact(self.session, self.connected_to, self.sync, self._asked)
            self.contacts.append(contact)

    def _touched(self, moment: int) -> None:
        if self.contacts and self.contacts[-1].until is None:
            self.contacts[-1].until = moment


class History:
    """What all clients saw, in the order in which it began."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        #: (session, asked, answered): a node took it for whom it says it is.
        self.heard: list[tuple[str, int, int]] = []
