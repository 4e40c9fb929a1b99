"""The upstream's side of a handshake: what a downstream with this log is told.

One handshake per connection, ever: after REWIND the downstream cuts its log and connects anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tandemq.model.terms import Claim, Term, decided
from tandemq_server.replication.lineage import Lineage, LineageError
from tandemq_server.replication.messages import (
    BOOTSTRAP,
    BROKEN_LINEAGE,
    CONFLICT,
    CONTINUE,
    IDLE,
    LOST_ACKNOWLEDGED,
    NEWER_PROTOCOL,
    NEWER_TERM,
    NO_CLUSTER,
    OTHER_WAL_MODE,
    PROTOCOL_VERSION,
    REFUSE,
    REWIND,
    SELF,
    UNKNOWN_NODE,
    WRONG_CLUSTER,
    Hello,
    Welcome,
)
from tandemq_server.replication.standing import Outcome, contest, standing_of


@dataclass(frozen=True, slots=True)
class Upstream:
    """The node that answers. Its log holds `first_lsn .. last_lsn` (first = last + 1: nothing).

    writable: it is RUNNING. known_nodes: names and ids of who may follow, None for any.
    accept_loss: the operator has decided that this log stands even where a follower knows more to
    be acknowledged. pair: what is written waits for a follower's confirmation; mixed_modes: also
    one that makes it durable in another way than `wal_mode`.
    """

    cluster_id: bytes
    node_id: bytes
    node_name: str
    lineage: Lineage
    first_lsn: int
    last_lsn: int
    commit_lsn: int
    state: str
    writable: bool
    known_nodes: Collection[str] | None = None
    accept_loss: bool = False
    wal_mode: str = ""
    pair: bool = False
    mixed_modes: bool = False


def answer(hello: Hello, upstream: Upstream) -> Welcome:
    """The answer to HELLO. Never raises; every refusal has a code and names what is wrong."""
    refusal = _identity(hello, upstream)
    if refusal is not None:
        return refusal
    try:
        fork = hello.lineage.common_point(upstream.lineage, hello.last_lsn, upstream.last_lsn)
    except LineageError as error:
        return refuse(upstream, BROKEN_LINEAGE, error.reason)
    if not upstream.writable:
        return _not_writable(hello, upstream, fork)
    refusal = _contest(hello, upstream, fork) or _other_mode(hello, upstream)
    return refusal or _from_fork(hello, upstream, fork)


def refuse(upstream: Upstream, code: int, reason: str) -> Welcome:
    """A refusal, also for a HELLO that could not be read (its `LinkError` has the code)."""
    return _welcome(upstream, REFUSE, 0, code, reason)


def _identity(hello: Hello, upstream: Upstream) -> Welcome | None:
    if hello.version > PROTOCOL_VERSION:
        return refuse(
            upstream,
            NEWER_PROTOCOL,
            f"protocol version {hello.version} is newer than {PROTOCOL_VERSION}, known here",
        )
    if hello.node_id == upstream.node_id:
        return refuse(upstream, SELF, f"node {hello.node_name} is this very node")
    joins = hello.cluster_id == NO_CLUSTER and not hello.last_lsn and not hello.lineage.terms
    if hello.cluster_id != upstream.cluster_id and not joins:
        return refuse(
            upstream,
            WRONG_CLUSTER,
            f"node {hello.node_name} belongs to cluster {hello.cluster_id.hex()}, "
            f"this is {upstream.cluster_id.hex()}",
        )
    if not is_known(upstream.known_nodes, hello.node_id, hello.node_name):
        return refuse(
            upstream,
            UNKNOWN_NODE,
            f"node {hello.node_name} ({hello.node_id.hex()}) is not among the known nodes",
        )
    return None


def is_known(known: Collection[str] | None, node_id: bytes, name: str) -> bool:
    """Whether a node is among the known ones: by its name, or its id as UUID or as hex digits."""
    if known is None:
        return True
    digits = node_id.hex()
    return name in known or any(one.replace("-", "").lower() == digits for one in known)


def _not_writable(hello: Hello, upstream: Upstream, fork: int) -> Welcome:
    """A node that does not write still hands on what a follower of its own history lacks.

    So what the last master wrote reaches its replica after the flip, too. But only a writable
    node may ask another to cut anything, or to start over.
    """
    if fork == hello.last_lsn < upstream.last_lsn and fork + 1 >= upstream.first_lsn:
        return _welcome(upstream, CONTINUE, fork + 1)
    reason = f"{upstream.node_name} is {upstream.state}, not writable; it feeds once it is"
    return _welcome(upstream, IDLE, 0, 0, reason)


def _contest(hello: Hello, upstream: Upstream, fork: int) -> Welcome | None:
    """A writable node whose log does not outrank the other's has no say over it."""
    outcome = contested(hello, upstream, fork)
    rival, own = hello.lineage.last, upstream.lineage.last
    if outcome is Outcome.CONFLICT:
        assert rival is not None
        assert own is not None
        return refuse(
            upstream,
            CONFLICT,
            f"term {rival.number} was opened by {rival.node} ({rival.id.hex()}, LSN "
            f"{rival.start_lsn}) and by {own.node} ({own.id.hex()}, LSN {own.start_lsn}): "
            "an operator must promote one of them",
        )
    if outcome is Outcome.BELOW:
        assert rival is not None
        return refuse(
            upstream,
            NEWER_TERM,
            f"node {hello.node_name} knows term {rival.number} of {rival.node}, which outranks "
            f"{upstream.lineage.number}, the last one here",
        )
    return None


def contested(hello: Hello, upstream: Upstream, fork: int) -> Outcome:
    """Whether the upstream's log outranks the follower's, which may be a rival's."""
    leads = hello.state == "RUNNING"
    if fork == hello.last_lsn and not leads:
        return Outcome.ABOVE
    return contest(
        standing_of(upstream.lineage.terms, upstream.commit_lsn, upstream.writable),
        standing_of(hello.lineage.terms, hello.commit_lsn, leads),
        fork,
    )


def confirms_alike(hello: Hello, upstream: Upstream) -> bool:
    """Whether a confirmation of this follower means what the upstream's own disk means.

    One that does not say its mode is of an older version: it is taken, and the promise called
    unknown, so that two nodes can be upgraded one after the other.
    """
    if not upstream.pair or upstream.mixed_modes or not hello.wal_mode:
        return True
    return hello.wal_mode == upstream.wal_mode


def _other_mode(hello: Hello, upstream: Upstream) -> Welcome | None:
    """In pair mode both disks stand for a write, in either direction of a later flip."""
    if confirms_alike(hello, upstream):
        return None
    return refuse(
        upstream,
        OTHER_WAL_MODE,
        f"wal.mode is {hello.wal_mode} on {hello.node_name} and {upstream.wal_mode} on "
        f"{upstream.node_name}: a pair would promise the weaker one; make them equal, or set "
        "replication.mixed_modes",
    )


def _from_fork(hello: Hello, upstream: Upstream, fork: int) -> Welcome:
    if fork < hello.last_lsn:
        return _rewind(hello, upstream, fork)
    if fork + 1 < upstream.first_lsn:
        reason = f"LSN {fork + 1} is no longer in the log, which starts at {upstream.first_lsn}"
        return _welcome(upstream, BOOTSTRAP, 0, 0, reason)
    return _welcome(upstream, CONTINUE, fork + 1)


def _rewind(hello: Hello, upstream: Upstream, fork: int) -> Welcome:
    """The follower's end is not on the winning lineage. Unless it must not be given up."""
    lost = min(hello.acked_mark, hello.last_lsn)
    # Of a term that counts for nothing, only its own records may be committed.
    lost = min(lost, standing_of(hello.lineage.terms, lost).acked_lsn)
    if fork < lost and not upstream.accept_loss and not _decided_since(hello, upstream, fork):
        # KIP-966: a log that came back shorter than what was acknowledged must not lead.
        return refuse(
            upstream,
            LOST_ACKNOWLEDGED,
            f"records {fork + 1}..{lost} of {hello.node_name} were acknowledged and are not "
            f"in the log of {upstream.node_name}: an operator must say which log stands",
        )
    reason = f"the logs part after LSN {fork}, yours goes on to {hello.last_lsn}"
    return _welcome(upstream, REWIND, fork, 0, reason)


def _decided_since(hello: Hello, upstream: Upstream, fork: int) -> bool:
    """On the upstream's side of the fork an operator decided, or one later than the other side's
    term: by force, knowing what it gave up. (Also the original's rule, which does without.)
    """
    theirs = hello.lineage.term_at(fork + 1)
    number = theirs.number if theirs is not None else 0
    parted = upstream.lineage.term_at(fork + 1) if fork < upstream.last_lsn else None
    if parted is not None and _knowing(parted):
        return True
    terms = upstream.lineage
    return any(_knowing(t) and t.start_lsn > fork and t.number > number for t in terms)


def _knowing(term: Term) -> bool:
    """Begun by decision, or without proof; not a leadership that only goes on alone."""
    return decided(term) or (term.solo and term.claim != Claim.OWN)


def _welcome(
    upstream: Upstream, kind: int, lsn: int = 0, code: int = 0, reason: str = ""
) -> Welcome:
    return Welcome(
        kind,
        lsn,
        code,
        reason,
        PROTOCOL_VERSION,
        upstream.cluster_id,
        upstream.node_id,
        upstream.node_name,
        upstream.lineage,
        upstream.last_lsn,
        upstream.commit_lsn,
        upstream.state,
        upstream.writable,
        upstream.wal_mode,
    )
