"""EVAL without Lua: the expressions that connectors, their pools and wrappers send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.compat_client import Raw, refusal

# Played in order on one tube `e` (fifottl). A value compares whole; a type is all that is asked.
STEPS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("", (), []),
    ("queue = require('queue')", (), []),
    ("local ok, mod = pcall(require, 'queue') return ok", (), [True]),
    ("local name, type, cfg = ... ; queue.create_tube(name, type, cfg)", ("e", "fifottl", {}), []),
    ("queue.create_tube('e', 'fifottl', {if_not_exists = true})", (), []),
    ("local name = ... ; return queue.tube[name] ~= nil", ("e",), [True]),
    ("return queue.tube.e ~= nil", (), [True]),
    ("return queue.tube.nope ~= nil", (), [False]),
    ("return queue.tube['e']:put('x', {ttl = 60.5, pri = 1})", (), [[0, "r", "x"]]),
    ("queue.tube.e:put({1, 2, 'three'}, {['pri'] = 2})", (), []),
    ("return queue.tube.e:put(...)", ("y", {"pri": 3}), [[2, "r", "y"]]),
    ("return queue.tube.e:take(.001)", (), [[0, "t", "x"]]),
    ("return queue.tube.e:ack(0)", (), [[0, "-", "x"]]),
    ("return queue.tube.e:take()", (), [[1, "t", [1, 2, "three"]]]),
    ("return queue.tube.e:kick(5)", (), [0]),
    ("return queue.state()", (), ["RUNNING"]),
    ("return queue._VERSION", (), ["1.5.0"]),
    ("return queue.statistics('e')", (), dict),
    ("return queue.stats()", (), dict),
    ("return queue.identify()", (), str),
    ("return queue.tube()", (), list),
    ("return box.info", (), dict),
    ("return box.info.status", (), ["running"]),
    ("return box.info().ro", (), [False]),
    ("return box.cfg.listen", (), str),
    ("return box.session.id()", (), int),
    ("return _TARANTOOL", (), str),
    ("local name = ... queue.create_tube(name, 'fifo', {}) return true", ("e2",), [True]),
    (
        "local name = ... if queue.tube[name] ~= nil then queue.tube[name]:drop() end return true",
        ("e2",),
        [True],
    ),
    ("return queue.tube.e2 ~= nil", (), [False]),
]


def test_expressions(raw: Raw) -> None:
    for text, args, expected in STEPS:
        answer = raw.eval(text, *args)
        if isinstance(expected, type):
            assert len(answer) == 1, text
            assert isinstance(answer[0], expected), text
        else:
            assert answer == expected, text


@pytest.mark.parametrize(
    "text",
    [
        "return os.execute('true')",
        "return 1 + 1",
        "for i = 1, 10 do queue.tube.e:put(i) end",
        "box.space._queue:select()",
        "return queue.tube.e:put(",
        "(" * 10_000,
        "return '" + "x" * 100_000,
        "\x00",
    ],
)
def test_anything_else_is_refused(raw: Raw, text: str) -> None:
    error = refusal(lambda: raw.eval(text))
    assert error.code == 32
    assert error.text
    assert len(error.text) < 1000, "a refusal does not repeat what it was sent"
    raw.ping()


def test_wrappers_find_the_words_they_look_for(raw: Raw) -> None:
    error = refusal(lambda: raw.eval("return queue.tube['zzz']:take(0)"))
    assert (error.code, error.text) == (32, "attempt to index field 'zzz' (a nil value)")
