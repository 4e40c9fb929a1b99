"""What this node knows when it considers to serve: of itself, and of every peer."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tandemq_server.node.cluster.peers import Own, peer_facts
from tandemq_server.replication.commit import PAIR
from tandemq_server.replication.known import lacking
from tandemq_server.replication.standing import Outcome, Standing, contest, standing_of
from tandemq_server.statemachine.promotion import Facts

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering


LSN_MAX = 2**64 - 1


def standing_here(peering: Peering) -> Standing:
    """What the log here has to show for itself."""
    lineage = peering.core.engine.store.lineage
    return standing_of(lineage, peering.core.commit_lsn, peering.role.leading)


def against(peering: Peering, standing: Standing | None, writable: bool) -> Outcome | None:
    """The log here against that of a peer whose beat says so; None from an older node.

    One that does not serve is no rival: if it has more to show, its HELLO tells.
    """
    if standing is None:
        return None
    return contest(standing_here(peering), standing) if writable else Outcome.ABOVE


def facts_of(peering: Peering) -> Facts:
    """The facts `statemachine.promotion` decides over, as they are now."""
    core, settings = peering.core, peering.settings
    lineage = core.engine.store.lineage
    last = lineage[-1] if lineage else None
    acked = peering.replica.log.acked_mark if peering.following else core.commit_lsn
    lacks = lacking(peering.replica.known, lineage, peering.wal.written_lsn)
    acked = max(acked, peering.storage.missing_lsn)
    peers = peering.peers.values()
    ends = {term.id: later.start_lsn - 1 for term, later in pairwise(lineage)}
    if last is not None:
        # Of the last term a peer may have more, which is not another history.
        ends[last.id] = LSN_MAX
    claim = int(peering.role.fiber.notes.claim())
    own = Own(ends, standing_here(peering), claim, peering.node_id)
    return Facts(
        peering.wal.written_lsn,
        last.number if last else 0,
        last.id if last else None,
        max(acked, lacks),
        lacks=lacks,
        led=last is not None and last.id == peering.own_lead,
        blank=peering.blank and not peering.emptied,
        founds=settings.init,
        joining=peering.replica.log.snapshot.joining or peering.emptied,
        pair=settings.replication.ack == PAIR,
        solo=bool(last and last.solo),
        solo_after_us=peering.solo_after_us(),
        lag_us=max((peer.lag_us for peer in peers), default=0),
        peer_term=peering.role.fiber.notes.known_number,
        original=settings.compat.promotion == "original",
        peers=peer_facts(peers, peering.feeds, own, peering.mono()),
        seat=peering.seat.facts() if peering.seat is not None else None,
    )
