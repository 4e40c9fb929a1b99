"""Outcomes that are not "done": refused, or unknown. A call that returns is done.

Every error carries `code` (of IPROTO, 0 where the server gave none), `call` (what was asked, ""
where it is none) and `todo`, what helps. The tree:

    TandemError
        Refused                  a clear no, nothing was changed
            TubeMissing          no tube of that name
            TaskMissing          no task of that id: acked, deleted, or never there
            TaskNotTaken         it is not this session's, or not under this token
            TubeFull             capacity, memory of the node, or puts that are paused
            QuotaReached         the user has put, asks or connects as much as it may
            AccessDenied         the user lacks a right
            LoginRefused         unknown user or wrong password
            TlsRefused           a node's TLS and ours do not go together
            Unavailable          no node could be asked within the deadline
                NotWritable      a node answered: it does not serve
        Unknown                  sent, and no answer came
        LeaseLost                the task in hand is no longer ours
"""

from __future__ import annotations


class TandemError(Exception):
    """Base of all errors of the client."""

    #: What helps, unless an error knows better.
    todo = ""

    def __init__(self, text: str, code: int = 0, call: str = "", todo: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.call = call
        self.todo = todo or type(self).todo

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else ""
        about = [self.call] if self.call else []
        about += [f"code {self.code}"] if self.code else []
        return text + (f" ({', '.join(about)})" if about else "")


class Refused(TandemError):
    """The server said no; nothing was changed."""


class TubeMissing(Refused):
    """There is no tube of that name."""

    todo = "create it: client.create_tube(name), or `tandemq create`; `tandemq tubes` lists them"


class TaskMissing(Refused):
    """There is no task of that id: it was acked or deleted, or never there."""

    todo = "`tandemq list TUBE` shows what is there"


class TaskNotTaken(Refused):
    """The task is not in this session's hands, or was delivered again since."""

    todo = "its ttr or its session ran out: give it a longer ttr, or touch it while it is worked on"


class TubeFull(Refused):
    """There is no room for a put: capacity, memory of the node, or puts are paused."""

    todo = "put with wait=SECONDS (overflow = wait), raise `capacity`, or resume the tube's puts"


class QuotaReached(Refused):
    """The user holds, asks or connects as much as its quota allows."""

    todo = "wait until tasks are done, ask less often, or raise users[].quota"


class AccessDenied(Refused):
    """The user may not make this call."""

    todo = "log in as somebody who may, or grant it: queue.tube.NAME:grant(user, {call = true})"


class LoginRefused(Refused):
    """The node does not know this user, or not this password."""

    todo = "check `user` and `password`"


class TlsRefused(Refused):
    """A node's TLS and ours do not go together: one has none, or a certificate is not valid."""


class Unavailable(Refused):
    """No writable node was found within the deadline; nothing was changed."""

    todo = "is a node writable, and is its address among those given? `tandemq status` tells"


class NotWritable(Unavailable):
    """A node answered that it does not serve; nothing was changed."""


class Unknown(TandemError):
    """The request was sent and no answer came: nobody can say whether it counted."""

    todo = "a put with a key may be repeated safely; else look before repeating it"


class LeaseLost(TandemError):
    """The task in hand is no longer ours: its time or its session ran out; another may have it."""

    todo = "stop working on it: what was done for it may be done again by another worker"


_BY_CODE: dict[int, type[Refused]] = {
    7: NotWritable,
    33: TubeMissing,
    42: AccessDenied,
    47: LoginRefused,
    116: NotWritable,
}
#: The module's own errors have one code; their texts are part of its interface.
_BY_TEXT: tuple[tuple[str, type[Refused]], ...] = (
    ("Task was not taken", TaskNotTaken),
    ("does not exist)", TubeMissing),
    ("not found", TaskMissing),
    ("has reached its quota", QuotaReached),
    ("is full", TubeFull),
    ("No room for", TubeFull),
    ("are paused until", TubeFull),
    ("memory.max", TubeFull),
)


def refusal(text: str, code: int, call: str) -> Refused:
    """What a server's error is, by its code, or by its text where the code says little."""
    kind = _BY_CODE.get(code)
    if kind is TubeMissing and not call.startswith("queue.tube."):
        kind = None  # an unknown call, not a tube
    if kind is None:
        kind = next((one for words, one in _BY_TEXT if words in text), Refused)
    return kind(text, code, call)


def read_only(node: str, code: int, call: str) -> NotWritable:
    """A node that does not serve was asked; the call is made at another one."""
    return NotWritable(f"{node} is read-only", code, call)
