"""JSON of a request's body, strictly: nothing a reader could take for something else."""

from __future__ import annotations

import json
from typing import Any

from tandemq_server.admin.problems import Problem


def parse(raw: bytes) -> Any:
    """Strict JSON: UTF-8, no duplicate members, no NaN. Raises `Problem` 400."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem("malformed-json", reason) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member of an object is given twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
