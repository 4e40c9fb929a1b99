"""What nodes ask each other about who serves: questions before a promotion, and orders.

Whoever is about to serve asks every peer and waits for its answer: so each knows of the other's
request before a term is opened, and whoever stopped for another knows whether that one may serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.terms import last_term
from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.facts import standing_here
from tandemq_server.node.cluster.links import Feed
from tandemq_server.replication.messages import Ask, Heartbeat, Hello, Welcome
from tandemq_server.statemachine.roles import Role

if TYPE_CHECKING:
    from tandemq_server.node.cluster.links import Link
    from tandemq_server.node.cluster.peering import Peering

#: How long a node that stopped for another waits for it to serve.
TAKE_BACK_US = 1_500_000
#: An order that comes again within this time is the same one: it is repeated until answered.
REPEATED_US = SECOND_US


class Asking:
    """One for all links of a node. lent_us: when a peer asked this node, which served, to stop."""

    def __init__(self, peering: Peering) -> None:
        self.peering = peering
        self.lent_us: int | None = None
        self._order: tuple[bool, int] | None = None
        self._stamp_us = 0
        #: Id of the log's last term when the questions were asked.
        self._asked_in = b""

    def heartbeat(self, link: Link, asks: bool = False) -> Heartbeat:
        """What this node is now, said to the other end of a link."""
        peering = self.peering
        core, role = peering.core, peering.role
        number, term_id = last_term(core.engine.store.lineage)
        # Each message has a moment of its own: an answer names the question it has heard.
        self._stamp_us = max(peering.mono(), self._stamp_us + 1)
        return Heartbeat(
            number,
            term_id,
            core.state,
            peering.wal.written_lsn,
            core.commit_lsn,
            peering.clock.now(),
            core.read_only,
            role.leading,
            standing_here(peering),
            self._stamp_us,
            link.beat.sent_us if link.beat is not None else 0,
            int(role.fiber.notes.claim()) if role.role is Role.STARTUP else 0,
            asks,
        )

    # -- questions -------------------------------------------------------------------------------

    def ask_all(self) -> None:
        """Let every peer answer once since the promotion at hand was asked for.

        And again when the log has got a newer term of another node since: that one may have
        answered before it opened it.
        """
        lineage = self.peering.core.engine.store.lineage
        if lineage and lineage[-1].id != self._asked_in:
            self._asked_in = lineage[-1].id
            if lineage[-1].node != self.peering.settings.name:
                for link in self.peering.links():
                    link.asked_us = 0
        for link in self.peering.links():
            if not link.asked_us and not link.ended and known_at(link) is not None:
                question = self.heartbeat(link, True)
                link.asked_us = question.sent_us
                link.send(question)

    def answer(self, link: Link) -> None:
        """A peer that is about to serve asks. Unless this node leads, it may from here on."""
        if not self.peering.role.leading:
            self.peering.own_lead = b""
        link.send(self.heartbeat(link))

    # -- orders ----------------------------------------------------------------------------------

    def way_to(self, name: str) -> Link | None:
        """A link to a peer that lives."""
        for link in self.peering.links():
            known = known_at(link)
            if known is not None and not link.ended and known.node_name == name:
                return link
        return None

    def order(self, name: str, read_only: bool, reason: str) -> bool:
        """Ask a peer to become (not) writable; False when there is no link to it."""
        link = self.way_to(name)
        if link is not None:
            link.send(Ask(read_only, reason))
        return link is not None

    def ordered(self, read_only: bool, reason: str) -> None:
        """A peer carries out an operator's switch-over."""
        peering, now = self.peering, self.peering.mono()
        before = self._order
        if before is not None and before[0] == read_only and now - before[1] < REPEATED_US:
            return
        peering.say(f"asked to become {'read-only' if read_only else 'writable'}: {reason}")
        lent = read_only and peering.role.role is Role.RUNNING
        peering.role.request(read_only)
        self._order = (read_only, now)
        self.lent_us = now if lent else None

    def requested(self) -> None:
        """Somebody wants something of this node: what it was ordered before is over.

        So the same order right after a switch-over the other way is a new one, no repetition.
        """
        self.lent_us = self._order = None

    def stop_others(self) -> None:
        """This node is promoted by force: whoever serves and can be reached stops first."""
        peering = self.peering
        for peer in peering.facts().peers:
            if peer.reachable and peer.writable:
                peering.say(f"{peer.name} serves: asking it to stop first")
                self.order(peer.name, True, f"{peering.settings.name} is promoted by force")

    def tick(self, now_us: int) -> None:
        """A node that was asked to stop takes the lead back when nobody took it."""
        role = self.peering.role
        if self.lent_us is None or role.role in (Role.RUNNING, Role.STARTUP):
            return
        links = self.peering.links()
        beats = [link.beat for link in links if link.beat is not None and not link.ended]
        if any(beat.writable for beat in beats):
            self.lent_us = None
        elif any(beat.wants for beat in beats):
            self.lent_us = now_us
        elif role.role is Role.WAITING and now_us - self.lent_us > TAKE_BACK_US:
            self.peering.say("nobody has taken the lead from this node: taking it back")
            role.request(False)


def known_at(link: Link) -> Hello | Welcome | None:
    """What the other end said of itself when the link began."""
    return link.hello if isinstance(link, Feed) else link.upstream  # type: ignore[attr-defined]
