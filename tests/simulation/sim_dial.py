"""How a simulated node reaches its peers: what `node.loop.dialer` does with sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import StorageError
from tandemq_server.replication.messages import Ack
from tests.simulation.sim_rim import PeerWire, Process
from tests.simulation.sim_world import MS, SECOND, Stream

if TYPE_CHECKING:
    from tandemq_server.node.cluster.links import Link
    from tests.simulation.sim_node import SimNode


def machine_of(peer: str) -> str:
    """The machine behind a name: `b.2` is another name of b."""
    return peer.partition(".")[0]


class Dialing:
    """The part of a node that connects to the others."""

    def _dial_all(self) -> None:
        for name in self.peer_names:
            self._dial(name, 0)

    def _dial(self, name: str, pause_us: int) -> None:
        """One attempt is under way for each peer, or a link stands."""
        address = f"{name}:1"
        if self._dials.get(name) or self.peering.peers[address].link is not None:
            return
        self._dials[name] = True
        self.soon(pause_us + 2 * self.network.delay(), lambda: self._reach(name, address))

    def _reach(self, name: str, address: str) -> None:
        self._dials[name] = False
        place = machine_of(name)
        peer, cut = self.machines.get(place), self.network.cut
        if self.peering.peers[address].link is not None:
            return
        deaf = peer is not None and peer.alive and peer.paused
        if (self.name, place) in cut or (place, self.name) in cut or deaf:
            self.peering.tried(address, "does not answer")
            self._dial(name, SECOND)
            return
        if peer is None or not peer.alive:
            self.peering.tried(address, "cannot be reached", dead=True)
            self._dial(name, 300 * MS)
            return
        self._connect(peer, name, address)

    def _connect(self, peer: SimNode, name: str, address: str) -> None:
        links: dict[str, Any] = {}

        def again() -> None:
            refused = self.peering.peers[address].refused
            self.soon(500 * MS if refused else 20 * MS, lambda: self._dial(name, 0))

        def down_got(data: bytes) -> None:
            guarded(self, links["follow"], inward, data)

        def down_ended() -> None:
            links["follow"].lost()
            outward.open = False
            again()

        mine, its = self.incarnation, peer.incarnation
        place = peer.name
        inward = Stream(self.network, (place, self.name), Process(self, mine), down_got, down_ended)
        outward = Stream(
            self.network,
            (self.name, place),
            Process(peer, its),
            lambda data: guarded(peer, links["feed"], outward, data),
            lambda: links["feed"].lost(),
        )
        links["feed"] = peer.peering.accept(PeerWire(inward, lambda: None), self.name)
        link = links["follow"] = self.peering.connect(address, PeerWire(outward, again))
        confirm = link.applier.ack

        def checked() -> Ack | None:
            ack = confirm()
            log = self.storage.log
            if ack is not None and log is not None and self.wal.mode == "fsync":
                here = self.on_disk(synced=True)
                if ack.durable_lsn > here:
                    self.world.wrong(f"P1: {self.name} confirmed {ack.durable_lsn}, has {here}")
            if ack is not None:
                # True when it is said; the log may be cut while it is on its way.
                self.confirmations.append((outward, ack.durable_lsn))
            return ack

        link.applier.ack = checked  # type: ignore[method-assign]


def guarded(node: SimNode, link: Link, stream: Stream, data: bytes) -> None:
    """What a socket's read does: an error nobody catches ends the connection."""
    try:
        link.receive(data)
    except StorageError as error:
        if not node.disk_is_ill:
            raise
        node.say(f"a link ends: {error}")
        link.lost(str(error))
        stream.reset()
