"""The reference of all commands, docs/cli.md: read off the tree of commands itself.

Explanations are docs/_site/cli.md. Must not be here: what a command is for; its docstring says so.
`python -m tandemq_server.cli.document TEMPLATE` prints the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

MARK, SHARED_MARK = "{{ commands }}", "{{ shared flags }}"
#: Flags that many commands have are explained once: (title, a command that has them, the flags).
_TLS = ("--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name")
SHARED = (
    ("Client flags", "put", ("--server", "--user", "--password-env", *_TLS)),
    ("Admin API flags", "status", ("--admin", "--token-env", *_TLS)),
    ("Flags of Spark", "pipeline history", ("--master", "--memory")),
)
#: Arguments that the template explains once.
KNOWN = {"DIR": "A node's data directory.", "PATH...": "Data directories and archives."}
#: Its flags are another parser's.
ELSEWHERE: dict[str, str] = {}


def tree() -> Any:
    """The whole tree, the commands of rooms above this one included."""
    import typer

    from tandemq_server.cli.app import app

    return typer.main.get_command(app)


def commands(group: Any, path: str = "tandemq") -> Iterator[tuple[str, Any]]:
    """(words, command) of everything that can be run; groups last."""
    found = [(name, group.get_command(None, name)) for name in group.list_commands(None)]
    for name, command in sorted(found, key=lambda one: hasattr(one[1], "commands")):
        if command.hidden:
            continue
        words = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, words)
        else:
            yield words, command


def page(template: str) -> str:
    """The template with its marks replaced. Raises ValueError when one is missing."""
    for mark in (MARK, SHARED_MARK):
        if mark not in template:
            raise ValueError(f"the template has no {mark}")
    panels: dict[str, list[tuple[str, str]]] = {}
    group = tree()
    named = dict(commands(group))
    shared = {title: _shared(named[f"tandemq {name}"], flags) for title, name, flags in SHARED}
    for words, command in named.items():
        top = group.commands[words.split()[1]]
        same = _same(words, command, group)
        section = (same, "") if same else _section(words, command, shared)
        panels.setdefault(top.rich_help_panel or "Others", []).append(section)
    found = [f"## {name}\n\n" + _panel(sections) for name, sections in panels.items()]
    told = [f"### {title}\n\n{_list(_once(rows))}" for title, rows in shared.items()]
    template = template.replace(SHARED_MARK, "\n".join(told).rstrip("\n"))
    return template.replace(MARK, "\n".join(found).rstrip("\n"))


def _list(rows: Iterable[str]) -> str:
    return "\n".join([*rows, ""])


def _shared(command: Any, flags: tuple[str, ...]) -> dict[str, str]:
    """The rows of these flags by flag."""
    rows = {one.opts[0]: _row(one) for one in command.params}
    return {flag: rows[flag] for flag in flags}


def _once(rows: dict[str, str]) -> Iterator[str]:
    """The rows, those of the admin API's TLS in one: the client's say what the flags are."""
    alike = [flag for flag in rows if "TANDEMQ_ADMIN_TLS" in rows[flag]]
    yield from (row for flag, row in rows.items() if flag not in alike)
    if alike:
        names = ", ".join(f"`{flag}`" for flag in alike)
        yield f"* {names}: as above, `$TANDEMQ_ADMIN_TLS_CA` and so on."


def _rest(rows: list[str], shared: dict[str, dict[str, str]], has_json: bool) -> str:
    """A line for what other commands have, too; takes those rows out of `rows`."""
    said = []
    for title, known in shared.items():
        same = {flag for flag, row in known.items() if row in rows}
        if len(same) < min(len(_TLS), len(known)):
            continue
        rows[:] = [row for row in rows if row not in known.values()]
        own = [flag for flag in known if flag not in same]
        present = [flag for flag in own if any(row.startswith(f"* `{flag} ") for row in rows)]
        but = "".join(f" (not `{flag}`)" for flag in own if flag not in present)
        link = f"{title[0].lower()}{title[1:]}](#{title.lower().replace(' ', '-')})"
        said.append(f"{'the other ' if present else ''}[{link}{but}")
    if has_json:
        said.append("`--json`")
    return f"Also {', '.join(said)}." if said else ""


def _panel(sections: list[tuple[str, str]]) -> str:
    """Its commands; what most of them have beside their own flags is said once, above them."""
    rests = [rest for _, rest in sections if rest]
    common = max(rests, key=rests.count, default="")
    if rests.count(common) < max(3, len(sections) / 2):
        common = ""
    told = common.removeprefix("Also ").removesuffix(".")
    lines = [f"Each also has {told}, unless it says otherwise.\n"] if common else []
    for text, rest in sections:
        lines.append(text)
        if rest and rest != common:
            lines.append(f"{rest}\n")
        elif not rest and common and "The same as" not in text:
            lines.append("No flags shared with others.\n")
    return "\n".join(lines)


def _section(words: str, command: Any, shared: dict[str, dict[str, str]]) -> tuple[str, str]:
    """What there is to say of a command, and the line on flags it shares with others."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    lines = [f"### {words}", ""]
    if arguments:
        lines += [f"`{' '.join(_argument(one) for one in arguments)}`", ""]
    lines += [_text(command.help or ""), ""]
    if words.removeprefix("tandemq ") in ELSEWHERE:
        return "\n".join([*lines, ELSEWHERE[words.removeprefix("tandemq ")], ""]), ""
    has_json = any("--json" in one.opts for one in command.params)
    rows = [row for one in command.params if "--json" not in one.opts and (row := _row(one))]
    rest = _rest(rows, shared, has_json)
    if rows:
        lines += [_list(rows)]
    return "\n".join(lines), rest


def _same(words: str, command: Any, group: Any) -> str:
    """What stands for a command of a group that is one of the top, too; "" for any other."""
    other = group.commands.get(words.split()[-1])
    if len(words.split()) < 3 or other is None or hasattr(other, "commands"):
        return ""
    if (other.help, [one.name for one in other.params]) != (
        command.help,
        [one.name for one in command.params],
    ):
        return ""
    there = f"tandemq {other.name}"
    return f"### {words}\n\nThe same as [`{there}`](#{there.replace(' ', '-')}).\n"


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any) -> str:
    """An item of the list; nothing for --help and for arguments that explain themselves."""
    if parameter.name == "help":
        return ""
    if parameter.param_type_name == "argument":
        name = _argument(parameter).strip("[]")
        if not parameter.help or parameter.help == KNOWN.get(name):
            return ""
    else:
        name = "/".join([*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            name += f" {_value(parameter)}"
    text = _text(parameter.help or "")
    if default := _default(parameter):
        text += f" Default {default}."
    if parameter.envvar:
        text += f" `${parameter.envvar}`."
    if parameter.multiple and "repeat" not in text:
        text += " Repeatable."
    if getattr(parameter, "required", False) and parameter.param_type_name == "option":
        text += " Required."
    return f"* `{name}`: {' '.join(text.split())}"


def _value(parameter: Any) -> str:
    """What stands behind a flag. Where its type is found depends on the parser's version."""
    kind = getattr(parameter, "type", None)
    described = getattr(parameter, "type_descriptor", None)
    annotation = described.annotation if described is not None else None
    choices = getattr(kind, "choices", None) or get_args(annotation)
    if choices and all(isinstance(one, str) for one in choices):
        return "/".join(choices)
    number = annotation in (int, float) or getattr(kind, "name", "")[:3] in ("int", "flo")
    return str(parameter.metavar or ("N" if number else "VALUE"))


def _default(parameter: Any) -> str:
    value = parameter.default
    if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        return ""
    return f"`{value}`" if str(value) else ""


def _text(text: str) -> str:
    """Paragraphs as they are, lines joined."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1]).read_text(encoding="utf-8")))
