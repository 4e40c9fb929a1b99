"""A terminal's connection to a server: where, as whom, how long, and what each failure means.

Here: connecting over the stock asyncio connector and turning its errors into ours. Must not be
here: what is asked of the server.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tandemq.client.flags import TlsCa, TlsCert, TlsKey, TlsServerName
from tandemq.client.tls import Tls
from tandemq_server.cli.output import NOTHING, REFUSED, UNREACHABLE, USAGE, CommandError, note
from tandemq_server.config.units import parse_seconds, split_address

if TYPE_CHECKING:
    import asynctnt

T = TypeVar("T")
DEFAULT_SERVER = "127.0.0.1:3301"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
_READ_ONLY, NO_SUCH_CALL, DENIED, _CREDENTIALS = 7, 33, 42, 47
#: The module's own errors have one code; what to do depends on what they say.
_HINTS_BY_TEXT = {
    "does not exist": "`tandemq tubes` lists the tubes, `tandemq create` makes one",
    "Unknown tube type": "`tandemq create --help` names some; yours is set by `drivers`",
    "not taken": "--session says which session took it, as `tandemq take` printed it",
    "not found": "it is done or was never there: `tandemq list TUBE` shows what is",
}
_HINTS = {
    NO_SUCH_CALL: "`tandemq tubes` lists the tubes, `tandemq create` makes one",
    DENIED: "log in with --user as somebody who may, or grant the call",
    _CREDENTIALS: "check --user and --password-env",
}

Server = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="HOST:PORT,...",
        envvar="TANDEMQ_SERVER",
        help="The node, or several separated by commas: then the one that serves.",
    ),
]
UserName = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        envvar="TANDEMQ_USER",
        help="User to log in as; guest unless given.",
    ),
]
PasswordEnv = Annotated[
    str, typer.Option("--password-env", metavar="VARIABLE", help="Variable with the password.")
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
    tls: Tls | None = None

    @classmethod
    def of(cls, server: str, user: str | None, password_env: str, tls: Tls | None = None) -> Remote:
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
        return cls(host, port, user, password, tuple(others), tls)

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
        import asyncio

        from tandemq.client.errors import TandemError
        from tandemq.client.find import find_writable

        nodes = [(self.host, self.port), *self.others]
        login = {"username": self.user, "password": self.password}
        with contextlib.suppress(TandemError):
            # Who is slow to answer is let go when the loop ends.
            return (await find_writable(nodes, login, 0, asyncio.ensure_future, self.tls))[0]
        failure: Exception | None = None
        for host, port in nodes:
            try:
                return await self._connect(host, port)
            except (OSError, TimeoutError) as error:
                failure = failure or error
        assert failure is not None
        raise failure

    async def find_leader(self, asked: asynctnt.Connection) -> asynctnt.Connection | None:
        """The node that serves, where the one asked knows of one that answers so; else None."""
        import asyncio

        from asynctnt.exceptions import TarantoolDatabaseError

        from tandemq.client.errors import TandemError
        from tandemq.client.find import find_writable

        try:
            info = (await asked.call("box.info", [], timeout=ANSWER_SECONDS)).body[0]
        except TarantoolDatabaseError:
            return None
        master = info["queue"].get("master")
        if master is None:
            return None
        nodes = [(self.host, self.port), *self.others, split_address(master["address"])]
        login = {"username": self.user, "password": self.password}
        try:
            found, address, _ = await find_writable(
                list(dict.fromkeys(nodes)), login, 0, asyncio.ensure_future, self.tls
            )
        except TandemError:
            return None
        note(f"{info['name']} does not serve: went on at {address}")
        return found

    async def _connect(self, host: str, port: int) -> asynctnt.Connection:
        import asyncio
        import logging

        from tandemq.client.dial import StockConnection, greeted
        from tandemq.client.errors import TlsRefused

        logging.getLogger("asynctnt").setLevel(logging.CRITICAL + 1)
        try:
            if self.tls is None:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await greeted(host, port)
            connection = StockConnection(
                self.tls.dialling() if self.tls is not None else None,
                host=host,
                port=port,
                username=self.user,
                password=self.password,
                connect_timeout=CONNECT_SECONDS,
            )
            await connection.connect()
        except TlsRefused as error:
            raise CommandError(str(error), UNREACHABLE, error.todo) from None
        except EOFError:
            raise ConnectionResetError(errno.ECONNRESET, "") from None
        except ValueError as error:
            raise CommandError(str(error), USAGE) from None
        return connection

    def run(self, work: Callable[[Caller], Awaitable[T]], session: str | None = None) -> T:
        """Connect, move to `session` (hex) if given, work, disconnect. Raises CommandError."""
        import asyncio

        from asynctnt.exceptions import TarantoolDatabaseError

        async def whole() -> T:
            caller = Caller(await self.connect(), self.find_leader, session)
            try:
                if session is not None:
                    await caller.call("queue.identify", _session_bytes(session))
                return await work(caller)
            except TarantoolDatabaseError as error:
                if error.code != _READ_ONLY:
                    raise
                raise CommandError(error.message, REFUSED, await _who_serves(caller)) from None
            finally:
                await caller.connection.disconnect()

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
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> Remote:
    """The flags of every command that speaks to a server (see shared.py)."""
    tls = tls_given(tls_ca, tls_cert, tls_key, tls_server_name)
    return Remote.of(server, user, password_env, tls)


def tls_given(
    ca: str | None, cert: str | None, key: str | None, server_name: str | None
) -> Tls | None:
    """As the flags and variables say. Raises CommandError 2."""
    try:
        return Tls.of(ca, cert, key, server_name)
    except ValueError as error:
        raise CommandError(f"--tls-ca: {error}", USAGE) from None


class Caller:
    """Calls over one connection, to the node that serves once a call needs that."""

    def __init__(
        self,
        connection: asynctnt.Connection,
        find: Callable[[asynctnt.Connection], Awaitable[asynctnt.Connection | None]] | None = None,
        session: str | None = None,
    ) -> None:
        """`find`: the way to the node that serves; `session`: hex, to be joined wherever it is."""
        self.connection = connection
        self._find = find
        self._session = session

    async def join_session(self) -> None:
        """Become the session that was named, if one was."""
        if self._session is not None:
            await self._ask("queue.identify", [_session_bytes(self._session)])

    async def call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """The first value a call returned, None for none. `wait`: how long it may well take.

        Refused by a node that does not serve, it changed nothing, and is made at the one that does.
        """
        from asynctnt.exceptions import TarantoolDatabaseError

        try:
            return await self._ask(name, args, wait)
        except TarantoolDatabaseError as error:
            find, self._find = self._find, None
            found = await find(self.connection) if error.code == _READ_ONLY and find else None
            if found is None:
                raise
        left, self.connection = self.connection, found
        await left.disconnect()
        if name != "queue.identify":
            await self.join_session()
        return await self._ask(name, args, wait)

    async def _ask(self, name: str, args: Iterable[Any], wait: float = 0.0) -> Any:
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
