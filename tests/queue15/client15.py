"""Calls of queue15 by a stock connector over a socket."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import tarantool
from tarantool.error import DatabaseError

Connect = Callable[..., tarantool.Connection]
HEX = re.compile(r"[0-9a-f]{32}")
MISSING = "f" * 32
META = (
    *("id", "tube", "status", "event", "ipri", "pri", "cid"),
    *("created", "ttl", "ttr", "cbury", "ctaken", "now"),
)


class Client:
    """Calls on space 0 by one connection, in a tube of the test's own."""

    def __init__(self, connection: tarantool.Connection, tube: str | None = None) -> None:
        self.connection = connection
        self.tube = tube or f"t{uuid.uuid4().hex}"

    def __call__(self, name: str, *args: Any) -> Any:
        """The one value of a reply, None for an empty one, `! text` for an error."""
        try:
            data = self.connection.call(f"queue.{name}", list(args)).data
        except DatabaseError as error:
            assert error.args[0] in (32, 36), error.args
            return f"! {error.args[1]}"
        assert len(data) <= 1
        return data[0] if data else None

    def put(self, *data: Any, pri: Any = 0, name: str = "put", **times: Any) -> str:
        given = [times.get(option, 0) for option in ("delay", "ttl", "ttr")]
        reply = self(name, 0, self.tube, *given, pri, *data)
        assert HEX.fullmatch(reply[0]), reply
        return str(reply[0])

    def take(self, timeout: Any = 0) -> Any:
        return self("take", 0, self.tube, timeout)

    def in_state(self, state: str) -> str:
        """A fresh task of this connection in that state."""
        ident = self.put("x", delay=1000 if state == "delayed" else 0)
        if state in ("taken", "buried", "done"):
            assert self.take()[0] == ident
        if state in ("buried", "done"):
            self("bury" if state == "buried" else "done", 0, ident, *["x"] * (state == "done"))
        assert self("peek", 0, ident)[2] == state
        return ident

    def counters(self) -> dict[str, int]:
        """The statistics of this tube by short name."""
        flat = self("statistics", 0, self.tube)
        names = [name.removeprefix(f"space0.{self.tube}.") for name in flat[::2]]
        return dict(zip(names, map(int, flat[1::2]), strict=True))

    def meta(self, ident: str) -> dict[str, Any]:
        return dict(zip(META, self("meta", 0, ident), strict=True))
