"""Passwords, rights, tokens and certificates taken anew, without a restart: all of it or nothing.

Here: what of a configuration may change while a node runs, and where each part has to be told.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq_server.config import ConfigError, Settings
from tandemq_server.config.certificates import ends_of
from tandemq_server.config.credentials import read_secret
from tandemq_server.node.core.trail import Noted
from tandemq_server.node.core.users import Users
from tandemq_server.node.loop.doors import quotas_of

if TYPE_CHECKING:
    from tandemq_server.config.sections import TlsSettings
    from tandemq_server.node.main import Node
    from tandemq_server.node.observe.answers import OperationRefused, Reloaded

#: What is taken anew; of `replication` and `tls` only the keys behind them.
TOP = frozenset({"users", "roles", "guest", "admin_token_env", "admin_token_file"}) | {
    "admin_second_token_file"
}
REPLICATION = frozenset(
    {"password_env", "password_file", "second_password_file", "known_nodes", "older_peers"}
)


class Reloading:
    """Of one node. `load()` gives the configuration as a start would have it now."""

    def __init__(self, node: Node, load: Callable[[], Settings]) -> None:
        self.node = node
        self.load = load
        #: Contexts of servers and of the dialer: new handshakes show what was loaded last.
        self.contexts: list[ssl.SSLContext] = []

    def on_signal(self) -> None:
        """SIGHUP: nobody waits for an answer but the log."""
        from tandemq_server.node.observe.answers import OperationRefused

        trail = self.node.trail
        trail.reopen()
        try:
            found = self.reload()
        except OperationRefused as error:
            text = "; ".join((error.reason, *error.missing))
            trail.note(Noted("signal", "", "", "reload", outcome="refused", error=text))
        else:
            trail.note(Noted("signal", "", "", "reload", details=list(found.changed)))

    def reload(self) -> Reloaded:
        """Raises `OperationRefused` with every mistake as a blocker; then nothing has changed."""
        from tandemq_server.node.observe.answers import Reloaded

        node = self.node
        try:
            wanted = self.load()
        except ConfigError as error:
            raise self._refused(error.lines) from None
        except (OSError, ValueError) as error:
            raise self._refused([str(error)]) from None
        if fixed := _fixed(node.settings, wanted):
            raise self._refused(fixed)
        self._certificates(wanted.tls)
        gone = self._people(wanted)
        self._links(wanted)
        self._token(wanted)
        if node.backend is not None:
            node.backend.certificates = ends_of(wanted)
        changed = tuple(sorted(_changed(node.settings, wanted)))
        node.settings = node.peering.settings = wanted
        node.logger.info(
            f"reloaded: {', '.join(changed) or 'nothing has changed'}"
            + (f"; {gone} connections of users that are gone closed" if gone else "")
        )
        return Reloaded(changed, gone)

    def _refused(self, problems: list[str]) -> OperationRefused:
        for line in problems:
            self.node.logger.error(f"reload refused: {line}")
        from tandemq_server.node.observe.answers import OperationRefused

        return OperationRefused(
            "the configuration is not taken: nothing has changed", tuple(problems)
        )

    def _certificates(self, tls: TlsSettings | None) -> None:
        """Loaded once before by the checks of the configuration, so that this one succeeds."""
        if tls is None:
            return
        password = os.environ.get(tls.key_password_env or "", "")
        for context in self.contexts:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: password)
            if context.verify_mode == ssl.CERT_REQUIRED:
                context.load_verify_locations(tls.client_ca or tls.cert)

    def _people(self, wanted: Settings) -> int:
        """Who is connected stays; whose user is gone does not. How many those are."""
        core = self.node.core
        core.accounts = Users(wanted)
        core.quotas.take(quotas_of(wanted.users))
        core.forget_tables()
        names = {user.name for user in wanted.users} | {"guest"}
        gone = 0
        for connection in list(core.connections.values()):
            if connection.user not in names:
                core.close(connection, f"its user {connection.user} is gone")
                gone += 1
            elif connection.link is None:
                core.entered(connection)
        self.node.shell.ask_flush()
        return gone

    def _links(self, wanted: Settings) -> None:
        self.node.dialer.take(wanted)

    def _token(self, wanted: Settings) -> None:
        server = self.node.admin_server
        if server is not None:
            server.gate.take(*tokens_of(wanted))


def tokens_of(settings: Settings) -> tuple[str | None, str | None, str | None]:
    """The admin API's token, one that is valid as well, and the one that reads the trail."""
    first = read_secret(settings.admin_token_env, settings.admin_token_file, os.environ)
    second = read_secret(None, settings.admin_second_token_file, os.environ)
    return first, second, read_secret(None, settings.audit.token_file, os.environ)


def _fixed(now: Settings, wanted: Settings) -> list[str]:
    """What differs and needs a restart."""
    found = []
    for name in Settings.model_fields:
        one, other = getattr(now, name), getattr(wanted, name)
        if name in TOP or one == other:
            continue
        if name == "replication":
            keys = type(one).model_fields
            found += [
                f"replication.{key}"
                for key in keys
                if key not in REPLICATION and getattr(one, key) != getattr(other, key)
            ]
        elif name == "tls" and one is not None and other is not None:
            found += ["tls.min_version"] if one.min_version != other.min_version else []
            found += (
                ["tls.client_ca"] if (one.client_ca is None) != (other.client_ca is None) else []
            )
        else:
            found.append(name)
    return [f"{name}: has changed, and needs a restart" for name in found]


def _changed(now: Settings, wanted: Settings) -> list[str]:
    return [name for name in Settings.model_fields if getattr(now, name) != getattr(wanted, name)]
