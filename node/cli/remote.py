"""A terminal's connection to a server: where, as whom, how long, and what each failure means.

Here: connecting over the stock asyncio connector and turning its errors into ours. Must not be
here: what is asked of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
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
#: The module's own errors have one code; what to do depends on what they say.
_HINTS_BY_TEXT = {
    "does not exist": "`tandemq tubes` lists the tubes, `tandemq create` makes one",
    "Unknown tube type": "`tandemq create --help` names some; yours is set by `drivers`",
    "not taken": "--session says which session took it, as `tandemq take` printed it",
    "not found": "it is done or was never there: `tandemq list TUBE` shows what is",
}
_HINTS = {
    _NO_SUCH_CALL: "`tandemq tubes` lists the tubes, `tandemq create` makes one",
    _DENIED: "log in with --user as somebody who may, or grant the call",
    _CREDENTIALS: "check --user and --password-env",
}

Server = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="HOST:PORT,...",
        envvar="TANDEMQ_SERVER",
        help="The node; of several, separated by commas, the writable one.",
    ),
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
    """One server as one user. password: None for guest. others: where else it may be."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    others: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, server: str, user: str | None, password_env: str) -> Remote:
        """From the flags. Raises CommandError 2."""
        addresses = []
        for word in server.split(","):
            try:
                addresses.append(split_address(word))
            except ValueError as error:
                raise CommandError(f"--server: {word} {error}", USAGE) from None
        (host, port), *others = addresses
        password = None
        if user is not None:
            password = os.environ.get(password_env)
            if password is None:
                raise CommandError(
                    f"--password-env: variable {password_env} is not set",
                    USAGE,
                    f"put the password of {user} into it",
                )
        return cls(host, port, user, password, tuple(others))

    @property
    def where(self) -> str:
        """All addresses, as they were given."""
        return ",".join(f"{host}:{port}" for host, port in ((self.host, self.port), *self.others))

    async def connect(self) -> asynctnt.Connection:
        """A connection without schema and without silent reconnects.

        Of several servers to the writable one of the newest term; to the first that answers when
        none is.
        """
        if not self.others:
            return await self._connect(self.host, self.port)
        from tandemq.client.errors import TandemError
        from tandemq.client.find import find_writable

        nodes = [(self.host, self.port), *self.others]
        login = {"username": self.user, "password": self.password}
        with contextlib.suppress(TandemError):
            # Who is slow to answer is let go when the loop ends.
            return (await find_writable(nodes, login, 0, asyncio.ensure_future))[0]
        failure: Exception | None = None
        for host, port in nodes:
            try:
                return await self._connect(host, port)
            except (OSError, TimeoutError) as error:
                failure = failure or error
        assert failure is not None
        raise failure

    async def _connect(self, host: str, port: int) -> asynctnt.Connection:
        import asynctnt

        logging.getLogger("asynctnt").setLevel(logging.CRITICAL + 1)
        connection = asynctnt.Connection(
            host=host,
            port=port,
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
        from asynctnt.exceptions import TarantoolDatabaseError

        async def whole() -> T:
            connection = await self.connect()
            caller = Caller(connection)
            try:
                if session is not None:
                    await caller.call("queue.identify", _session_bytes(session))
                return await work(caller)
            except TarantoolDatabaseError as error:
                if error.code != _READ_ONLY:
                    raise
                raise CommandError(error.message, REFUSED, await _who_serves(caller)) from None
            finally:
                await connection.disconnect()

        return self.guard(lambda: asyncio.run(whole()))

    def guard(self, work: Callable[[], T]) -> T:
        """Call `work`; what the connector raises becomes one line, a hint and an exit code."""
        from asynctnt import exceptions as tnt

        where = self.where
        try:
            return work()
        except tnt.TarantoolDatabaseError as error:
            by_text = (hint for words, hint in _HINTS_BY_TEXT.items() if words in error.message)
            hint = _HINTS.get(error.code) or next(by_text, "")
            raise CommandError(error.message, REFUSED, hint) from None
        except TimeoutError:
            hint = "is a node alive there, and is that its port for clients?"
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


def remote_of(
    server: Server = DEFAULT_SERVER,
    user: UserName = None,
    password_env: PasswordEnv = "TANDEMQ_PASSWORD",
) -> Remote:
    """The flags of every command that speaks to a server (see shared.py)."""
    return Remote.of(server, user, password_env)


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


async def _who_serves(caller: Caller) -> str:
    """What to do when a node that does not serve was asked: it may know who does."""
    told = await caller.call("box.info")
    master = told["queue"].get("master")
    if master is None:
        return "no node it knows of serves: `tandemq status` tells why"
    return f"{master['name']} serves: --server {master['address']}"


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
