"""EVAL texts: every form clients are known to send, how each is understood, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.errors import QueueError
from tandemq_server.wire import lua
from tandemq_server.wire.evaluate import (
    QUEUE_VERSION,
    BoxInfo,
    CallFunction,
    DropIfExists,
    Evaluation,
    Nothing,
    TubeExists,
    Value,
    understand,
)


def call(name: str, *args: Any, returns: bool = True, answer: tuple[Any, ...] = ()) -> CallFunction:
    return CallFunction(name, list(args), returns, answer)


def method(
    tube: str, name: str, *args: Any, returns: bool = True, answer: tuple[Any, ...] = ()
) -> CallFunction:
    return CallFunction(f"queue.tube.{tube}:{name}", list(args), returns, answer, tube)


CASES: list[tuple[str, list[Any], Evaluation]] = [
    # go-tarantool
    (
        "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)",
        ["q", "fifo", {"ttl": 1.5}],
        call("queue.create_tube", "q", "fifo", {"ttl": 1.5}, returns=False),
    ),
    (
        "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)",
        ["q", "fifo"],
        call("queue.create_tube", "q", "fifo", None, returns=False),
    ),
    ("local name = ... ; return queue.tube[name] ~= nil", ["q"], TubeExists("q")),
    ("return box.cfg.listen", [], BoxInfo(("cfg", "listen"))),
    # methods of a tube
    ("queue.tube.q:put('x')", [], method("q", "put", "x", returns=False)),
    ("return queue.tube.q:put('x')", [], method("q", "put", "x")),
    ("return queue.tube['a b.c']:take(.001)", [], method("a b.c", "take", 0.001)),
    ('return queue.tube["q"]:ack(...)', [7], method("q", "ack", 7)),
    (
        "return queue.tube.q:put(...)",
        [{"a": [1]}, {"pri": 1}],
        method("q", "put", {"a": [1]}, {"pri": 1}),
    ),
    ("return queue.tube[...]:take(0)", ["q", 5], method("q", "take", 0)),
    (
        "return queue.tube.q:release(3, {delay = 60.0})",
        [],
        method("q", "release", 3, {"delay": 60}),
    ),
    (
        "return queue.tube.q:put({1, 'b', {['k k']=nil, x=-1.5e0; [3]=true}}, {})",
        [],
        method("q", "put", [1, "b", {"x": -1.5, 3: True}], []),
    ),
    ("return queue.tube.q:put{1,...}", [5, 6], method("q", "put", [1, 5, 6])),
    (
        "return queue.tube.q:put('a\\n\\'\\065\\xff\\\\', nil, 0x10)",
        [],
        method("q", "put", "a\n'A\udcff\\", None, 16),
    ),
    ("return queue.tube.q:put([==[a]]b]==])", [], method("q", "put", "a]]b")),
    ("return _G.queue.tube.q:peek(1ULL)", [], method("q", "peek", 1)),
    ("return (queue.tube.q:take(1))", [], method("q", "take", 1)),
    ("local t = queue.tube.q\nreturn t:take()", [], method("q", "take")),
    ("local q = require('queue'); return q.tube.x:take(0)", [], method("x", "take", 0)),
    ("return require 'queue'.tube.x:kick(1)", [], method("x", "kick", 1)),
    ("local id = ... return queue.tube.q:ack(id)", [4], method("q", "ack", 4)),
    ("queue.tube.q:drop() return true", [], method("q", "drop", returns=False, answer=(True,))),
    (
        'queue = require("queue")\nreturn queue.tube[\'q\']:put({["a"] = 1}, {ttl = 5})',
        [],
        method("q", "put", {"a": 1}, {"ttl": 5}),
    ),
    # functions of the module
    (
        "return queue.create_tube('n', 'fifo', {if_not_exists=true})",
        [],
        call("queue.create_tube", "n", "fifo", {"if_not_exists": True}),
    ),
    ("queue.create_tube('n', 'fifo')", [], call("queue.create_tube", "n", "fifo", returns=False)),
    (
        "local name = ... queue.create_tube(name, 'fifo', {temporary = true}) return true",
        ["n"],
        call("queue.create_tube", "n", "fifo", {"temporary": True}, returns=False, answer=(True,)),
    ),
    ("return queue.state()", [], call("queue.state")),
    ("return queue.statistics('q')", [], call("queue.statistics", "q")),
    ("return queue.stats()", [], call("queue.stats")),
    ("return queue.identify()", [], call("queue.identify")),
    ("queue.cfg{ttr = 60}", [], call("queue.cfg", {"ttr": 60}, returns=False)),
    ("return queue.tube()", [], call("queue.tube")),
    # existence
    ("return queue.tube.q ~= nil", [], TubeExists("q")),
    ("return queue.tube.q == nil", [], TubeExists("q", negated=True)),
    ("local name = ... return queue.tube[name] ~= nil", [b"q"], TubeExists("q")),
    ("return queue.tube[...] ~= nil", [], Value(value=False)),
    (
        "local name = ... if queue.tube[name] ~= nil then queue.tube[name]:drop() end return true",
        ["n"],
        DropIfExists("n", (True,)),
    ),
    ("if queue.tube.q then queue.tube.q:drop() end", [], DropIfExists("q")),
    # no calls
    ("", [], Nothing()),
    (" \n;; -- nothing\n--[[ at\nall ]]", [], Nothing()),
    ("return", [], Nothing()),
    ("queue = require('queue')", [], Nothing()),
    ("require 'queue'", [], Nothing()),
    ("local ok, mod = pcall(require, 'queue') return ok", [], Value(value=True)),
    ("return queue._VERSION", [], Value(QUEUE_VERSION)),
    ("return 1", [], Value(1)),
    ("return 1, 'a', ...", [True, None], Value(1, ("a", True, None))),
    ("local a, b = ... return b, a", [1], Value(None, (1,))),
    # box
    ("return box.info", [], BoxInfo(("info",))),
    ("return box.info()", [], BoxInfo(("info",))),
    ("return box.info.ro", [], BoxInfo(("info", "ro"))),
    ("return box.info().cluster.uuid", [], BoxInfo(("info", "cluster", "uuid"))),
    ("return box.cfg", [], BoxInfo(("cfg",))),
    ("return _TARANTOOL", [], BoxInfo(("info", "version"))),
    ("return box.session.id()", [], call("box.session.id")),
    ("box.cfg{read_only = true}", [], call("box.cfg", {"read_only": True}, returns=False)),
]


@pytest.mark.parametrize(("text", "args", "expected"), CASES)
def test_understood(text: str, args: list[Any], expected: Evaluation) -> None:
    assert understand(text, args) == expected
    assert understand(f"\n\t {text} \n", args) == expected


@pytest.mark.parametrize(
    "text",
    [
        "return os.time()",
        "os.exit()",
        "return queue.tube.q:put(os.time())",
        "return 1 + 1",
        "return 'a' .. 'b'",
        "for i = 1, 2 do queue.tube.q:put(i) end",
        "function f() end",
        "while true do end",
        "return box.space._queue:select()",
        "queue.tube.q:put(1) queue.tube.q:put(2)",
        "if queue.tube.a ~= nil then queue.tube.b:drop() end",
        "if queue.tube.a == nil then queue.tube.a:drop() end",
        "if queue.tube.a ~= nil then queue.tube.a:truncate() end",
        "if true then queue.tube.a:drop() end",
        "return queue.tube.q",
        "return queue",
        "return nowhere",
        "return queue.tube.q:take(0)[1]",
        "return queue.tube.q.put('x')",
        "return {[queue.tube.q] = 1}",
        "local x = 5 return x.y",
        "local x = 5 return x()",
        "return #queue.tube()",
        "return not nil",
        "return 'open",
        "return [[open",
        "--[[ open",
        "return return",
        "return (",
        "return {",
        "return {1 2}",
        "return -'x'",
        "return 0xffffffffffffffffff",
        "return '\\999'",
        "local = 5",
        "x",
        "queue.tube.q",
        "return 1 x",
        "\x00",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(QueueError, match="arbitrary Lua is not available") as caught:
        understand(text, [])
    assert caught.value.code == 32


def test_tube_name_that_is_none() -> None:
    with pytest.raises(QueueError, match="a nil value"):
        understand("local n = ... return queue.tube[n]:take()", [])


@pytest.mark.parametrize("opening", ["{", "(", "f(", "a[", "if x then ", "--[[", "[[", "'", "- "])
def test_hostile_texts_end_soon(opening: str) -> None:
    for text in (opening * 20_000, "return " + opening * 20_000):
        with pytest.raises(QueueError):
            understand(text, [])
    with pytest.raises(QueueError):
        understand("x" * (lua.TEXT_CHARS_MAX + 1), [])


@given(st.text(alphabet="queue.tbr[]{}()'\"=~,;:-\\ \n019localreturnifend", max_size=60))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        understand(text, [1])
    except QueueError as error:
        assert error.code == 32
