"""How far the log counts as committed: what may be acknowledged to clients.

`local`: durable here. `pair`: durable here and confirmed by one replica, until nobody has confirmed
for `solo_after`; then the owner is told to open a solo term and to go on alone. Never backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemq.model.units import SECOND_US

LOCAL, PAIR = "local", "pair"
#: A replica that made up what it lacked within this time keeps up.
ROUND_US = SECOND_US
#: Ticks come four times a second and oftener: a longer gap is a pause of this process.
PAUSE_US = 500_000


#: Values of wal.mode, the weakest first; before them what is said of a mode nobody knows.
UNKNOWN = "unknown"
_STRENGTH = (UNKNOWN, "none", "write", "fsync")


def weaker(*modes: str) -> str:
    """The weakest of some values of wal.mode; an empty or foreign one is unknown, the weakest."""
    return min((mode if mode in _STRENGTH else UNKNOWN for mode in modes), key=_STRENGTH.index)


@dataclass(frozen=True, slots=True)
class GoSolo:
    """Open a new term with the solo flag, then `open_term(..., solo=True)`."""

    reason: str


@dataclass(frozen=True, slots=True)
class PairAgain:
    """A replica keeps up: open a new term without the solo flag, then `open_term`."""

    node_id: bytes


class _Peer:
    """A replica as the commit point sees it, in the present term."""

    __slots__ = ("acked_lsn", "round_began_us", "round_lsn", "up")

    def __init__(self) -> None:
        self.up = False
        self.acked_lsn = 0
        #: The end of the log when the present round of catching up began, and that moment.
        self.round_lsn = -1
        self.round_began_us = 0


def counts(acked_in: object, term: object) -> bool:
    """Whether a confirmation given in one term speaks for another: only where they are one."""
    return acked_in == term


def reach(durable: int, confirmed: int, unconfirmed: bool) -> int:
    """How far replies may go (rule S1 of the seat). confirmed: by who must, in this very term."""
    return durable if unconfirmed else min(durable, confirmed)


class CommitPoint:
    """commit_lsn of the node that writes, for one leadership after another.

    mode: "local" or "pair"; solo: pair mode goes on without a replica, by the present term's flag.
    With an arbiter `tick` only says when to ask for its word, and `needs` is what it said.
    partner: the one replica whose confirmation counts, None for any. slack: so many records may be
    acknowledged before that confirmation, while `lease_us` is to come.
    """

    def __init__(self, mode: str, solo_after_us: int | None, commit_lsn: int = 0) -> None:
        """`solo_after_us` None: never alone; writes wait until a replica confirms."""
        assert mode in (LOCAL, PAIR), mode
        assert solo_after_us is None or solo_after_us > 0
        self.mode = mode
        self.solo_after_us = solo_after_us
        self.commit_lsn = commit_lsn
        self.durable_lsn = commit_lsn
        self.solo = False
        self.term_id = b""
        self.ignored_acks = 0
        self._peers: dict[bytes, _Peer] = {}
        self._starved_us: int | None = None
        #: GoSolo or PairAgain was said and the term it asks for is not open yet.
        self._asked = False
        self._ticked_us: int | None = None
        self.partner: bytes | None = None
        self.slack = 0
        self.lease_us = 0
        self._now_us = 0

    def needs(self, partner: bytes | None, now_us: int) -> None:
        """From here on that replica must confirm; None: this node's own disk is enough."""
        self.solo, self.partner, self._asked = partner is None, partner, False
        self._starved_us = now_us
        for peer in self._peers.values():
            peer.round_lsn = -1
        self._advance()

    def ask_again(self) -> None:
        """What `tick` asked for was not granted."""
        self._asked = False

    def behind(self, node_id: bytes | None) -> int:
        """Acknowledged records this replica has not confirmed in this term."""
        peer = self._peers.get(node_id or b"")
        return max(0, self.commit_lsn - (peer.acked_lsn if peer is not None else 0))

    def starved_us(self, now_us: int) -> int:
        """For how long nobody confirms what waits, or could confirm what comes next."""
        if self.solo or not self._starving() or self._starved_us is None:
            return 0
        return now_us - self._starved_us

    def open_term(self, term_id: bytes, solo: bool, now_us: int) -> None:
        """Records are written under this term from now on. Older confirmations count no more."""
        self.term_id = term_id
        self.solo = solo
        self._asked = False
        self._starved_us = now_us
        for peer in self._peers.values():
            peer.acked_lsn = 0
            peer.round_lsn = -1
        self._advance()

    def own(self, durable_lsn: int, now_us: int) -> int:
        """This node's log is durable up to `durable_lsn`. Returns the commit LSN."""
        self._now_us = now_us
        if durable_lsn > self.durable_lsn:
            if not self._starving() or self._starved_us is None:
                # Nothing was waiting: the replicas' time starts with this record.
                self._starved_us = now_us
            self.durable_lsn = durable_lsn
        return self._advance()

    def ack(self, node_id: bytes, term_id: bytes, durable_lsn: int, now_us: int) -> int:
        """A replica confirmed; `term_id`: of the record `durable_lsn` there. Gives the commit LSN.

        A confirmation of another term is counted and ignored: that log may yet be cut.
        """
        if not counts(term_id, self.term_id):
            self.ignored_acks += 1
            return self.commit_lsn
        self._now_us = now_us
        before = self._confirmed()
        peer = self._peers.setdefault(node_id, _Peer())
        peer.acked_lsn = max(peer.acked_lsn, durable_lsn)
        if self._confirmed() > before:
            self._starved_us = now_us
        return self._advance()

    def link_up(self, node_id: bytes) -> None:
        peer = self._peers.setdefault(node_id, _Peer())
        peer.up = True
        peer.round_lsn = -1

    def link_down(self, node_id: bytes) -> None:
        """What it confirmed in this term stays confirmed: it is on its disk."""
        if node_id in self._peers:
            self._peers[node_id].up = False

    def without(self, node_id: bytes) -> None:
        """It only follows: nothing it confirms counts. What is committed stays so."""
        self._peers.pop(node_id, None)

    def tick(self, now_us: int) -> GoSolo | PairAgain | None:
        """Time passed. A change of mode to make, said once until the term it asks for is open.

        A pause of this process is no silence of the replica, whose word may wait in a buffer: it
        gets that time on top.
        """
        self._own_pause(now_us)
        self._now_us = now_us
        if self.mode != PAIR or self._asked or not self.term_id:
            return None
        found = self._pair_again(now_us) if self.solo else self._go_solo(now_us)
        self._asked = found is not None
        return found

    @property
    def waiting_records(self) -> int:
        """Records durable here that no reply may speak of yet."""
        return self.durable_lsn - self.commit_lsn

    @property
    def solo_due_us(self) -> int | None:
        """When `tick` will ask to go solo if nothing changes."""
        if self.mode != PAIR or self.solo or self.solo_after_us is None or not self._starving():
            return None
        return (self._starved_us or 0) + self.solo_after_us

    # -- inside ----------------------------------------------------------------------------------

    def _confirmed(self) -> int:
        """The highest LSN the partner, or some replica, confirmed in this term."""
        if self.partner is not None:
            named = self._peers.get(self.partner)
            return named.acked_lsn if named is not None else 0
        return max((peer.acked_lsn for peer in self._peers.values()), default=0)

    def _advance(self) -> int:
        slack = self.slack if self.slack and self._now_us < self.lease_us else 0
        alone = self.solo or self.mode != PAIR
        lsn = reach(self.durable_lsn, 0 if alone else self._confirmed() + slack, alone)
        if lsn > self.commit_lsn:
            self.commit_lsn = lsn
        return self.commit_lsn

    def _starving(self) -> bool:
        """Something waits for a replica, or there is none that could confirm what comes next."""
        if self._confirmed() < self.durable_lsn:
            return True
        if self.partner is not None:
            return self.partner not in self._peers or not self._peers[self.partner].up
        return not any(peer.up for peer in self._peers.values())

    def _own_pause(self, now_us: int) -> None:
        gap = now_us - self._ticked_us if self._ticked_us is not None else 0
        self._ticked_us = now_us
        if gap > PAUSE_US and self._starved_us is not None:
            # The replica is given its whole time afresh, to be heard first.
            self._starved_us = now_us

    def _go_solo(self, now_us: int) -> GoSolo | None:
        if not self._starving():
            self._starved_us = None
            return None
        if self._starved_us is None:
            self._starved_us = now_us
        if self.solo_after_us is None or now_us - self._starved_us < self.solo_after_us:
            return None
        waited_ms = (now_us - self._starved_us) // 1000
        return GoSolo(f"no replica confirmed for {waited_ms} ms")

    def _pair_again(self, now_us: int) -> PairAgain | None:
        """Rounds: reach what was the end of the log when the round began, within ROUND_US."""
        for node_id, peer in self._peers.items():
            if not peer.up:
                continue
            if peer.acked_lsn >= peer.round_lsn >= 0:
                if now_us - peer.round_began_us <= ROUND_US:
                    return PairAgain(node_id)
                peer.round_lsn = -1
            if peer.round_lsn < 0:
                peer.round_lsn, peer.round_began_us = self.durable_lsn, now_us
                if peer.acked_lsn >= self.durable_lsn > 0:
                    return PairAgain(node_id)
        return None
