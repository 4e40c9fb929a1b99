"""What this node knows when it considers to serve: of itself, and of every peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.peers import peer_facts
from replication.commit import PAIR
from statemachine.promotion import Facts

if TYPE_CHECKING:
    from node.peering import Peering


def facts_of(peering: Peering) -> Facts:
    """The facts `statemachine.promotion` decides over, as they are now."""
    core, settings = peering.core, peering.settings
    lineage = core.engine.store.lineage
    last = lineage[-1] if lineage else None
    acked = peering.replica.log.acked_mark if peering.following else core.commit_lsn
    peers = peering.peers.values()
    known = {term[1] for term in lineage}
    return Facts(
        peering.wal.written_lsn,
        last[0] if last else 0,
        last[1] if last else None,
        acked,
        reigned=bool(last) and last[1] == peering.own_reign,
        blank=peering.blank and not peering.emptied,
        joining=peering.replica.log.snapshot.joining or peering.emptied,
        pair=settings.replication.ack == PAIR,
        solo=bool(last and last[5]),
        solo_after_us=peering.solo_after_us(),
        lag_us=max((peer.lag_us for peer in peers), default=0),
        peer_term=peering.role.fiber.notes.known_number,
        original=settings.compat.promotion == "original",
        peers=peer_facts(peers, peering.feeds, known, peering.mono()),
    )
