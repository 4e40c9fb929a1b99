"""`connect`, and the client it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from tandemq.client.find import addresses
from tandemq.client.link import MasterLink
from tandemq.client.tls import Tls, tls_of
from tandemq.client.tube import Tube


class Client:
    """A session with a cluster; `async with connect(...) as client:` or `await client.close()`."""

    def __init__(self, link: MasterLink, timeout: float) -> None:
        self.link = link
        self.timeout = timeout

    @property
    def node(self) -> str:
        """`host:port` of the node last found writable, empty before the first call."""
        return self.link.node

    @property
    def session(self) -> bytes | None:
        """The session's UUID, 16 bytes; None before the first call."""
        return self.link.session

    def tube(self, name: str, **options: Any) -> Tube:
        """A tube by name; nothing is asked of the server. Options as of Tube."""
        return Tube(self.link, name, **{"timeout": self.timeout, **options})

    async def create_tube(self, name: str, kind: str = "fifottl", **options: Any) -> Tube:
        """Make a tube unless there is one. Options as of `queue.create_tube`, see also
        docs/tube-options.md. Raises Refused (a wrong option, or there is one of another type or
        with other options), Unavailable, Unknown.
        """
        options.setdefault("if_not_exists", True)
        await self.call("queue.create_tube", name, kind, options, repeat=options["if_not_exists"])
        return self.tube(name)

    async def alter_tube(self, name: str, **options: Any) -> dict[str, Any]:
        """Change options of a tube, None for the default again: its description. Repeated until
        known. Raises TubeMissing, Refused (an option that is wrong or cannot change), Unavailable.
        """
        found: dict[str, Any] = (await self.call("queue.alter_tube", name, options, repeat=True))[0]
        return found

    async def statistics(self, tube: str) -> dict[str, dict[str, int]]:
        """`tasks` by state and `calls` by name. Raises Refused, Unavailable, Unknown."""
        found: dict[str, dict[str, int]] = (await self.call("queue.statistics", tube, repeat=True))[
            0
        ]
        return found

    async def call(self, name: str, *args: Any, repeat: bool = False) -> list[Any]:
        """Any call of docs/calls.md. `repeat`: it may be sent again when unanswered."""
        return await self.link.call(name, list(args), self.timeout, repeat=repeat)

    async def close(self) -> None:
        """Disconnect. Tasks in hand stay taken for the session's ttr."""
        await self.link.close()

    async def __aenter__(self) -> Client:
        try:
            await self.call("queue.state", repeat=True)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def connect(
    servers: str = "127.0.0.1:3301",
    *,
    user: str | None = None,
    password: str | None = None,
    session: bytes | None = None,
    timeout: float = 30.0,
    on_switch: Callable[[str], None] | None = None,
    tls: Tls | Mapping[str, str] | None = None,
) -> Client:
    """A client for the nodes `host:port,host:port`; connects with the first call.

    `timeout`: seconds a call may take, switch-overs included. `session`: 16 bytes, to join one that
    exists. `on_switch`: told one line whenever another node became the writable one. `tls`: a Tls,
    or a map of its fields; None is without. Raises ValueError for wrong addresses or options.
    """
    secure = tls_of(tls)
    if secure is not None:
        secure.dialling()  # wrong files are told at once
    link = MasterLink(addresses(servers), user, password, session, on_switch, secure)
    return Client(link, timeout)
