"""A configuration against this machine: what it says, its ports, its peers, its limits."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandemq_server.config import ConfigError, Settings
from tandemq_server.config.units import split_address
from tandemq_server.doctor.directory import holder
from tandemq_server.doctor.findings import Finding, Level
from tandemq_server.node.cluster.sharing import unkept

CONNECT_SECONDS = 3.0
#: Descriptors a node needs besides its connections: files, links, the admin API.
FILES_BESIDES = 64
_GREETING = b"Tarantool"


class ConfigExam:
    """Iterate over findings. `settings` is there afterwards, None when it cannot be used."""

    def __init__(self, file: Path | None, flags: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.file = file
        self.flags, self.env = flags, env
        self.where = str(file) if file is not None else "configuration"
        self.settings: Settings | None = None

    def _found(self, check: str, level: Level, text: str, todo: str = "") -> Finding:
        return Finding(self.where, check, level, text, todo)

    def __iter__(self) -> Iterator[Finding]:
        try:
            self.settings = settings = Settings.load(self.file, self.flags, self.env)
        except ConfigError as error:
            for line in error.lines:
                todo = "`tandemq config schema` lists every setting with its range"
                line = line.removeprefix(f"{self.file}: ")
                yield self._found("configuration", "error", line, todo)
            return
        yield self._found("configuration", "ok", f"node {settings.name} can start with it")
        yield from self._secrets(settings)
        if settings.admin is None:
            yield self._found(
                "admin API", "warning", "is off: no status, no probes, no metrics", "set admin"
            )
        yield from self._sharing(settings)
        running = holder(settings.data_dir) is not None
        yield from self._ports(settings, running)
        for address in settings.peers:
            yield self._peer(address)
        yield self._files(settings)

    def _secrets(self, settings: Settings) -> Iterator[Finding]:
        if self.file is None or not any(user.password_hash for user in settings.users):
            return
        if self.file.stat().st_mode & stat.S_IROTH:
            yield self._found(
                "permissions",
                "warning",
                "every user of this machine may read the password hashes in it",
                f"chmod o-r {self.file}",
            )

    def _sharing(self, settings: Settings) -> Iterator[Finding]:
        """With peers both settings are on unless said otherwise: then by whom it may be meant."""
        said = settings.queue.model_fields_set
        ttr = settings.queue.ttr if "ttr" in said else 1.0
        shared = settings.queue.in_replicaset if "in_replicaset" in said else True
        if settings.peers and (loose := unkept(ttr, shared)):
            todo = "leave queue.ttr and queue.in_replicaset out: with peers both are on"
            yield self._found("tasks in hand", "warning", loose, todo)

    def _ports(self, settings: Settings, running: bool) -> Iterator[Finding]:
        named = {
            "listen": settings.listen,
            "admin": settings.admin,
            "listen_queue15": settings.listen_queue15,
        }
        for key, address in named.items():
            if address is None or split_address(address)[1] == 0:
                continue
            yield self._answers(key, address) if running else self._bindable(key, address)

    def _bindable(self, key: str, address: str) -> Finding:
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((host, port))
            except OSError as error:
                todo = {
                    errno.EADDRINUSE: f"`ss -ltnp sport = :{port}` shows by whom; or change {key}",
                    errno.EACCES: f"ports below 1024 need a right: change {key}",
                }.get(error.errno or 0, f"is {host} an address of this machine?")
                reason = os.strerror(error.errno) if error.errno else str(error)
                return self._found("port", "error", f"{key} {address}: {reason}", todo)
        return self._found("port", "ok", f"{key} {address} is free")

    def _answers(self, key: str, address: str) -> Finding:
        problem = reached(address, greets=key != "admin")
        if problem is None:
            return self._found("port", "ok", f"{key} {address} answers")
        todo = "the node runs, but not with this configuration? Restart it, or see its log"
        return self._found("port", "error", f"{key} {address}: {problem}", todo)

    def _peer(self, address: str) -> Finding:
        problem = reached(address, greets=True)
        if problem is None:
            return self._found("peer", "ok", f"{address} answers")
        todo = "start that node, or fix the network, the firewall, or peers"
        return self._found("peer", "warning", f"{address}: {problem}", todo)

    def _files(self, settings: Settings) -> Finding:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = settings.limits.connections_max + FILES_BESIDES
        text = f"{soft} allowed here, {wanted} wanted by limits.connections_max"
        if soft != resource.RLIM_INFINITY and soft < wanted:
            todo = f"LimitNOFILE={wanted} in the unit, `ulimit -n {wanted}` in a shell"
            return self._found("open files", "warning", text, todo)
        return self._found("open files", "ok", text)


def reached(address: str, greets: bool) -> str | None:
    """None when something listens at `address`, and greets as a node does; else what is wrong."""
    try:
        with socket.create_connection(split_address(address), CONNECT_SECONDS) as made:
            made.settimeout(CONNECT_SECONDS)
            if greets and not made.recv(64).startswith(_GREETING):
                return "what answers there is no node, or speaks TLS"
    except TimeoutError:
        return f"no answer within {CONNECT_SECONDS:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return None
