"""The reference of all calls, docs/calls.md: what the call table knows, and a line for each.

Names, rights and who answers on a replica are read off a node's own table; arguments and answers
stand here, beside it. Explanations are docs/_site/calls.md. Must not be here: behaviour.
`python -m tandemq_server.cli.call_reference TEMPLATE` prints the page.
A call without a line is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tandemq_server.engine import admin, grants
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import FACADES, KNOWN
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity

#: What the rim adds to the core's table: it alone reaches disk and role.
RIM = ("box.snapshot", "box.cfg")
_SAMPLE = {
    "NAME": (
        "xqueue",
        {
            "format": [{"name": "id", "type": "string"}, {"name": "status", "type": "string"}],
            "fields": {"status": "status"},
        },
    ),
    "TUBE": ("fifottl", {}),
}


class Text(NamedTuple):
    """What the table does not know of a call."""

    arguments: str
    answers: str


#: Page section -> call without its prefix -> text, None where the section's own page has it.
#: `TUBE` and `NAME` stand for a tube's name.
TEXTS: dict[str, dict[str, Text | None]] = {
    "tasks": {
        "put": Text(
            "data [, {ttl, ttr, pri, delay, utube, timeout, key, window, headers}]",
            'the task `[id, "r" or "~", data]`; nil when a full limfifottl (or a tube with '
            '`overflow = "wait"`) had no room within `timeout`',
        ),
        "take": Text(
            "[timeout [, {token = true, info = true}]]",
            'the task `[id, "t", data]`, nothing after `timeout`; without a timeout it waits for '
            "ever",
        ),
        "ack": Text("id [, {token = T}]", 'the task `[id, "-", data]`'),
        "release": Text(
            "id [, {delay, token = T, reason}]",
            "the task, ready or delayed; or given up, see [tube options](tube-options.md)",
        ),
        "touch": Text(
            "id, increment [, {token = T}]", "the task; nothing for an increment of 0 or less"
        ),
        "bury": Text("id [, {token = T, reason}]", "the task, buried"),
        "kick": Text("[count = 1]", "how many buried tasks became ready"),
        "delete": Text("id", 'the task `[id, "-", data]`'),
        "peek": Text("id", "the task as it is"),
        "info": Text(
            "id",
            "a map of all that is known of a task, see "
            "[tube options](tube-options.md#attempts-and-dead-letters)",
        ),
        "list": Text(
            "[{state, utube, older_than, younger_than, limit, after, info}]",
            "`{tasks, cursor}`, see "
            "[tube options](tube-options.md#looking-through-a-tube-and-changes-in-bulk)",
        ),
        "bulk": Text(
            '"kick", "delete" or "move" [, {state, utube, older_than, younger_than, limit, after, '
            "dry_run, to}]",
            "`{count, cursor}`",
        ),
        "redrive": Text(
            "[count = 10000 [, {to = TUBE}]]",
            "how many dead letters went back to where they came from, or to another tube",
        ),
        "finish": Text(
            "id, [[tube, data] or [tube, data, options], ...] [, {token = T}]",
            "the new ids, in order",
        ),
    },
    "batches": {
        "put_many": Text(
            "[[data] or [data, options], ...] [, options for all]", "the ids, in order"
        ),
        "take_many": Text(
            "count [, timeout = 0 [, {token = true, info = true}]]",
            "an array of tasks; with a timeout it waits for a first one",
        ),
        "ack_many": Text("[id or [id, token], ...]", "how many it was"),
        "release_many": Text("[id or [id, token], ...] [, {delay}]", "how many it was"),
    },
    "tubes": {
        "queue.create_tube": Text(
            "name, type [, options]", "a description: name, tube_id, type, temporary, opts"
        ),
        "queue.alter_tube": Text(
            "name, options",
            "a description; what is left out stays, nil is the default again; see "
            "[tube options](tube-options.md#altering-a-tube)",
        ),
        "alter": Text("options", "the same, of this tube"),
        "queue.tube": Text("[name]", "all names, or whether there is one"),
        "truncate": Text("", "nothing; tasks are gone, ids start at 0"),
        "release_all": Text("", "nothing; every taken task is ready"),
        "pause": Text(
            '["puts" or "takes"]',
            "a map: whether `puts` and `takes` are paused now; see "
            "[tube options](tube-options.md#pausing)",
        ),
        "resume": Text('["puts" or "takes"]', "likewise"),
        "drop": Text("", "true; refused while tasks are taken or consumers wait"),
        "grant": Text("user [, {call, truncate, manage, prefix}]", "nothing"),
        "grant_role": Text("a role, the same", "nothing"),
        "revoke": Text("user [, {call, truncate, manage}]", "how many rights were taken back"),
        "revoke_role": Text("a role, the same", "how many rights were taken back"),
        "on_task_change": Text("", "always an error: name a function in the configuration"),
        "queue.statistics": Text("[name]", "counts of tasks by state and of calls"),
        "queue.stats": Text("[name]", "the same"),
        "queue.register_driver": Text("", "always an error: name a class in the configuration"),
    },
    "node": {
        "queue.identify": Text("[uuid]", "the session's UUID, 16 bytes"),
        "queue.lost": Text(
            "timeout [, [[tube, id, token], ...]]",
            "those of the tasks named that the session no longer holds, `[tube, id, token, why]`; "
            "else it waits until one is taken from it, by a delete, an operator or its ttr",
        ),
        "tandem.rescue_replay": Text(
            "name, tasks", "nothing: who replays a cut is in the audit trail, and who was refused"
        ),
        "queue.state": Text("", "`INIT` `STARTUP` `RUNNING` `ENDING` or `WAITING`"),
        "queue.cfg": Text(
            "{ttr, in_replicaset}",
            "nothing; what is left out stays as it is; a replica applies it when it serves next",
        ),
        "box.info": Text(
            "",
            "a map: version, uuid, ro, status, lsn, ...; in `queue` the `master`, name and address",
        ),
        "box.broadcast": Text(
            "key, value", "nothing; who watches the key on this node is told (64 KiB at most)"
        ),
        "box.cfg": Text("{read_only = true or false}", "nothing; the node's role changes"),
        "box.snapshot": Text("", '`"ok"` once a snapshot is on disk'),
        "box.session.id": Text("", "the number of the connection"),
        "box.session.user": Text("", "the name of the user"),
        "tandem.import": Text(
            "tube, source, tuples ...", "what `tandemq import` sends; not for other programs"
        ),
        "tandem.import_state": Text("source", "how far an import is"),
    },
    "xqueue": dict.fromkeys(
        [
            "xqueue.upgrade",
            "put",
            "take",
            "ack",
            "release",
            "bury",
            "touch",
            "dig",
            "kick",
            "kill",
            "wait",
            "stats",
            "truncate",
            "drop",
            "get",
            "select",
            "len",
            "count",
        ]
    ),
    "queue15": dict.fromkeys(
        [
            "put",
            "urgent",
            "put_unique",
            "take",
            "ack",
            "release",
            "requeue",
            "bury",
            "done",
            "touch",
            "dig",
            "unbury",
            "kick",
            "delete",
            "truncate",
            "peek",
            "meta",
            "statistics",
            "statistic",
            "restart_check",
            "create_space",
        ]
    ),
}
_RIGHTS = ("call", "truncate", "manage")
_PREFIXES = {"xqueue": "box.space.NAME:", "queue15": "queue15."}


class _Nobody:
    """Accounts of a node that nobody talks to."""

    def may(self, user: str, call: str) -> bool:
        return False

    def grantees(self, user: str) -> tuple[str, ...]:
        return ()

    def dialect(self, user: str) -> str | None:
        return None

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return False

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        return ()

    def guest_may(self) -> bool:
        return True


def table() -> Core:
    """A node's core with one tube of each family: its `handlers` are the call table.

    A user named like each option of `grant` was granted just that on the tube TUBE.
    """
    engine = Engine(KNOWN, lambda: bytes(16), lambda text, error=None: None)
    core = Core(engine, Identity("", "", ""), ClientBounds(), _Nobody(), facades=FACADES)
    engine.start()
    for name, (kind, options) in _SAMPLE.items():
        admin.create_tube(engine, name, kind, options)
    for option in _RIGHTS:
        grants.grant(engine, engine.tubes["TUBE"], option, {option: True})
    return core


def documented() -> dict[str, tuple[str, Text | None]]:
    """Whole name of every call in TEXTS -> its section and text."""
    found = {}
    for section, texts in TEXTS.items():
        prefix = _PREFIXES.get(section, "queue.tube.TUBE:")
        for name, text in texts.items():
            found[name if "." in name else prefix + name] = (section, text)
    return found


def undocumented(core: Core) -> list[str]:
    """Calls of the table without a line here, and lines without a call."""
    # A tube of records has a few calls under the other prefix as well; the names are the same.
    ours = {name for name in core.handlers if not name.startswith("queue.tube.NAME:")}
    return sorted(ours.union(RIM) ^ documented().keys())


def _right(core: Core, name: str) -> str:
    """The option of `grant` that gives the right, or nothing: then only the configuration does."""
    found = [option for option in _RIGHTS if (option, name) in core.engine.grants.rows]
    return f"`{found[0]}`" if found else ""


def rows(core: Core, section: str) -> Iterator[str]:
    """The Markdown table of one section.

    A list of names for a section whose calls have no text here.
    """
    found = [(name, text) for name, (where, text) in documented().items() if where == section]
    calls = [(name, text) for name, text in found if text is not None]
    if not calls:
        yield ", ".join(f"`{name}`" for name, _ in found) + "."
        return
    yield "| Call | Arguments | Answers | Who |"
    yield "|---|---|---|---|"
    for name, text in calls:
        who = [_right(core, name), "replica" if core.serves_always(name) else ""]
        told = ", ".join(word for word in who if word)
        yield f"| `{name}` | {text.arguments} | {text.answers} | {told} |"


def markdown(template: str) -> str:
    """The page: the template with `{{ section }}` replaced by that section's table.

    Raises ValueError when texts and call table differ, or a section is not on the page.
    """
    core = table()
    missing = undocumented(core)
    if missing:
        raise ValueError(f"node/call_reference.py and the call table differ: {', '.join(missing)}")
    for section in TEXTS:
        mark = f"{{{{ {section} }}}}"
        if mark not in template:
            raise ValueError(f"the template has no {mark}")
        template = template.replace(mark, "\n".join(rows(core, section)))
    return template


if __name__ == "__main__":
    sys.stdout.write(markdown(Path(sys.argv[1]).read_text(encoding="utf-8")))
