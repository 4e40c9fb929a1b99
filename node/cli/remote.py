"""A terminal's connection to a server: where, as whom, how long, and what each failure means.

Here: connecting over the stock asyncio connector and turning its errors into ours. Must not be
here: what is asked of the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from node.cli.output import NOTHING, REFUSED, UNREACHABLE, USAGE, CommandError
from node.config.units import parse_seconds, split_address

if TYPE_CHECKING:
    import asynctnt

T = TypeVar("T")
DEFAULT_SERVER = "127.0.0.1:3301"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
_READ_ONLY, _NO_SUCH_CALL, _DENIED, _CREDENTIALS = 7, 33, 42, 47
_HINTS = {
    _READ_ONLY: "this node does not serve: name the master with --server",
    _NO_SUCH_CALL: "`tandemq tubes` lists the tubes, `tandemq create` makes one",
    _DENIED: "log in with --user as somebody who may, or grant the call",
    _CREDENTIALS: "check --user and --password-env",
}

Server = Annotated[
    str, typer.Option("--server", metavar="HOST:PORT", envvar="TANDEMQ_SERVER", help="The node.")
]
UserName = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", envvar="TANDEMQ_USER", help="Log in; else guest."),
]
PasswordEnv = Annotated[
    str, typer.Option("--password-env", metavar="VARIABLE", help="Where the password is.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document a line.")]


def seconds(text: str, flag: str) -> float:
    """A duration given to a flag. Raises CommandError for anything but 0 or more."""
    try:
        value = parse_seconds(text)
    except ValueError as error:
        raise CommandError(f"{flag}: {text} {error}", USAGE) from None
    if value < 0:
        raise CommandError(f"{flag}: {text} is out of range (accepted: 0s or more)", USAGE)
    return value


@dataclass(frozen=True, slots=True)
class Remote:
    """One server as one user. password: None for guest."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, server: str, user: str | None, password_env: str) -> Remote:
        """From the flags. Raises CommandError 2."""
        try:
            host, port = split_address(server)
        except ValueError as error:
            raise CommandError(f"--server: {server} {error}", USAGE) from None
        if user is None:
            return cls(host, port)
        password = os.environ.get(password_env)
        if password is None:
            raise CommandError(
                f"--password-env: variable {password_env} is not set",
                USAGE,
                f"put the password of {user} into it",
            )
        return cls(host, port, user, password)

    async def connect(self) -> asynctnt.Connection:
        """A connection without schema and without silent reconnects."""
        import asynctnt

        logging.getLogger("asynctnt").setLevel(logging.CRITICAL + 1)
        connection = asynctnt.Connection(
            host=self.host,
            port=self.port,
            username=self.user,
            password=self.password,
            fetch_schema=False,
            auto_refetch_schema=False,
            reconnect_timeout=0,
            connect_timeout=CONNECT_SECONDS,
        )
        await connection.connect()
        return connection

    def run(self, work: Callable[[Caller], Awaitable[T]], session: str | None = None) -> T:
        """Connect, move to `session` (hex) if given, work, disconnect. Raises CommandError."""

        async def whole() -> T:
            connection = await self.connect()
            try:
                caller = Caller(connection)
                if session is not None:
                    await caller.call("queue.identify", _session_bytes(session))
                return await work(caller)
            finally:
                await connection.disconnect()

        return self.guard(lambda: asyncio.run(whole()))

    def guard(self, work: Callable[[], T]) -> T:
        """Call `work`; what the connector raises becomes one line, a hint and an exit code."""
        from asynctnt import exceptions as tnt

        where = f"{self.host}:{self.port}"
        try:
            return work()
        except tnt.TarantoolDatabaseError as error:
            hint = _HINTS.get(error.code, "")
            raise CommandError(error.message, REFUSED, hint) from None
        except TimeoutError:
            hint = "is a node alive there?"
            raise CommandError(f"{where}: no answer in time", UNREACHABLE, hint) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CommandError(
                f"{where}: {reason}",
                UNREACHABLE,
                "start a node with `tandemq serve`, or name one with --server",
            ) from None
        except tnt.TarantoolError as error:
            raise CommandError(
                f"{where}: connection lost: {error}",
                UNREACHABLE,
                "nobody can say whether the last request counted: look before repeating it",
            ) from None


class Caller:
    """Calls over one connection."""

    def __init__(self, connection: asynctnt.Connection) -> None:
        self.connection = connection

    async def call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """The first value a call returned, None for none. `wait`: how long it may well take."""
        answer = await self.connection.call(name, list(args), timeout=wait + ANSWER_SECONDS)
        return answer.body[0] if answer.body else None

    async def session(self) -> str:
        """This connection's session, hex."""
        uuid = await self.call("queue.identify")
        return (uuid if isinstance(uuid, bytes) else str(uuid).encode()).hex()


def _session_bytes(session: str) -> bytes:
    try:
        data = bytes.fromhex(session.replace("-", ""))
    except ValueError:
        data = b""
    if len(data) != 16:
        raise CommandError(
            f"--session: {session} is not 32 hex digits", USAGE, "`tandemq take` prints it"
        )
    return data


def nothing(text: str, hint: str = "") -> CommandError:
    """There is nothing there, or not in time."""
    return CommandError(text, NOTHING, hint)
