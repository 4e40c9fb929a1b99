"""Rules between settings, and finding one's way in the schema.

Each rule yields (key, reason); the loader adds where the value came from.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tandemq.model.rights import ROLE
from tandemq_server.config import credentials
from tandemq_server.config.schema import Settings
from tandemq_server.config.units import is_loopback
from tandemq_server.drivers import BUILT_IN, RESERVED

Problem = tuple[tuple[str | int, ...], str]
_SECRET_FIELDS = (
    ("admin_token_env",),
    ("replication", "password_env"),
    ("tls", "key_password_env"),
    ("failover", "etcd", "password_env"),
    ("failover", "witness", "token_env"),
)


def problems(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    """Everything that is wrong although each value alone is right."""
    yield from _network(settings)
    yield from _replication(settings)
    yield from _failover(settings)
    yield from _arbiters(settings)
    yield from _people(settings)
    yield from _tubes(settings)
    yield from _limits(settings)
    yield from _memory(settings)
    for key, variable in secret_variables(settings):
        if variable not in env:
            yield key, f"variable {variable} is not set"
    for file_key, file in credentials.files(settings):
        try:
            credentials.read_secret(None, file, env)
        except OSError as error:
            yield file_key, f"{file} cannot be read: {error.strerror or error}"
        except ValueError as error:
            yield file_key, f"{file} {error}"
    if settings.admin_token_env is not None and settings.admin_token_file is not None:
        yield ("admin_token_file",), "is given beside admin_token_env"
    if settings.tls is not None:
        try:
            settings.tls.context(env)
        except (OSError, ValueError) as error:
            yield ("tls",), f"certificate or key cannot be used: {error}"
    if settings.data_dir.exists() and not settings.data_dir.is_dir():
        yield ("data_dir",), f"{settings.data_dir} is not a directory"


def secret_variables(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The variables that secrets are to be read from."""
    for path in _SECRET_FIELDS:
        value: Any = settings
        for part in path:
            value = getattr(value, part, None)
        if value is not None:
            yield path, value
    for number, user in enumerate(settings.users):
        if user.password_env is not None:
            yield ("users", number, "password_env"), user.password_env


def _network(settings: Settings) -> Iterator[Problem]:
    listeners = [(settings.listen, settings.listen_host)]
    if settings.queue15_address is not None and settings.listen_queue15 is not None:
        listeners.append((settings.listen_queue15, settings.queue15_address[0]))
        if settings.queue15_address[1] and settings.listen_queue15 == settings.listen:
            yield ("listen_queue15",), f"{settings.listen} is already the address of listen"
    reachable = [address for address, host in listeners if not is_loopback(host)]
    if reachable and "*" in settings.guest and not settings.allow_open:
        yield (
            ("guest",),
            f"all is refused on {reachable[0]}, which other machines can reach: "
            "name users, or set allow_open",
        )
    if settings.admin_address is None:
        return
    host, port = settings.admin_address
    for name, address in (
        ("listen", (settings.listen_host, settings.listen_port)),
        ("listen_queue15", settings.queue15_address),
    ):
        if port and (host, port) == address:
            yield ("admin",), f"{settings.admin} is already the address of {name}"
    if not is_loopback(host):
        if settings.admin_token_env is None and settings.admin_token_file is None:
            yield ("admin",), f"off loopback {settings.admin} needs admin_token_env"
        if settings.tls is None:
            yield ("admin",), f"off loopback {settings.admin} needs tls"


def _replication(settings: Settings) -> Iterator[Problem]:
    replication = settings.replication
    for peer in _twice(settings.peers):
        yield ("peers",), f"{peer} is given twice"
    if settings.listen_port and settings.listen in settings.peers:
        yield ("peers",), f"{settings.listen} is this node itself"
    if settings.peers and settings.wal.mode == "none":
        yield ("peers",), "need a log to follow: set wal.mode to write or fsync"
    if replication.ack == "pair" and not settings.peers:
        yield ("replication", "ack"), "pair needs at least one of peers"
    given = [n for n in ("password_env", "password_file") if getattr(replication, n) is not None]
    if len(given) > 1:
        yield ("replication", "password_file"), "is given beside replication.password_env"
    if given and replication.user is None:
        yield ("replication", given[0]), "needs replication.user"
    elif settings.peers and replication.user is None:
        yield ("replication", "user"), "is required with peers: nobody follows as guest"
    elif settings.peers and not given:
        yield ("replication", "password_file"), "or password_env is required with peers"
    if replication.user == "guest":
        yield ("replication", "user"), "guest has no password: name a user"
    if replication.lease <= replication.heartbeat:
        yield ("replication", "lease"), "must be longer than replication.heartbeat"


def _failover(settings: Settings) -> Iterator[Problem]:
    failover = settings.failover
    if failover.silence <= failover.heartbeat:
        yield ("failover", "silence"), "must be longer than failover.heartbeat"
    if failover.arbiter is None:
        return
    if not settings.peers:
        yield ("failover", "arbiter"), "needs at least one of peers"
    if failover.cluster is None:
        yield ("failover", "arbiter"), "needs failover.cluster, the same name on all nodes"
    if settings.name == Settings.model_fields["name"].default:
        yield ("failover", "arbiter"), "needs a name of this node's own: set name"
    local = settings.replication.ack == "local"
    if local and failover.max_loss_records is None:
        yield (
            ("failover", "arbiter"),
            "with replication.ack local a takeover can lose acknowledged records: set "
            "failover.max_loss_records, or ack pair",
        )
    if settings.compat.promotion == "original":
        yield ("compat", "promotion"), "original and failover.arbiter exclude each other"


def _arbiters(settings: Settings) -> Iterator[Problem]:
    etcd, witness = settings.failover.etcd, settings.failover.witness
    for key, section, variable, file in (
        ("etcd", etcd, "password_env", "password_file"),
        ("witness", witness, "token_env", "token_file"),
    ):
        if getattr(section, variable) is not None and getattr(section, file) is not None:
            yield ("failover", key, file), f"{variable} is given too: one of them"
    if (etcd.user is None) != (etcd.password_env is None and etcd.password_file is None):
        yield ("failover", "etcd", "user"), "user and password go together"
    if (etcd.certificate is None) != (etcd.key is None):
        yield ("failover", "etcd", "certificate"), "certificate and key go together"
    for number, url in enumerate(etcd.endpoints):
        if url.startswith("http:") and (etcd.ca or etcd.certificate):
            yield ("failover", "etcd", "endpoints", number), "ca and certificate need https"
    if witness.url.startswith("http:") and witness.ca:
        yield ("failover", "witness", "url"), "ca needs https"


def _people(settings: Settings) -> Iterator[Problem]:
    for name in _twice(user.name for user in settings.users):
        yield ("users",), f"{name} is given twice"
    for number, user in enumerate(settings.users):
        if user.name == "guest":
            yield ("users", number, "name"), "guest has no password: use the key guest"
        if user.name.startswith(ROLE):
            yield ("users", number, "name"), f"must not begin with {ROLE}, as grants to roles do"
        given = (user.password_hash, user.password_env, user.password_file)
        if sum(one is not None for one in given) != 1:
            yield ("users", number), "needs either password_hash, password_env or password_file"
        if user.second_password_hash is not None and user.second_password_file is not None:
            yield ("users", number, "second_password_file"), "is given beside second_password_hash"
        for role in user.roles:
            if role not in settings.roles:
                yield ("users", number, "roles"), f"{role} is not one of roles"


def _tubes(settings: Settings) -> Iterator[Problem]:
    for name in _twice(tube.name for tube in settings.tubes):
        yield ("tubes",), f"{name} is given twice"
    for name in settings.drivers:
        if name in BUILT_IN or name in RESERVED:
            yield ("drivers", name), "is the name of a built-in driver"
    for number, tube in enumerate(settings.tubes):
        if settings.queue.in_replicaset and tube.options.get("temporary"):
            yield (
                ("tubes", number, "options"),
                "temporary and queue.in_replicaset exclude each other",
            )


def _limits(settings: Settings) -> Iterator[Problem]:
    limits = settings.limits
    if limits.payload_bytes_max > limits.frame_bytes_max:
        yield ("limits", "payload_bytes_max"), "must not exceed limits.frame_bytes_max"
    if limits.payload_bytes_max > limits.output_bytes_max:
        yield ("limits", "payload_bytes_max"), "must not exceed limits.output_bytes_max"


def _memory(settings: Settings) -> Iterator[Problem]:
    high, most = settings.memory.high, settings.memory.max
    if high is None or most is None or high.endswith("%") != most.endswith("%"):
        return
    if float(high.rstrip("%")) > float(most.rstrip("%")):
        yield ("memory", "high"), "must not exceed memory.max"


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


# -- the schema ----------------------------------------------------------------------------------


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model behind an annotation such as Tls | None or tuple[User, ...], None for others."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, tuple, Annotated):
        for inner in get_args(annotation):
            found = section_of(inner)
            if found is not None:
                return found
    return None


def is_plain_section(field: FieldInfo) -> bool:
    """Whether a field is a section that is always there."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def model_at(key: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model whose field names may follow `key`."""
    model: type[BaseModel] | None = Settings
    for part in key:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part) if model is not None else None
        model = section_of(field.annotation) if field is not None else None
    return model


def field_at(key: tuple[str | int, ...]) -> FieldInfo | None:
    """The field `key` leads to, or the one that holds it (an item of a list)."""
    names = [part for part in key if isinstance(part, str)]
    for length in range(len(names), 0, -1):
        parent = model_at(tuple(names[: length - 1]))
        if parent is not None and names[length - 1] in parent.model_fields:
            return parent.model_fields[names[length - 1]]
    return None
