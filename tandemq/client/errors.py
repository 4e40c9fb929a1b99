"""Outcomes that are not "done": refused, or unknown. A call that returns is done."""

from __future__ import annotations


class TandemError(Exception):
    """Base of all errors of the client."""


class Refused(TandemError):
    """The server said no; nothing was changed. `code`: the IPROTO error code, 0 if none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Unavailable(Refused):
    """No writable node was found within the deadline; nothing was changed."""


class Unknown(TandemError):
    """The request was sent and no answer came: nobody can say whether it counted.

    A put with a key may be repeated safely.
    """


class LeaseLost(TandemError):
    """The task in hand is no longer ours: its time or its session ran out; another may have it."""
