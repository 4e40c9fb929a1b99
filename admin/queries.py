"""Parameters of GET requests: checked one by one, each mistake told, nothing guessed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from tandemq_server.admin.problems import Problem, invalid

#: Characters of a name that is searched for or listed; a tube's name has at most so many.
NAME_MAX = 65_000
_DIGITS_MAX = 20


class Query:
    """The parameters of one request. Each getter checks its own; `end` refuses what is left."""

    def __init__(self, request: web.Request) -> None:
        self._given = request.query
        self._known: set[str] = set()

    def text(self, name: str, default: str | None = None) -> str:
        """One string; without a default it must be given and not be empty."""
        found = self._one(name)
        if found is None:
            if default is None:
                raise invalid(name, "is missing", "a name")
            return default
        if not found and default is None:
            raise invalid(name, "is empty", "a name")
        if len(found) > NAME_MAX:
            raise invalid(name, f"has {len(found)} characters", f"at most {NAME_MAX}")
        return found

    def choice(self, name: str, choices: Iterable[str]) -> Any:
        found = self._one(name)
        accepted = list(choices)
        if found is None or found in accepted:
            return found
        raise invalid(name, "is not one of these", accepted)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        found = self._one(name)
        if found is None:
            return default
        sign, digits = (-1, found[1:]) if found.startswith("-") else (1, found)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            raise invalid(name, "is not an integer", f"{least} to {most}")
        value = sign * int(digits)
        if not least <= value <= most:
            raise invalid(name, f"{value} is out of range", f"{least} to {most}")
        return value

    def given(self, name: str) -> bool:
        self._known.add(name)
        return name in self._given

    def end(self) -> None:
        """Refuse parameters nobody asked for: they are mistyped ones."""
        unknown = [name for name in self._given if name not in self._known]
        if unknown:
            known = sorted(self._known)
            raise invalid(unknown[0][:100], "is not a parameter of this request", known)

    def _one(self, name: str) -> str | None:
        self._known.add(name)
        values = self._given.getall(name, [])
        if len(values) > 1:
            raise invalid(name, "is given more than once", "once")
        if not values:
            return None
        try:
            values[0].encode()
        except UnicodeEncodeError:
            raise Problem("bad-request", f"{name} is not UTF-8") from None
        return str(values[0])
