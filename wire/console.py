"""What a person's console sends by EVAL, and the text it wants back.

`tarantoolctl connect` and the console of a stock Tarantool send a line as an argument, `tt connect`
a program around it; both want the values as YAML. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from tandemq_server.wire.constants import ERROR_FLAG, KEY_DATA, KEY_ERROR_TEXT
from tandemq_server.wire.replies import values_reply

_QUOTED: Final = ('require("console")', "require('console')")
#: What `tt connect` asks first: a title of its own for the prompt.
_TITLE: Final = "local ok, api_topology = pcall(require"
#: What a console may ask to be set, since it is so.
_AS_IT_IS: Final = (r"\set language lua", r"\set output yaml")
#: Bytes of a reply before its body, and where its code stands (see wire/replies.py).
_BODY_AT: Final = 28
_CODE: Final = slice(8, 12)
LINE_CHARS_MAX: Final = 65_536
_SEQUENCE: Final = "tag:yaml.org,2002:seq"


def line_of(text: str, args: list[Any]) -> str | None:
    """The line a console wants evaluated; None when the text is no console's."""
    if not args or type(args[0]) is not str or len(args[0]) > LINE_CHARS_MAX:
        return None
    bare = text.strip().removeprefix("return").strip()
    if any(bare == f"{console}.eval(...)" for console in _QUOTED):
        return args[0]
    wraps = "require('yaml')" in text and any(f"{console}.eval(" in text for console in _QUOTED)
    if wraps and not (len(args) > 1 and args[1] is True):
        return args[0]
    return None


def title_of(text: str) -> str | None:
    """The answer to a console that asks what to call the server; None for any other text."""
    return "" if text.startswith(_TITLE) else None


def completes(text: str) -> bool:
    """Whether `tt connect` asks what the word before the cursor may become: nothing we know."""
    return any(f"{console}.completion_handler(" in text for console in _QUOTED)


def housekeeping(line: str) -> list[Any] | None:
    """Values for lines consoles send on their own: how input ends, what a word may become."""
    bare = line.strip().removeprefix("return").strip()
    if " ".join(bare.split()) in _AS_IT_IS:
        return [True]
    for console in _QUOTED:
        if bare.startswith(f"{console}.delimiter("):
            return []
        if bare.startswith(f"{console}.completion_handler("):
            return [[]]
    return None


def opened(reply: bytes) -> tuple[int, Any]:
    """(0, values) or (code, text) of an encoded reply of ours."""
    code = int.from_bytes(reply[_CODE], "big")
    body = msgpack.unpackb(reply[_BODY_AT:], strict_map_key=False, unicode_errors="surrogateescape")
    if code & ERROR_FLAG:
        return code & ~ERROR_FLAG, body[KEY_ERROR_TEXT]
    return 0, body.get(KEY_DATA, [])


def as_text(sync: int, reply: bytes) -> bytes:
    """The reply a console gets in place of `reply`: the same values, or the error, as YAML."""
    code, found = opened(reply)
    return text_reply(sync, [{"error": found}] if code else found)


def text_reply(sync: int, values: Sequence[Any]) -> bytes:
    """Values as the one text a console prints."""
    import yaml

    if not values:
        return values_reply(sync, ["---\n...\n"])

    class Dumper(yaml.SafeDumper):
        """Values below each other, each list of them in one line, as consoles print tuples."""

    def below(dumper: Any, shown: Any) -> Any:
        return dumper.represent_sequence(_SEQUENCE, shown, flow_style=False)

    def in_line(dumper: Any, shown: Any) -> Any:
        return dumper.represent_sequence(_SEQUENCE, shown, flow_style=True)

    Dumper.add_representer(tuple, below)
    Dumper.add_representer(list, in_line)
    text = yaml.dump(
        tuple(_shown(value) for value in values),
        Dumper=Dumper,
        default_flow_style=False,
        allow_unicode=True,
        explicit_start=True,
        explicit_end=True,
        sort_keys=False,
        width=1000,
    )
    return values_reply(sync, [text])


def _shown(value: Any) -> Any:
    """What YAML can say: strings that are none are shown as the bytes they are."""
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape")
        return value
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    return str(value)
