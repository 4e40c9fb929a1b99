"""What a session holds without our knowing, read from the server's own spaces and given back."""

from __future__ import annotations

from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError

NOT_TAKEN = "Task was not taken"
_VSPACE, _BY_NAME = 281, 2


async def release(connection: asynctnt.Connection, tube: str, task_id: int, token: int) -> None:
    try:
        await connection.call(f"queue.tube.{tube}:release", [task_id, {"token": token}])
    except TarantoolDatabaseError as error:
        if NOT_TAKEN not in error.message:  # else its ttr came meanwhile
            raise


async def rows(connection: asynctnt.Connection, space: str) -> list[Any]:
    found = await connection.select(_VSPACE, [space], index=_BY_NAME)
    if not found.body:
        return []
    return list((await connection.select(found.body[0][0], [])).body)


def raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
