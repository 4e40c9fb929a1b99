"""The little of Lua's grammar that EVAL texts of queue clients are written in, as a syntax tree.

Tokens, literals, tables, dotted paths and calls, `local`, `return`, `if`. Nothing is run here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

# Beyond these a text is not one of the forms clients send, and costs the event loop for nothing.
TEXT_CHARS_MAX: Final = 262_144
_DEPTH_MAX: Final = 60


class NotUnderstood(Exception):
    """The text is not of the grammar above, or no legal Lua at all."""


@dataclass(frozen=True, slots=True)
class Literal:
    """nil, true, false, a number or a string; str holds other bytes as surrogate escapes."""

    value: Any


@dataclass(frozen=True, slots=True)
class Dots:
    """`...`"""


@dataclass(frozen=True, slots=True)
class LuaTable:
    """Items in order: (key expression or None for the next position, value expression)."""

    items: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Field:
    """`.name` or `[expression]` in a path."""

    key: Any


@dataclass(frozen=True, slots=True)
class Call:
    """`(args)` in a path, `:method(args)` when `method` is set."""

    args: tuple[Any, ...]
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """A name and what follows it: fields and calls."""

    root: str
    steps: tuple[Field | Call, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """`left == right` or, with `equal` False, `left ~= right`."""

    left: Any
    right: Any
    equal: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """`[local] names = values`."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    local: bool = True


@dataclass(frozen=True, slots=True)
class If:
    """`if condition then body end`."""

    condition: Any
    body: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Return:
    values: tuple[Any, ...]


_KEYWORDS: Final = frozenset(
    (
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if"),
        *("in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    )
)
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<long>(?:--)?\[=*\[)
    | (?P<comment>--[^\n]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<hex>0[xX][0-9a-fA-F]+)(?:[uU]?[lL][lL])?
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?:[uU]?[lL][lL])?
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<mark>\.\.\.|==|~=|[-.,;:()\[\]{}=])""",
    re.VERBOSE | re.DOTALL,
).match
_ESCAPE = re.compile(rb"\\(?:(\d{1,3})|x([0-9a-fA-F]{2})|z\s*|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))
_CONSTANTS: Final = {"nil": None, "true": True, "false": False}

# (kind, value): kind is "name", "keyword", "literal", "mark" or "end".
Token = tuple[str, Any]


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    pos = 0
    while pos < len(text):
        match = _TOKEN(text, pos)
        if match is None:
            raise NotUnderstood
        kind, raw, pos = match.lastgroup, match[0], match.end()
        if kind == "long":
            close = "]" + "=" * raw.count("=") + "]"
            end = text.find(close, pos)
            if end < 0:
                raise NotUnderstood
            if not raw.startswith("--"):
                found.append(("literal", text[pos:end].removeprefix("\n")))
            pos = end + len(close)
        elif kind == "name":
            found.append(("keyword" if raw in _KEYWORDS else "name", raw))
        elif kind == "hex":
            found.append(("literal", _in_range(int(match["hex"], 16))))
        elif kind == "number":
            found.append(("literal", _number(match["number"])))
        elif kind == "string":
            found.append(("literal", _unescape(raw[1:-1])))
        elif kind == "mark":
            found.append(("mark", raw))
    found.append(("end", None))
    return found


def _number(text: str) -> float:
    """As it would leave the field's server: whole numbers are integers."""
    value = float(text)
    if text.isdigit() and len(text) < 20:
        return int(text)
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def _in_range(value: float) -> float:
    """What MessagePack can carry as a number."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise NotUnderstood
    return value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(_unescape_one, text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "surrogateescape")


def _unescape_one(match: re.Match[bytes]) -> bytes:
    if match[1]:
        code = int(match[1])
        if code > 255:
            raise NotUnderstood
        return bytes((code,))
    if match[2]:
        return bytes((int(match[2], 16),))
    if match[3]:
        return bytes((_ESCAPED.get(match[3][0], match[3][0]),))
    return b""


def parse(text: str) -> tuple[Any, ...]:
    """The statements of `text`: Assign, If, Return and, as statements, Path ending in a Call.

    Raises NotUnderstood.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise NotUnderstood
    try:
        parser = _Parser(_tokens(text))
        block = parser.block()
        parser.expect("end")
    except (ValueError, OverflowError):
        raise NotUnderstood from None
    return block


class _Parser:
    """Recursive descent over a token list; `at` is the next token."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def _accept(self, kind: str, value: str | None = None) -> Any:
        """Step over the token and return its value (never falsy then) if it is the one named."""
        token = self._tokens[self._at]
        if token[0] == kind and (value is None or token[1] == value):
            self._at += 1
            return token[1] or kind
        return None

    def expect(self, kind: str, value: str | None = None) -> Any:
        found = self._accept(kind, value)
        if found is None:
            raise NotUnderstood
        return found

    def block(self) -> tuple[Any, ...]:
        """Statements up to `end` or the end of the text; `return` is the last one."""
        self._deeper()
        statements: list[Any] = []
        while True:
            if self._accept("mark", ";"):
                continue
            token = self._tokens[self._at]
            if token[0] == "end" or token == ("keyword", "end"):
                break
            statements.append(self._statement())
            if isinstance(statements[-1], Return):
                self._accept("mark", ";")
                break
        self._depth -= 1
        return tuple(statements)

    def _statement(self) -> Any:
        if self._accept("keyword", "return"):
            token = self._tokens[self._at]
            if token[0] == "end" or token in (("keyword", "end"), ("mark", ";")):
                return Return(())
            return Return(self._expressions())
        if self._accept("keyword", "if"):
            condition = self._expression()
            self.expect("keyword", "then")
            body = self.block()
            self.expect("keyword", "end")
            return If(condition, body)
        if self._accept("keyword", "local"):
            return self._assign([self.expect("name")])
        path = self._path()
        if isinstance(path, Path):
            if path.steps and isinstance(path.steps[-1], Call):
                return path
            if not path.steps:
                return self._assign([path.root], local=False)
        raise NotUnderstood

    def _assign(self, names: list[str], local: bool = True) -> Assign:
        while self._accept("mark", ","):
            names.append(self.expect("name"))
        self.expect("mark", "=")
        return Assign(tuple(names), self._expressions(), local)

    def _expressions(self) -> tuple[Any, ...]:
        found = [self._expression()]
        while self._accept("mark", ","):
            found.append(self._expression())
        return tuple(found)

    def _expression(self) -> Any:
        self._deeper()
        left = self._operand()
        for mark in ("==", "~="):
            if self._accept("mark", mark):
                left = Compare(left, self._operand(), mark == "==")
                break
        self._depth -= 1
        return left

    def _operand(self) -> Any:
        kind, value = self._tokens[self._at]
        if kind == "literal":
            self._at += 1
            return Literal(value)
        if kind == "keyword" and value in _CONSTANTS:
            self._at += 1
            return Literal(_CONSTANTS[value])
        if self._accept("mark", "..."):
            return Dots()
        if self._accept("mark", "-"):
            kind, value = self._tokens[self._at]
            if kind != "literal" or isinstance(value, str):
                raise NotUnderstood
            self._at += 1
            return Literal(_in_range(-value))
        if (kind, value) == ("mark", "{"):
            return self._table()
        return self._path()

    def _path(self) -> Any:
        """A name or parenthesised expression with its fields and calls."""
        if self._accept("mark", "("):
            inner = self._expression()
            self.expect("mark", ")")
            if not isinstance(inner, Path):
                return inner
            root, steps = inner.root, list(inner.steps)
        else:
            root, steps = self.expect("name"), []
        while True:
            if self._accept("mark", "."):
                steps.append(Field(Literal(self.expect("name"))))
            elif self._accept("mark", "["):
                steps.append(Field(self._expression()))
                self.expect("mark", "]")
            elif self._accept("mark", ":"):
                method = self.expect("name")
                args = self._args()
                if args is None:
                    raise NotUnderstood
                steps.append(Call(args, method))
            else:
                args = self._args()
                if args is None:
                    return Path(root, tuple(steps))
                steps.append(Call(args))

    def _args(self) -> tuple[Any, ...] | None:
        """`(...)`, `"text"` or `{...}` after a function; None if there is none of them."""
        kind, value = self._tokens[self._at]
        if kind == "literal" and isinstance(value, str):
            self._at += 1
            return (Literal(value),)
        if (kind, value) == ("mark", "{"):
            return (self._table(),)
        if not self._accept("mark", "("):
            return None
        if self._accept("mark", ")"):
            return ()
        found = self._expressions()
        self.expect("mark", ")")
        return found

    def _table(self) -> LuaTable:
        self._deeper()
        self.expect("mark", "{")
        items: list[tuple[Any, Any]] = []
        while not self._accept("mark", "}"):
            key = None
            if self._accept("mark", "["):
                key = self._expression()
                self.expect("mark", "]")
                self.expect("mark", "=")
            elif self._tokens[self._at][0] == "name" and (
                self._tokens[self._at + 1] == ("mark", "=")
            ):
                key = Literal(self.expect("name"))
                self.expect("mark", "=")
            items.append((key, self._expression()))
            if not (self._accept("mark", ",") or self._accept("mark", ";")):
                self.expect("mark", "}")
                break
        self._depth -= 1
        return LuaTable(tuple(items))

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise NotUnderstood
