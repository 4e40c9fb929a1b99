"""A small client of the admin API for the command line: blocking, one connection a request.

Only the standard library; never through a proxy, never a redirect. Helpers below turn answers
into lines for people. What the commands print and how they exit is theirs. HTTP itself is imported
when something is asked: help is shown without.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tandemq.model.units import MIB
from tandemq_server.config.units import split_address
from tandemq_server.node.observe.words import why_read_only

if TYPE_CHECKING:
    import http.client
    import ssl

Json = dict[str, Any]
#: Of an answer that is read at all.
ANSWER_MAX = 16 * MIB


class AdminError(Exception):
    """The API refused. `problem` is its body (RFC 9457); str() is one line."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status = status
        self.problem = problem
        super().__init__(_one_line(status, problem))

    @property
    def kind(self) -> str:
        """The last word of the problem's type: refused, needs-force, unauthorized, ..."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def missing(self) -> list[str]:
        return [str(item) for item in self.problem.get("missing", [])]

    @property
    def loss_bound(self) -> Json | None:
        return self.problem.get("loss_bound")


class AdminUnreachable(Exception):
    """Nobody answered, or not in this protocol. str() is one line."""


class WrongNode(Exception):
    """What was typed to confirm a forced flip does not fit the node. Nothing was changed."""


def _one_line(status: int, problem: Json) -> str:
    text = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
    # What the sentence has said already is not said twice.
    missing = [str(one) for one in problem.get("missing") or () if str(one) not in text]
    if missing:
        text += " (missing: " + "; ".join(missing) + ")"
    return " ".join(text.split())


class AdminClient:
    """One node's API. address: host:port. timeout_s: for connecting and for each read."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        server_name: str | None = None,
    ) -> None:
        """`server_name`: what the certificate names, if not the host. Raises ValueError."""
        self.address = address
        self.host, self.port = split_address(address)
        self.token = token
        self.tls = tls
        self.server_name = server_name or ""
        self.timeout_s = timeout_s

    def status(self) -> Json:
        return self._ask("GET", "/v1/status")

    def cluster(self) -> Json:
        return self._ask("GET", "/v1/cluster")

    def set_read_only(self, read_only: bool, force: bool = False) -> Json:
        """The flip's result, or the operation when it is still under way (see `wait`)."""
        return self._ask("PUT", "/v1/read_only", {"read_only": read_only, "force": force})

    def switchover(self, to: str, dry_run: bool = False) -> Json:
        return self._ask("POST", "/v1/switchover", {"to": to, "dry_run": dry_run})

    def solo(self) -> Json:
        return self._ask("POST", "/v1/solo", {})

    def failover(self, action: str) -> Json:
        """pause, resume or seed."""
        return self._ask("POST", "/v1/failover", {"action": action})

    def snapshot(self) -> Json:
        return self._ask("POST", "/v1/snapshot", {})

    def tubes(self, after: str | None = None, limit: int = 200) -> Json:
        """A page of tubes by name, with their counts and rates."""
        query = {"limit": limit} if after is None else {"limit": limit, "after": after}
        return self._ask("GET", f"/v1/tubes?{urlencode(query)}")

    def metrics(self) -> str:
        """The exposition in Prometheus's text format."""
        import http.client

        connection, response = self._send("GET", "/metrics")
        try:
            raw = response.read(ANSWER_MAX)
            if response.status != 200:
                raise AdminError(response.status, _parse(raw))
            return raw.decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def probe(self, name: str) -> bool:
        """primary, replica, health, liveness or readiness: whether it answers 200."""
        connection, response = self._send("GET", f"/{name}")
        try:
            return response.status == 200
        finally:
            connection.close()

    def events(self, last_event_id: str | None = None) -> Iterator[tuple[str, str, Json]]:
        """(id, kind, data) until the node ends the stream; close the generator to leave.

        A stream silent for `timeout_s` raises `AdminUnreachable`: heartbeats come more often.
        """
        import http.client

        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        connection, response = self._send("GET", "/v1/events", headers=headers)
        try:
            if response.status != 200:
                raise AdminError(response.status, _parse(response.read(ANSWER_MAX)))
            fields: dict[str, str] = {}
            while line := response.readline(ANSWER_MAX):
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                if "data" in fields:
                    data = json.loads(fields["data"])
                    yield fields.get("id", ""), fields.get("event", ""), data
                fields = {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def wait(self, operation: Json, seconds: float, every_s: float = 0.2) -> Json:
        """The result of an operation answered with 202. Raises what it ended with.

        Raises `AdminUnreachable` when it is still under way after `seconds`, or lost sight of.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = self.status().get("operation") or {}
            if found.get("id") != operation["id"]:
                raise AdminUnreachable(f"{self.address}: another operation took over; see status")
            if found["outcome"] == "done":
                result: Json = found["result"]
                return result
            if found["outcome"] == "failed":
                problem = found["problem"]
                raise AdminError(problem["status"], problem)
            if time.monotonic() >= deadline:
                raise AdminUnreachable(f"{self.address}: not done after {seconds:g} s; see status")
            time.sleep(every_s)

    # -- HTTP ------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        import http.client

        connection, response = self._send(method, path, body)
        try:
            answer = _parse(response.read(ANSWER_MAX))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if response.status >= 300:
            raise AdminError(response.status, answer)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        import http.client

        connection: http.client.HTTPConnection
        if self.tls is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        else:
            from tandemq_server.admin.https import Https

            name = self.server_name or self.host
            connection = Https(self.host, self.port, self.timeout_s, self.tls, name)
        sent = {"Accept": "application/json, application/problem+json", **(headers or {})}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, raw, sent)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> AdminUnreachable:
        import ssl

        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not valid: {error.verify_message}"
        elif isinstance(error, ssl.SSLError):
            wrong = error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
            reason = "speaks no TLS" if wrong else f"TLS failed: {error.reason}"
        elif self.tls is None and isinstance(error, ConnectionResetError):
            reason = "ended the connection without a word: if it speaks TLS, give --tls-ca"
        elif isinstance(error, OSError) and error.errno and error.errno > 0:
            reason = os.strerror(error.errno)
        return AdminUnreachable(f"admin API of {self.address}: {reason}")


def _parse(raw: bytes) -> Json:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("the answer is not an object")
    return value


# -- what the commands are made of -----------------------------------------------------------------


def is_under_way(answer: Json) -> bool:
    """Whether an answer is an operation (202) rather than a result."""
    return answer.get("outcome") == "under_way"


def flip(
    client: AdminClient,
    read_only: bool,
    *,
    force_lsn: int | None = None,
    wait_s: float = 60.0,
    tell: Callable[[str], None] = lambda _line: None,
) -> Json:
    """`tandemq role`: flip one node and wait for it.

    force_lsn: force, having typed the LSN that this node's status shows, so that the wrong node is
    not forced by a slip. Raises `WrongNode`, `AdminError`, `AdminUnreachable`.
    """
    if force_lsn is not None:
        status = client.status()
        if status["lsn"] != force_lsn:
            raise WrongNode(
                f"{status['name']} is at LSN {status['lsn']}, not {force_lsn}: nothing was changed"
            )
    answer = client.set_read_only(read_only, force=force_lsn is not None)
    return _finish(client, answer, wait_s, tell)


def switch(
    client: AdminClient,
    to: str,
    *,
    dry_run: bool = False,
    wait_s: float = 120.0,
    tell: Callable[[str], None] = lambda _line: None,
) -> Json:
    """`tandemq switchover`: the planned flip of both nodes, and wait for it."""
    return _finish(client, client.switchover(to, dry_run), wait_s, tell)


def _finish(client: AdminClient, answer: Json, wait_s: float, tell: Callable[[str], None]) -> Json:
    if not is_under_way(answer):
        return answer
    tell(f"{answer['kind']} is under way after {answer['seconds']:.1f} s")
    return client.wait(answer, wait_s)


def status_rows(status: Json) -> list[tuple[str, str]]:
    """`tandemq status`: what one node says of itself, as (name, value)."""
    term = status["term"]
    rows = [
        ("node", f"{status['name']} ({status['node_id']})"),
        ("is", status["summary"]),
        ("state", status["state"] + (", writable" if status["writable"] else ", read-only")),
        ("term", "none" if term is None else f"{term['number']} of {term['node']}"),
        ("LSN", f"{status['lsn']} (committed {status['commit_lsn']})"),
        ("log", f"{status['wal_mode']}, acknowledged {status['ack']}{_promise(status)}"),
        ("lag", lag_text(status["lag"])),
        ("clients", f"{status['connections']} connections, {status['sessions']} sessions"),
    ]
    optional = {
        "why read-only": why_read_only(status["ro_reason"]),
        "solo": "this node goes on alone" if status["solo"] else None,
        "failover": _failover(status.get("failover")),
        "rescue files": status["rescue_files"] or None,
        "promotion": (
            "as the original: after twice the lag, without proof (compat.promotion)"
            if status.get("promotion") == "original"
            else None
        ),
        "problem": status["problem"],
    }
    rows.extend((name, str(value)) for name, value in optional.items() if value is not None)
    return rows


def _failover(told: Json | None) -> str | None:
    """Whose the seat is, and what would happen now."""
    if told is None:
        return None
    if not told["master"]:
        return told["outlook"]  # type: ignore[no-any-return]
    partner = f"{told['partner']} may be promoted" if told["partner"] else "nobody may be promoted"
    return f"seat {told['no']} of {told['master']}, {partner}; {told['outlook']}"


def _promise(status: Json) -> str:
    """What an acknowledgement stands for, where that is not the node's own mode."""
    promise = status["promise"]
    return "" if promise == status["wal_mode"] else f", which promises {promise}"


def cluster_rows(cluster: Json) -> list[tuple[str, str, str, str, str]]:
    """One row a node: name, state, term, LSN, lag or what is wrong."""
    rows = []
    for node in cluster["nodes"]:
        name = (node["name"] or node["address"]) + (" (here)" if node["here"] else "")
        state = (node["state"] or "unknown") + (" *" if node["writable"] else "")
        last = node["problem"] or ("" if node["connected"] else "not connected")
        rows.append(
            (name, state, _text(node["term"]), _text(node["lsn"]), last or lag_text(node["lag"]))
        )
    return rows


def loss_text(bound: Json | None) -> str:
    """What a forced promotion would give up, in one sentence."""
    if bound is None:
        return "nothing is lost"
    if bound["records"] is None:
        return f"how much may be lost is not known: {bound['detail']}"
    if not bound["records"] and bound["known"]:
        return f"nothing acknowledged is missing here{bound['detail'].removeprefix('nothing')}"
    least = "at most" if bound["known"] else "perhaps more than"
    return f"{least} {bound['records']} records may be lost: {bound['detail']}"


def lag_text(lag: Json | None) -> str:
    if lag is None:
        return "none known"
    return f"{lag['records']} records, {lag['bytes']} bytes, {lag['seconds']:.1f} s"


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
