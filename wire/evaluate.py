"""EVAL without Lua: recognises the texts queue clients send and says which operation they mean.

Nothing is run here; the server does what the `Evaluation` names. Other texts are error 32.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from tandemq.model.errors import QueueError, failure
from tandemq_server.wire import lua

QUEUE_VERSION: Final = "1.5.0"


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Call `name`: `queue.create_tube`, `box.session.id`, `queue.tube.<tube>:<method>`.

    `returns`: answer with what the function returns; otherwise with `answer`, the values the text
    returns after the call (none: an empty list). `tube` is set for a method of a tube, whose name
    may be one that CALL cannot spell; if there is no such tube the answer is `no_such_tube`.
    `bind`: the variable of the connection that the first value of the answer is to become.
    """

    name: str
    args: list[Any]
    returns: bool
    answer: tuple[Any, ...] = ()
    tube: str | None = None
    bind: str | None = None


@dataclass(frozen=True, slots=True)
class TubeExists:
    """Answer whether the tube exists; with `negated`, whether it does not."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class DropIfExists:
    """Drop the tube if there is one, then answer with `answer`."""

    name: str
    answer: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class BoxInfo:
    """Answer what lies at `path` under `box`, nil where there is nothing.

    The first part is `info` or `cfg`: ("info",), ("info", "ro"), ("cfg", "listen").
    """

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """Answer `value`, and `more` after it if the text returns several."""

    value: Any
    more: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """Answer an empty list."""


#: A name bound by `local` or assignment: a value, or a path it stands for.
Names = dict[str, "lua.Literal | lua.Path"]
#: Variables one connection may have: somebody typing has a handful.
VARIABLES_MAX: Final = 64

Evaluation = CallFunction | TubeExists | DropIfExists | BoxInfo | Value | Nothing


def not_available() -> QueueError:
    return failure(
        "arbitrary Lua is not available on this server; understood are calls of queue.*, "
        "queue.tube.<name>:<method>, box.info, box.cfg, box.session, "
        "with literals or '...' as arguments, each alone or after 'return'"
    )


def no_such_tube(name: str) -> QueueError:
    """What Lua says when a method of an unknown tube is called: clients match `a nil value`."""
    return failure(f"attempt to index field '{name}' (a nil value)")


def understand(expr: str, args: list[Any], variables: Names | None = None) -> Evaluation:
    """What EVAL `expr` with `args` (the values of `...`) asks for.

    `variables`: what earlier texts of the connection have set; this one may add to it. Raises
    QueueError 32: `not_available` for any text outside the forms of docs/compatibility.md,
    `no_such_tube` for a tube name that is no string.
    """
    known: Names = {} if variables is None else variables
    reader = _ScriptReader(args, dict(known))
    try:
        found = reader.block(lua.parse(expr))
    except lua.NotUnderstood:
        raise not_available() from None
    kept = {name: reader.names[name] for name in reader.kept if name in reader.names}
    bound = {found.bind} if isinstance(found, CallFunction) and found.bind else set()
    if len(known.keys() | kept.keys() | bound) > VARIABLES_MAX:
        raise failure(f"a connection may have {VARIABLES_MAX} variables")
    known.update(kept)
    return found


@dataclass(slots=True)
class _ScriptReader:
    """Walks the statements once: names bound so far, and the one operation they may hold."""

    args: list[Any]
    names: Names = field(default_factory=dict)
    #: Names assigned without `local`: they outlive this text.
    kept: set[str] = field(default_factory=set)
    action: CallFunction | DropIfExists | None = None

    def block(self, statements: tuple[Any, ...]) -> Evaluation:
        for statement in statements:
            if isinstance(statement, lua.Return):
                return self._return(statement.values)
            if isinstance(statement, lua.Assign):
                self._assign(statement)
            elif isinstance(statement, lua.If):
                self._act(self._drop_if_exists(statement))
            elif not self._is_require(statement):
                self._act(self._call(statement, returns=False))
        return self.action or Nothing()

    def _act(self, action: CallFunction | DropIfExists) -> None:
        if self.action is not None:
            raise lua.NotUnderstood
        self.action = action

    def _assign(self, statement: lua.Assign) -> None:
        """`local a, b = ...`, `queue = require('queue')`, `ok, mod = pcall(require, 'queue')`."""
        targets = statement.names
        if self._binds(statement):
            return
        queue = lua.Path("queue", ())
        bound: list[lua.Literal | lua.Path] = []
        for number, value in enumerate(statement.values):
            if self._is_require(value):
                bound.append(queue)
            elif self._is_pcall_require(value):
                bound += [lua.Literal(True), queue]
            elif isinstance(value, lua.Dots) and number == len(statement.values) - 1:
                bound += [lua.Literal(item) for item in self.args]
            elif isinstance(value, lua.Path) and not self._is_value(value):
                bound.append(self._alias(value))
            else:
                bound.append(lua.Literal(self._value(value)))
        bound += [lua.Literal(None)] * (len(targets) - len(bound))
        self.names.update(zip(targets, bound, strict=False))
        if not statement.local:
            self.kept.update(targets)

    def _binds(self, statement: lua.Assign) -> bool:
        """`t = queue.tube.x:take(15)`: a call whose answer becomes a variable."""
        if len(statement.names) != 1 or len(statement.values) != 1:
            return False
        value = statement.values[0]
        if self._is_require(value) or self._is_pcall_require(value):
            return False
        if not isinstance(value, lua.Path) or not value.steps:
            return False
        if not isinstance(value.steps[-1], lua.Call):
            return False
        call = self._call(value, returns=False)
        self._act(replace(call, bind=statement.names[0]))
        self.names.pop(statement.names[0], None)
        return True

    def _alias(self, path: lua.Path) -> lua.Path:
        """A name for a part of the queue module, such as `local t = queue.tube.x`."""
        full = self._resolve(path)
        if full.root != "queue" or any(isinstance(step, lua.Call) for step in full.steps):
            raise lua.NotUnderstood
        keys = [lua.Field(lua.Literal(key)) for key in self._keys(full.steps)]
        return lua.Path("queue", tuple(keys))

    def _return(self, values: tuple[Any, ...]) -> Evaluation:
        action = self.action
        if isinstance(action, CallFunction) and action.bind is not None:
            if values != (lua.Path(action.bind, ()),):
                raise lua.NotUnderstood
            return replace(action, returns=True)
        if len(values) == 1 and action is None:
            value = values[0]
            if isinstance(value, lua.Compare):
                return self._exists(value)
            if self._is_require(value):
                raise lua.NotUnderstood
            if isinstance(value, lua.Path) and not self._is_value(value):
                return self._read_path(self._resolve(value))
        answer = tuple(self._values(values))
        if self.action is not None:
            return replace(self.action, answer=answer)
        return Value(answer[0], answer[1:]) if answer else Nothing()

    def _read_path(self, path: lua.Path) -> Evaluation:
        """`return <path>`: a call, or something that can be read without one."""
        steps = path.steps
        if path.root == "box" and steps and steps[0] == lua.Field(lua.Literal("info")):
            rest = steps[2:] if steps[1:2] == (lua.Call(()),) else steps[1:]
            return BoxInfo(("info", *self._names(rest)))
        if steps and isinstance(steps[-1], lua.Call):
            return self._call(path, returns=True)
        if path.root == "_TARANTOOL" and not steps:
            return BoxInfo(("info", "version"))
        names = self._names(steps)
        if path.root == "queue" and names == ("_VERSION",):
            return Value(QUEUE_VERSION)
        if path.root == "box" and names[:1] == ("cfg",):
            return BoxInfo(names)
        raise lua.NotUnderstood

    def _call(self, call: Any, *, returns: bool) -> CallFunction:
        """A path that ends in its only call, of a queue or box function or of a tube's method."""
        path = self._resolve(call)
        *fields, last = path.steps
        if not isinstance(last, lua.Call) or path.root not in ("queue", "box"):
            raise lua.NotUnderstood
        keys = self._keys(tuple(fields))
        args = self._values(last.args)
        if last.method is None:
            depth = 1 if path.root == "queue" else 2
            if not 1 <= len(keys) <= depth or not all(isinstance(key, str) for key in keys):
                raise lua.NotUnderstood
            return CallFunction(".".join((path.root, *keys)), args, returns)
        if path.root == "queue" and len(keys) == 2 and keys[0] == "tube":
            name = _text(keys[1])
            if name is None:
                raise no_such_tube("?")
            full = f"queue.tube.{name}:{last.method}"
            return CallFunction(full, args, returns, tube=name)
        raise lua.NotUnderstood

    def _tube_or_nil(self, value: Any) -> Any:
        """The name in `queue.tube[name]`, whatever its type."""
        if isinstance(value, lua.Path):
            path = self._resolve(value)
            if path.root == "queue":
                keys = self._keys(path.steps)
                if len(keys) == 2 and keys[0] == "tube":
                    return keys[1]
        raise lua.NotUnderstood

    def _exists(self, compare: lua.Compare) -> Evaluation:
        if compare.right != lua.Literal(None):
            raise lua.NotUnderstood
        name = _text(self._tube_or_nil(compare.left))
        if name is None:
            return Value(compare.equal)
        return TubeExists(name, negated=compare.equal)

    def _drop_if_exists(self, statement: lua.If) -> DropIfExists:
        """`if queue.tube[name] ~= nil then queue.tube[name]:drop() end`."""
        condition = statement.condition
        tested = condition
        if isinstance(condition, lua.Compare):
            if condition.equal or condition.right != lua.Literal(None):
                raise lua.NotUnderstood
            tested = condition.left
        name = _text(self._tube_or_nil(tested))
        if name is None or len(statement.body) != 1 or not isinstance(statement.body[0], lua.Path):
            raise lua.NotUnderstood
        body = self._call(statement.body[0], returns=False)
        if body.tube != name or body.name != f"queue.tube.{name}:drop" or body.args:
            raise lua.NotUnderstood
        return DropIfExists(name)

    def _is_require(self, value: Any) -> bool:
        return bool(value == lua.Path("require", (lua.Call((lua.Literal("queue"),)),)))

    def _is_pcall_require(self, value: Any) -> bool:
        args = (lua.Path("require", ()), lua.Literal("queue"))
        return bool(value == lua.Path("pcall", (lua.Call(args),)))

    def _is_value(self, path: lua.Path) -> bool:
        """A variable that holds a value, or a part of one: `t`, `t[1]`, `t.name`."""
        fields = all(isinstance(step, lua.Field) for step in path.steps)
        return fields and isinstance(self.names.get(path.root), lua.Literal)

    def _resolve(self, path: lua.Path) -> lua.Path:
        """The path from a global name on: aliases put in, `_G.`, `require('queue')` taken out."""
        require = lua.Call((lua.Literal("queue"),))
        if path.root == "require" and path.steps[:1] == (require,):
            return lua.Path("queue", path.steps[1:])
        bound = self.names.get(path.root)
        if isinstance(bound, lua.Path):
            return lua.Path(bound.root, bound.steps + path.steps)
        if bound is not None:
            raise lua.NotUnderstood
        if path.root == "_G" and path.steps and isinstance(path.steps[0], lua.Field):
            return lua.Path(self._names(path.steps[:1])[0], path.steps[1:])
        return path

    def _keys(self, steps: tuple[Any, ...]) -> list[Any]:
        """The values of fields; a call among them is not understood."""
        keys = []
        for step in steps:
            if not isinstance(step, lua.Field):
                raise lua.NotUnderstood
            keys.append(self._value(step.key))
        return keys

    def _names(self, steps: tuple[Any, ...]) -> tuple[str, ...]:
        keys = self._keys(steps)
        if not all(isinstance(key, str) for key in keys):
            raise lua.NotUnderstood
        return tuple(keys)

    def _values(self, expressions: tuple[Any, ...]) -> list[Any]:
        """An expression list: `...` at its end stands for all arguments."""
        values = []
        for number, expression in enumerate(expressions):
            if isinstance(expression, lua.Dots) and number == len(expressions) - 1:
                values += self.args
            else:
                values.append(self._value(expression))
        return values

    def _value(self, expression: Any) -> Any:
        if isinstance(expression, lua.Literal):
            return expression.value
        if isinstance(expression, lua.Dots):
            return self.args[0] if self.args else None
        if isinstance(expression, lua.LuaTable):
            return self._table(expression)
        if isinstance(expression, lua.Path) and self._is_value(expression):
            bound = self.names[expression.root]
            assert isinstance(bound, lua.Literal)
            return self._part(bound.value, expression.steps)
        raise lua.NotUnderstood

    def _part(self, value: Any, steps: tuple[Any, ...]) -> Any:
        """What lies in a value: places of lists count from 1, what is not there is nil."""
        for key in self._keys(steps):
            if isinstance(value, (list, tuple)):
                at = key - 1 if type(key) is int else -1
                value = value[at] if 0 <= at < len(value) else None
            elif isinstance(value, dict):
                value = value.get(key)
            elif value is None:
                raise failure("attempt to index a nil value")
            else:
                raise lua.NotUnderstood
        return value

    def _table(self, table: lua.LuaTable) -> Any:
        """A list when every item is positional, `{}` included, as Lua tables go over the wire."""
        if all(key is None for key, _ in table.items):
            return self._values(tuple(value for _, value in table.items))
        found: dict[Any, Any] = {}
        position = 0
        for key, value in table.items:
            if key is None:
                position += 1
                name: Any = position
            else:
                name = self._value(key)
                if not isinstance(name, (str, int, float)):
                    raise lua.NotUnderstood
            item = self._value(value)
            if item is not None:
                found[name] = item
        return found


def _text(value: Any) -> str | None:
    """A tube name: str as it is, bin as the same bytes, None for every other type."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None
