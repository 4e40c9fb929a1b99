"""A cluster at one moment, by its admin addresses: all nodes, and the tubes of the one that serves.

Here: asking all of them at a time, and joining what they say. Must not be here: how it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tandemq_server.admin.client import AdminClient, AdminError, AdminUnreachable, Json

#: Tubes are asked for page by page up to so many.
TUBES_MAX = 1000
NO_STATE = "unknown"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. Its own words if it was asked and answered, else what another one says of it."""

    name: str
    address: str
    state: str
    writable: bool
    term: int | None
    lsn: int | None
    lag: Json | None
    connections: int | None
    solo: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class TopView:
    """reachable: how many of the addresses answered. tubes_from: who told of the tubes.

    outlook: what would happen if the master died, where there is an arbiter.
    """

    nodes: tuple[NodeRow, ...]
    writable: tuple[str, ...]
    conflict: bool
    reachable: int
    tubes_from: str | None
    tubes: tuple[Json, ...]
    outlook: str = ""


@dataclass(slots=True)
class _Answer:
    client: AdminClient
    status: Json | None = None
    cluster: Json | None = None
    problem: str = ""


class Gatherer:
    """Asks the same addresses again and again; knows the names of those that went away."""

    def __init__(self, clients: Sequence[AdminClient]) -> None:
        self.clients = clients
        self._names: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(len(clients), "top")

    def close(self) -> None:
        """Does not wait for nodes that do not answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def view(self) -> TopView:
        """Never raises for a node that is away: its row says so."""
        answers = list(self._pool.map(_ask, self.clients))
        told = [answer for answer in answers if answer.status is not None]
        for answer in told:
            assert answer.status is not None
            self._names[answer.client.address] = answer.status["name"]
        writable = tuple(a.status["name"] for a in told if a.status and a.status["writable"])
        tubes_from, tubes = _tubes(told)
        seen = tuple(
            dict.fromkeys(name for a in told if a.cluster for name in a.cluster["writable"])
        )
        return TopView(
            tuple(self._rows(answers)),
            # Who was asked knows best of itself; of others, what is said of them.
            writable or seen,
            len(writable) > 1 or any(a.cluster and a.cluster["conflict"] for a in told),
            len(told),
            tubes_from,
            tuple(tubes),
            _outlook(told),
        )

    def _rows(self, answers: list[_Answer]) -> list[NodeRow]:
        rows: dict[str, NodeRow] = {}
        for answer in answers:
            if answer.status is not None:
                rows[answer.status["name"]] = _own(answer.status, answer.client.address)
        views = [answer.cluster for answer in answers if answer.cluster is not None]
        for view in sorted(views, key=lambda one: one["seen_by"] not in one["writable"]):
            for node in view["nodes"]:
                name = node["name"] or node["address"]
                rows.setdefault(name, _seen(node, name))
                if rows[name].lag is None and node["lag"] is not None and not node["writable"]:
                    rows[name] = replace(rows[name], lag=node["lag"])
        for answer in answers:
            if answer.status is None:
                address = answer.client.address
                name = self._names.get(address, address)
                rows[name] = _gone(rows.get(name), name, address, answer.problem)
        return [rows[name] for name in sorted(rows)]


def _outlook(told: list[_Answer]) -> str:
    """By the node that serves, else by any."""
    for answer in sorted(told, key=lambda a: not (a.status and a.status["writable"])):
        if answer.status is not None and (seat := answer.status.get("failover")):
            return str(seat["outlook"])
    return ""


def _ask(client: AdminClient) -> _Answer:
    answer = _Answer(client)
    try:
        answer.status, answer.cluster = client.status(), client.cluster()
    except (AdminError, AdminUnreachable) as error:
        answer.status = None
        answer.problem = str(error).removeprefix(f"admin API of {client.address}: ")
    return answer


def _tubes(told: list[_Answer]) -> tuple[str | None, list[Json]]:
    """Of the node that serves: only there calls are counted. Else of any."""
    for answer in sorted(told, key=lambda a: not (a.status and a.status["writable"])):
        found: list[Json] = []
        after: str | None = None
        try:
            while len(found) < TUBES_MAX:
                page = answer.client.tubes(after)
                found += page["tubes"]
                after = page["next"]
                if after is None:
                    break
        except (AdminError, AdminUnreachable):
            continue
        assert answer.status is not None
        return answer.status["name"], found
    return None, []


def _own(status: Json, address: str) -> NodeRow:
    term = status["term"]
    return NodeRow(
        status["name"],
        address,
        status["state"],
        status["writable"],
        term["number"] if term else None,
        status["lsn"],
        status["lag"],
        status["connections"],
        status["solo"],
        status["problem"] or (status["ro_reason"] if not status["following"] else None),
    )


def _seen(node: Json, name: str) -> NodeRow:
    problem = node["problem"] or (None if node["connected"] else "not connected")
    return NodeRow(
        name,
        node["address"],
        node["state"] or NO_STATE,
        node["writable"],
        node["term"],
        node["lsn"],
        node["lag"],
        None,
        False,
        problem,
    )


def _gone(row: NodeRow | None, name: str, address: str, problem: str) -> NodeRow:
    """It did not answer; a link of the others may still know how it is."""
    known = row is not None and row.problem is None
    state = row.state if row is not None and known else NO_STATE
    return NodeRow(
        name,
        address,
        state,
        row.writable if row is not None and known else False,
        row.term if row is not None else None,
        row.lsn if row is not None else None,
        row.lag if row is not None and known else None,
        None,
        False,
        problem,
    )


SORTS = ("name", "rate", "ready", "oldest")


def ordered(tubes: Iterable[Json], by: str) -> list[Json]:
    """By name, or the greatest first."""

    def size(tube: Json) -> Any:
        if by == "rate":
            return rate(tube)
        return tube["ready" if by == "ready" else "oldest_ready_seconds"] or 0

    named = sorted(tubes, key=lambda tube: str(tube["name"]))
    return named if by == "name" else sorted(named, key=size, reverse=True)


def rate(tube: Json) -> float:
    """Calls per second: puts, takes and acks together."""
    rates = tube["rates"]
    return 0.0 if rates is None else float(rates["put"] + rates["take"] + rates["ack"])
