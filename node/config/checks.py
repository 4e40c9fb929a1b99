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

from drivers import KNOWN
from node.config.schema import Settings
from node.config.units import is_loopback

Problem = tuple[tuple[str | int, ...], str]
_SECRET_FIELDS = (
    ("admin_token_env",),
    ("replication", "password_env"),
    ("tls", "key_password_env"),
)


def problems(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    """Everything that is wrong although each value alone is right."""
    yield from _network(settings)
    yield from _replication(settings)
    yield from _people(settings)
    yield from _tubes(settings)
    yield from _limits(settings)
    yield from _memory(settings)
    for key, variable in secret_variables(settings):
        if variable not in env:
            yield key, f"variable {variable} is not set"
    if settings.tls is not None:
        try:
            settings.tls.context(env)
        except (OSError, ValueError) as error:
            yield ("tls",), f"certificate or key does not serve: {error}"
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
        for name in ("admin_token_env", "tls"):
            if getattr(settings, name) is None:
                yield ("admin",), f"off loopback {settings.admin} needs {name}"


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
    if replication.password_env is not None and replication.user is None:
        yield ("replication", "password_env"), "needs replication.user"
    if replication.lease <= replication.heartbeat:
        yield ("replication", "lease"), "must be longer than replication.heartbeat"


def _people(settings: Settings) -> Iterator[Problem]:
    for name in _twice(user.name for user in settings.users):
        yield ("users",), f"{name} is given twice"
    for number, user in enumerate(settings.users):
        if user.name == "guest":
            yield ("users", number, "name"), "guest has no password: use the key guest"
        if (user.password_hash is None) == (user.password_env is None):
            yield ("users", number), "needs either password_hash or password_env"
        for role in user.roles:
            if role not in settings.roles:
                yield ("users", number, "roles"), f"{role} is not one of roles"


def _tubes(settings: Settings) -> Iterator[Problem]:
    for name in _twice(tube.name for tube in settings.tubes):
        yield ("tubes",), f"{name} is given twice"
    for name in settings.drivers:
        if name in KNOWN:
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
