"""The judgement over one run of the frontier: a pure function of the two logs.

Here: what counts as lost, twice, together, out of order, and the lines that say so.
Must not be here: the network, clocks, the server; it believes only what clients wrote down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from demo.history import Hold, Outcome, Put

EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of what went right and the URLs (or pairs, as text) of what went wrong.

    `lost`      accepted, and never acknowledged by a worker (an ack with unknown outcome counts).
    `twice`     handed out more often than the producer put it, or again after its ack.
    `strangers` handed to a worker though no producer may have put it, or under another id.
    `doubly`    one task was in the hands of two workers at a time.
    `together`  two holds of one host overlapped.
    `disorder`  a host's URL was handed out before an earlier one, or ids fell while putting.
    `refused`   never accepted by the server.
    """

    urls: int = 0
    hosts: int = 0
    once: int = 0
    unknown: int = 0
    unknown_acks: int = 0
    redelivered: int = 0
    left_in_tube: int = 0
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    doubly: list[str] = field(default_factory=list)
    together: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """Why this run failed, one short text each, with a few examples; empty means ok."""
        found = [
            _reason("never accepted", self.refused),
            _reason("lost", self.lost),
            _reason("processed twice", self.twice),
            _reason("from nowhere", self.strangers),
            _reason("doubly held", self.doubly),
            _reason("two of one host at a time", self.together),
            _reason("out of order", self.disorder),
        ]
        if self.left_in_tube:
            found.append(f"{self.left_in_tube} left in the tube")
        if self.urls == 0:
            found.append("no URL was put")
        return [text for text in found if text]

    @property
    def ok(self) -> bool:
        """True when every URL was processed once, politely and in order."""
        return not self.reasons

    def lines(self) -> list[tuple[str, str]]:
        """The table at the end: a label and a figure for each line but the last."""
        rows = [
            ("URLs", f"{self.urls:,}"),
            ("hosts", f"{self.hosts:,}"),
            ("processed once", f"{self.once:,}"),
            ("lost", f"{len(self.lost):,}"),
            ("twice", f"{len(self.twice):,}"),
            ("doubly held", f"{len(self.doubly):,}"),
            ("two of one host at a time", f"{len(self.together):,}"),
            ("order kept per host", _order_text(self.disorder)),
        ]
        for label, number in (
            ("never accepted", len(self.refused)),
            ("from nowhere", len(self.strangers)),
            ("puts of unknown outcome", self.unknown),
            ("acks of unknown outcome", self.unknown_acks),
            ("handed out again", self.redelivered),
            ("left in the tube", self.left_in_tube),
        ):
            if number:
                rows.append((label, f"{number:,}"))
        return rows

    def last_line(self) -> str:
        """`verdict: ok`, or `verdict: FAILED: ` and every reason."""
        return "verdict: ok" if self.ok else "verdict: FAILED: " + "; ".join(self.reasons)


def _order_text(disorder: Sequence[str]) -> str:
    return f"no, broken {len(disorder):,} times" if disorder else "yes"


def _reason(label: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    more = ", ..." if len(items) > EXAMPLES_MAX else ""
    return f"{len(items):,} {label} ({', '.join(items[:EXAMPLES_MAX])}{more})"


def judge(
    puts: Sequence[Put],
    holds: Sequence[Hold],
    *,
    left_in_tube: int = 0,
    interrupted: bool = False,
) -> Verdict:
    """Compare what producers were told with what workers saw.

    `puts` in any order, several attempts of one URL allowed; `holds` in any order.
    `left_in_tube` is how many tasks the server itself still counts. `interrupted` says that nodes
    or connections went away during the run: then a task whose ack was not confirmed may come again.
    """
    attempts: dict[str, list[Put]] = defaultdict(list)
    for put in puts:
        attempts[put.url].append(put)
    held: dict[str, list[Hold]] = defaultdict(list)
    for hold in sorted(holds, key=_start):
        held[hold.url].append(hold)
    refused, lost, twice = [], [], []
    once = 0
    for url, tries in attempts.items():
        seen = held.get(url, [])
        outcomes = Counter(put.outcome for put in tries)
        answers = Counter(hold.outcome for hold in seen)
        possible = outcomes[Outcome.OK] + outcomes[Outcome.UNKNOWN]
        if not possible:
            refused.append(url)
        if answers[Outcome.OK] + answers[Outcome.UNKNOWN] < outcomes[Outcome.OK]:
            lost.append(url)
        elif _too_often(seen, possible, interrupted):
            twice.append(url)
        elif possible:
            once += answers[Outcome.OK] + answers[Outcome.UNKNOWN] > 0
    return Verdict(
        urls=len(attempts),
        hosts=len({put.host for put in puts}),
        once=once,
        unknown=sum(put.outcome is Outcome.UNKNOWN for put in puts),
        unknown_acks=sum(hold.outcome is Outcome.UNKNOWN for hold in holds),
        redelivered=sum(len(several) - 1 for several in held.values()),
        left_in_tube=left_in_tube,
        refused=refused,
        lost=lost,
        twice=twice,
        strangers=list(_strangers(attempts, held)),
        doubly=list(_doubly(held)),
        together=list(_together(holds)),
        disorder=[*_ids_falling(puts), *_out_of_order(attempts, holds)],
    )


def _start(hold: Hold) -> int:
    return hold.taken_ns


def _too_often(holds: Sequence[Hold], possible: int, interrupted: bool) -> bool:
    """True when a URL that may be in the tube `possible` times was handed out beyond that.

    `holds` in order of time. After an interruption only confirmed acks use up a place.
    """
    if possible == 0:
        return False
    if not interrupted:
        return len(holds) > possible
    finished = 0
    for hold in holds:
        if finished >= possible:
            return True
        finished += hold.outcome is Outcome.OK
    return False


def _strangers(attempts: dict[str, list[Put]], held: dict[str, list[Hold]]) -> Iterator[str]:
    for url, holds in held.items():
        tries = attempts.get(url, [])
        if all(put.outcome is Outcome.FAILED for put in tries):
            yield url
            continue
        if any(put.outcome is Outcome.UNKNOWN for put in tries):
            continue
        known = {put.task_id for put in tries}
        for hold in holds:
            if hold.task_id not in known:
                yield f"{url} as task {hold.task_id}"


def _doubly(held: dict[str, list[Hold]]) -> Iterator[str]:
    """Each task that one worker was given while another had it still."""
    for url, holds in held.items():
        ended: dict[int, int] = {}
        for hold in holds:
            if hold.taken_ns < ended.get(hold.task_id, 0):
                yield f"{url} as task {hold.task_id}"
            ended[hold.task_id] = max(hold.ended_ns, ended.get(hold.task_id, 0))


def _together(holds: Sequence[Hold]) -> Iterator[str]:
    """Each hold that began before an earlier one of the same host had ended."""
    latest: dict[str, Hold] = {}
    for hold in sorted(holds, key=_start):
        other = latest.get(hold.host)
        if other is not None and hold.taken_ns < other.ended_ns:
            yield f"{other.url} and {hold.url}"
        if other is None or hold.ended_ns > other.ended_ns:
            latest[hold.host] = hold


def _ids_falling(puts: Sequence[Put]) -> Iterator[str]:
    """Each accepted put whose id is not above the one accepted before it for the same host."""
    last: dict[str, int] = {}
    for put in sorted(puts, key=lambda put: put.position):
        if put.outcome is Outcome.OK and put.task_id is not None:
            if put.task_id <= last.get(put.host, -1):
                yield f"{put.url} got id {put.task_id}"
            last[put.host] = put.task_id


def _out_of_order(attempts: dict[str, list[Put]], holds: Sequence[Hold]) -> Iterator[str]:
    """Each hold of a URL whose host had already been handed a later one.

    Only URLs put by one confirmed attempt have a known place. A task that comes again (its worker
    was cut off) comes from the same place, so an equal position is in order.
    """
    last: dict[str, int] = {}
    for hold in sorted(holds, key=_start):
        tries = attempts.get(hold.url, [])
        if len(tries) != 1 or tries[0].outcome is not Outcome.OK:
            continue
        position = tries[0].position
        if position < last.get(hold.host, -1):
            yield hold.url
        else:
            last[hold.host] = position
