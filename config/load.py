"""From flags, variables and a file to one validated value, or to one line for each mistake.

Here: reading, merging, and naming where a bad value came from. Must not be here: the schema.
"""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from tandemq_server.config import checks
from tandemq_server.config.credentials import read_secret
from tandemq_server.config.schema import ENV_PREFIX, Settings
from tandemq_server.config.sections import PasswordHash, User
from tandemq_server.config.units import ConfigError
from tandemq_server.wire.auth import chap_sha1_hash, pap_hash

Key = tuple[str | int, ...]

#: Flags whose names are not made from their keys.
FLAG_NAMES = {
    "peers": "--peer",
    "queue.ttr": "--ttr",
    "queue.in_replicaset": "--in-replicaset",
    "tls.cert": "--tls-cert",
    "tls.key": "--tls-key",
}
PLAIN_FLAGS = frozenset(
    {"name", "listen", "admin", "data_dir", "read_only", "guest", "allow_open", "wal.mode"}
    | {"log.level", "log.format"}
)
#: Variables of the command line and of container platforms that are none of the configuration's.
_OTHER_VARIABLES = re.compile(
    r"TANDEMQ_(SERVER|USER|PASSWORD|CONFIG|ADMIN_SERVER|ADMIN_TOKEN|WITNESS_\w+"
    r"|(ADMIN_)?TLS_(CA|CERT|KEY|SERVER_NAME|KEY_PASSWORD)"
    r"|(\w+_)?SERVICE_(HOST|PORT\w*)|(\w+_)?PORT(_\d+_\w+)?)"
)
_SECRET = frozenset({"password_hash", "chap_sha1", "pap_sha256"})
_SHOWN_MAX = 60
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one source. kind: flag, variable or file; `where` is the file's name."""

    kind: str
    where: str
    values: dict[str, Any]

    def depth(self, key: Key) -> int:
        """How many leading parts of `key` this source has."""
        value: Any = self.values
        for depth, part in enumerate(key):
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return depth
        return len(key)

    def at(self, key: Key) -> Any:
        """What this source has at `key`, as it was given. Raises KeyError and the like."""
        value: Any = self.values
        for part in key:
            value = value[part]
        return value

    def name(self, key: Key) -> str:
        """What a person calls the place of `key` in this source."""
        dotted = ".".join(part for part in key if isinstance(part, str))
        if self.kind == "file":
            return self.where
        if self.kind == "variable":
            return ENV_PREFIX + dotted.upper().replace(".", "__")
        if dotted in FLAG_NAMES:
            return FLAG_NAMES[dotted]
        if dotted in PLAIN_FLAGS:
            return "--" + dotted.replace(".", "-").replace("_", "-")
        return f"--set {dotted}"


def load(
    config_file: Path | str | None, flags: Mapping[str, Any], env: Mapping[str, str]
) -> Settings:
    """See `Settings.load`. Every mistake of every source is reported, not only the first."""
    layers = [Layer("flag", "", _nested(flags))]
    problems = list(_unknown_variables(env))
    layers.append(Layer("variable", "", _from_environment(env)))
    if config_file is not None:
        layers.append(Layer("file", str(config_file), _from_file(Path(config_file))))
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _merge(merged, layer.values)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        problems += [_describe(details, layers) for details in error.errors()]
        raise ConfigError(list(dict.fromkeys(problems))) from None
    for key, reason in checks.problems(settings, env):
        problems.append(f"{_origin(key, layers)}: {dotted(key)}: {reason}")
    problems += _stray_variables(settings, env)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    users = tuple(_with_hash(user, env) for user in (*settings.users, *_link_user(settings)))
    return settings.model_copy(update={"users": users})


def _link_user(settings: Settings) -> Iterator[User]:
    """Whom the peers log in as, where `users` does not name it."""
    links = settings.replication
    if settings.peers and links.user and all(user.name != links.user for user in settings.users):
        yield User(
            name=links.user,
            password_env=links.password_env,
            password_file=links.password_file,
            second_password_file=links.second_password_file,
            grants=("replication",),
        )


def _with_hash(user: User, env: Mapping[str, str]) -> User:
    """The user with hashes made of passwords that came in a variable or a file."""
    made = {}
    if (password := read_secret(user.password_env, user.password_file, env)) is not None:
        made["password_hash"] = _hashes(password)
    if (password := read_secret(None, user.second_password_file, env)) is not None:
        made["second_password_hash"] = _hashes(password)
    return user.model_copy(update=made) if made else user


def _hashes(password: str) -> PasswordHash:
    salt = secrets.token_bytes(_SALT_BYTES)
    return PasswordHash(
        chap_sha1=chap_sha1_hash(password), pap_sha256=(salt, pap_hash(password, salt))
    )


# -- sources -------------------------------------------------------------------------------------


def _nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """{"wal.mode": "write"} as {"wal": {"mode": "write"}}."""
    nested: dict[str, Any] = {}
    for key, value in flags.items():
        *sections, last = key.split(".")
        at = nested
        for section in sections:
            inner = at.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError([f"--set {key}: {key}: {section} was given a value itself"])
            at = inner
        at[last] = value
    return nested


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    ours = {name.lower(): text for name, text in env.items() if name.startswith(ENV_PREFIX)}
    if not ours:
        return {}  # and nothing is imported to find none
    from pydantic_settings import EnvSettingsSource, SettingsError

    class Variables(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
            # What has a parser of its own takes the words as they are, else it is JSON.
            own = any(isinstance(one, BeforeValidator) for one in field.metadata)
            return value if own else super().decode_complex_value(field_name, field, value)

    schema: Any = Settings
    source = Variables(schema, env_prefix=ENV_PREFIX, env_nested_delimiter="__")
    source.env_vars = ours
    try:
        values = source()
    except SettingsError as error:
        found = re.search(r'field "(\w+)"', str(error))
        key = found.group(1) if found else "?"
        raise ConfigError(
            [f"{ENV_PREFIX}{key.upper()}: {key}: is not JSON, which this key needs in a variable"]
        ) from None
    cleaned = _nulls(values)
    assert isinstance(cleaned, dict)
    return cleaned


def _nulls(value: Any) -> Any:
    """The word null in a variable stands for no value."""
    if isinstance(value, dict):
        return {key: _nulls(item) for key, item in value.items()}
    return None if value == "null" else value


def _known_variables() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        yield ENV_PREFIX + name.upper()
        section = checks.section_of(field.annotation)
        for inner in section.model_fields if section else ():
            yield f"{ENV_PREFIX}{name.upper()}__{inner.upper()}"


def _unknown_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like ours, name a section, and miss the key."""
    known = set(_known_variables())
    for name in sorted(env):
        first = name.removeprefix(ENV_PREFIX).split("__")[0].lower()
        if not name.startswith(ENV_PREFIX) or "__" not in name or name.upper() in known:
            continue
        field = Settings.model_fields.get(first)
        if field is None:
            yield f"{name}: unknown variable{_suggestion(name, known)}"


def _stray_variables(settings: Settings, env: Mapping[str, str]) -> Iterator[str]:
    """Variables that are neither ours nor named in the configuration, but nearly ours."""
    named = {variable for _key, variable in checks.secret_variables(settings)}
    if "TANDEMQ_TLS_CERT" in env and settings.tls is None:
        yield "TANDEMQ_TLS_CERT: is what commands show to a node (for a node: TANDEMQ_TLS__CERT)"
    known = set(_known_variables())
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or "__" in name or name.upper() in known:
            continue
        if name not in named and not _OTHER_VARIABLES.fullmatch(name):
            yield f"{name}: unknown variable{_suggestion(name, known)}"


def _from_file(path: Path) -> dict[str, Any]:
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 at byte {error.start}"]) from None
    import yaml

    from tandemq_server.config.yaml_once import Loader

    try:
        values = yaml.load(content, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError([f"{path}{place}: not YAML: {error.problem}"]) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError([f"{path}: not YAML: {str(error).splitlines()[0]}"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError([f"{path}: expected a map of settings, such as listen: 127.0.0.1:3301"])
    # A section all of whose lines are comments is empty, not null.
    fields = Settings.model_fields
    return {
        key: value
        for key, value in values.items()
        if value is not None or key not in fields or not checks.is_plain_section(fields[key])
    }


def _merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merge(below, value) if both and isinstance(below, dict) else value
    return merged


# -- complaints ----------------------------------------------------------------------------------


def dotted(key: Key) -> str:
    """("users", 0, "name") as users[0].name."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return shown.removeprefix(".")


def _source(key: Key, layers: list[Layer]) -> Layer:
    """The first source, in order of precedence, that says most about `key`."""
    return max(layers, key=lambda layer: layer.depth(key))


def _origin(key: Key, layers: list[Layer]) -> str:
    best = _source(key, layers)
    if best.depth(key):
        return best.name(key)
    return layers[-1].where if layers[-1].kind == "file" else "configuration"


def _describe(details: ErrorDetails, layers: list[Layer]) -> str:
    key = tuple(details["loc"])
    kind = details["type"]
    field = checks.field_at(key)
    if kind == "extra_forbidden":
        parent = checks.model_at(key[:-1])
        known = set(parent.model_fields) if parent else set()
        reason = f"unknown key{_suggestion(str(key[-1]), known)}"
    elif kind == "missing":
        reason = "is required"
    else:
        best = _source(key, layers)
        given = best.at(key) if best.depth(key) == len(key) else details["input"]
        reason = f"{_shown(key, given)}{_reason(details)}"
    extra = field.json_schema_extra if field is not None else None
    accepted = extra.get("accepted") if isinstance(extra, dict) else None
    if accepted and kind != "extra_forbidden":
        reason += f" (accepted: {accepted})"
    return f"{_origin(key, layers)}: {dotted(key)}: {reason}"


def _reason(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind in ("greater_than_equal", "less_than_equal", "greater_than", "less_than"):
        return "is out of range"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "is not a map"
    if kind in ("list_type", "tuple_type"):
        return "is not a list"
    if kind in ("literal_error", "bool_parsing", "string_pattern_mismatch", "bool_type"):
        return "is not accepted"
    if kind.startswith("string_too_"):
        return "has the wrong length"
    if kind == "string_type":
        return "is not text: put it in quotes"
    if kind.startswith("int_"):
        return "is not a whole number"
    return details["msg"].removeprefix("Input ")


def _shown(key: Key, value: Any) -> str:
    """The value as given, shortened; nothing of what might be a secret."""
    if any(part in _SECRET for part in key) or isinstance(value, dict | list | BaseModel):
        return ""
    text = (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
    if not text.isprintable() or not text or " " in text:
        text = ascii(text)
    return (text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...") + " "


def _suggestion(word: str, known: set[str]) -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
