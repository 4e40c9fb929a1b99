"""The configuration's reference, made from the schema: for people (Markdown), for editors (JSON).

Here: rendering. Must not be here: any fact that the schema does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tandemq_server.config.checks import is_plain_section, section_of
from tandemq_server.config.load import Layer
from tandemq_server.config.schema import ENV_PREFIX, Settings
from tandemq_server.config.units import show_bytes, show_seconds

_INTRODUCTION = """\
# Configuration

Made from the schema by `make docs`; do not edit. `tandemq config schema --format json` gives JSON
Schema for editors, `tandemq config check FILE` checks a file.

Each key stands with its default, what else is accepted, and its meaning.

A value comes from the first source that has one: a flag of `tandemq serve`, a `TANDEMQ_*` variable,
the YAML file named with `--config`, the default. A setting without a flag can be given as
`--set KEY=VALUE`. In variables two underscores join the parts of a key: `TANDEMQ_WAL__MODE=write`.
Lists and maps in a variable are JSON; `peers` and `guest` also take words separated by commas.
`null`, no value, is accepted wherever it is the default; `_env` ends the keys that take the name of
a variable, `_file` those that take a file. A secret's file holds one line; keep it at mode 600.

Sizes are `1048576`, `64KiB`, `1MiB`, `1GiB` (binary) or `kB`, `MB`, `GB` (decimal), durations
seconds (`5`, `0.5`) or `500ms`, `5s`, `2m`, `1h30m`, `1d`. Everything is checked before anything
is touched; each mistake is one line, and the exit code is 2.

```yaml
name: a
listen: 127.0.0.1:3301
data_dir: /var/lib/tandemq
wal: {mode: fsync}
users:
  - name: worker
    password_hash: {chap_sha1: "..."}      # tandemq hash-password
    grants: ["queue.tube.jobs:*", "queue.identify"]
tubes:
  - {name: jobs, type: fifottl, options: {ttr: 60}}
```

Rights are patterns over call names (`*` matches anything): `queue.tube.jobs:put`,
`queue.tube.*:*`, `queue.*`, `box.snapshot`, `box.cfg`, and `space:NAME` for reading a space. Tube
and call are matched separately: `queue.tube.jobs:*` gives no right on a tube called `jobs:more`.
`grant` and `revoke` pass on rights: a pattern with a `:` must name them, `queue.tube.jobs:grant`.
Calls of queue15 may be allowed for all spaces, `queue15.put`, or for one, `queue15.space0:put`.
"""


def markdown() -> str:
    """The whole reference."""
    lines = [_INTRODUCTION, "## Top level", "", *_list(Settings, "")]
    told: dict[type[BaseModel], str] = {}
    for name, field in Settings.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            continue
        prefix = name if not str(field.annotation).startswith("tuple") else f"{name}[]"
        lines += ["", f"## {name}", "", field.description or "", "", *_list(section, prefix)]
        for inner_name, inner in section.model_fields.items():
            part = section_of(inner.annotation)
            if part is None:
                continue
            key = f"{prefix}.{inner_name}"
            if part in told:
                lines += ["", f"`{key}` has the keys of `{told[part]}`."]
                continue
            told[part] = key
            if is_plain_section(inner):
                lines += ["", inner.description or ""]
            lines += ["", *_list(part, key)]
    return "\n".join(lines) + "\n"


def _list(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if is_plain_section(field):
            continue
        if not prefix and section_of(field.annotation) is not None and not _accepted(field):
            continue
        key = f"{prefix}.{name}" if prefix else name
        default = f"{_default(field)}{_besides(field, name)}"
        yield f"* {_names(key)}: {default}. {field.description}"


def _names(key: str) -> str:
    """The key, and its flag if it has one."""
    flag = Layer("flag", "", {}).name(tuple(key.split(".")))
    return f"`{key}`" if flag.startswith("--set") else f"`{key}`, `{flag}`"


def _besides(field: FieldInfo, name: str) -> str:
    """What is accepted, in brackets, where default and name do not say so."""
    accepted = _accepted(field)
    if field.default is None:
        accepted = accepted.removesuffix(", null")
    if isinstance(field.default, bool) or name.endswith(("_env", "_file")):
        return ""
    return f" ({accepted})" if accepted else ""


def _accepted(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    accepted = extra.get("accepted") if isinstance(extra, dict) else None
    return str(accepted) if accepted else ""


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else None
    if value is PydanticUndefined or value is ...:
        return "required"
    if value is None:
        return "`null`"
    if unit == "bytes":
        return f"`{show_bytes(value)}`"
    if unit == "seconds":
        return f"`{show_seconds(value)}`"
    if value == () and "none" in _accepted(field):
        return "`none`"
    if isinstance(value, Path):
        value = str(value)
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a configuration file, for editors."""
    made = Settings.model_json_schema()
    for part in (made, *made.get("$defs", {}).values()):
        for field in part.get("properties", {}).values():
            unit = field.pop("unit", None)
            _accept_text(field, unit is not None)
    guest = made["properties"]["guest"]
    made["properties"]["guest"] = {
        "anyOf": [{"enum": ["none", "all"]}, {k: guest[k] for k in ("type", "items")}],
        **{key: guest[key] for key in ("description", "accepted")},
    }
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = f"Tandem configuration (variables: {ENV_PREFIX}*)"
    return made


def _accept_text(field: dict[str, Any], human: bool) -> None:
    """Bounds by their names in JSON Schema; sizes and durations may be written as text too."""
    for option in [field, *field.get("anyOf", [])]:
        for ours, theirs in (("ge", "minimum"), ("le", "maximum")):
            if ours in option:
                option[theirs] = option.pop(ours)
        if human and option.get("type") in ("integer", "number"):
            option["type"] = [option["type"], "string"]
