"""The compiled walk over frame bodies: MessagePack in, numbers and places of bytes out.

Needs numba; the machine code is kept in its on-disk cache. What the walk does not know by its
shape it gives up on with `GIVE_UP`, and `decode.py` reads those frames in plain Python instead: it
also says what is wrong with them, if something is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tandemq.model.record import DELETE, DELETE_MANY, INSERT, INSERT_MANY, SET, TERM, TRUNCATE
from tandemq.spark.groups import LAST, NOTES_ID, SPACE_ID_FIRST
from tandemq.spark.heads import ARRAY, BIG, BIN, INT, NIL, STR, compiled, eight, head, inlined, skip
from tandemq.spark.lines import (
    AT_ATTEMPTS,
    AT_EVENT,
    AT_PAYLOAD,
    AT_PRIORITY,
    AT_TTL,
    AT_TTR,
    AT_UTUBE,
    ATTEMPTS,
    DELAY,
    DONE,
    FIELDS,
    GIVE_UP,
    KIND,
    LSN,
    MORE_ROOM,
    NONE,
    NULL,
    OWNER,
    PAYLOAD_AT,
    PAYLOAD_SIZE,
    PRIORITY,
    SLOT,
    STATE,
    TASK,
    TIME,
    TTL,
    TTR,
    UNKNOWN_SPACE,
    UTUBE_AT,
    UTUBE_SIZE,
    WHAT,
    notes,
    slot_of,
)

#: CRC of the sources and constants that are in the machine code kept: a test compares it.
MADE_OF = 0x009765CC
_TILDE, _DONE_STATE = ord("~"), ord("-")


@compiled
def _row(data, at, end, layouts, slot, out, n):
    """A whole row of a tube into line `n`; the place behind it, negative to give up."""
    kind, fields, at = head(data, at, end)
    if kind != ARRAY or fields < 2:
        return -1
    payload_at, utube_at = layouts[slot, AT_PAYLOAD], layouts[slot, AT_UTUBE]
    ttl_at, ttr_at = layouts[slot, AT_TTL], layouts[slot, AT_TTR]
    priority_at, event_at = layouts[slot, AT_PRIORITY], layouts[slot, AT_EVENT]
    if payload_at == LAST:
        payload_at = fields - 1
    if payload_at < NONE or max(payload_at, utube_at, ttl_at, ttr_at, priority_at) >= fields:
        return -1
    next_event = NULL
    for field in range(fields):
        before = at
        kind, value, at = head(data, at, end)
        if field == 0:
            if kind != INT:
                return -1
            out[n, TASK] = value
        elif field == 1:
            if kind != STR or value != 1 or at >= end or data[at] >= 128:
                return -1
            out[n, STATE] = data[at]
        elif field == utube_at:
            if kind == STR:
                out[n, UTUBE_AT] = at
                out[n, UTUBE_SIZE] = value
            elif kind != NIL:
                return -1
        elif field == ttl_at or field == ttr_at or field == priority_at:
            if kind != INT and kind != BIG:
                return -1
            if field == ttl_at:
                out[n, TTL] = value
            elif field == ttr_at:
                out[n, TTR] = value
            else:
                out[n, PRIORITY] = value
        elif field == event_at and kind == INT:
            next_event = value
        if field == payload_at and kind == BIN:
            out[n, PAYLOAD_AT] = at
            out[n, PAYLOAD_SIZE] = value
        if kind != INT and kind != NIL:
            at = skip(data, before, end)
        if at < 0 or at > end:
            return -1
    if event_at >= 0 and out[n, STATE] == _TILDE:
        if next_event == NULL:
            return -1
        out[n, DELAY] = next_event - out[n, TIME]
    return at


@compiled
def _pairs(data, at, end, pairs, layout, out, n):
    """The fields a set op sets into line `n`; the place behind them, negative to give up."""
    event_at, ttl_at, ttr_at = layout[AT_EVENT], layout[AT_TTL], layout[AT_TTR]
    attempts_at = layout[AT_ATTEMPTS]
    delayed = False
    for pair in range(pairs):
        kind, field, at = head(data, at, end)
        if kind != INT:
            return -1
        before = at
        kind, value, at = head(data, at, end)
        if pair == 0 and kind == STR and value == 1 and at < end and data[at] == _TILDE:
            delayed = event_at >= 0
        if field == 1 and out[n, STATE] == NULL:
            if kind != STR or value != 1 or at >= end or data[at] >= 128:
                return -1
            out[n, STATE] = data[at]
        elif field >= 2 and (
            field == event_at or field == ttl_at or field == ttr_at or field == attempts_at
        ):
            if kind != INT:
                return -1
            if field == event_at:
                # Until it is known whether the task is delayed: when its next event is due.
                if out[n, DELAY] == NULL:
                    out[n, DELAY] = value
            elif pairs >= 3 and field == ttl_at:
                if out[n, TTL] == NULL:
                    out[n, TTL] = value
            elif pairs >= 3 and field == ttr_at:
                if out[n, TTR] == NULL:
                    out[n, TTR] = value
            elif pairs >= 3 and out[n, ATTEMPTS] == NULL:
                out[n, ATTEMPTS] = value
        if kind != INT and kind != NIL:
            at = skip(data, before, end)
        if at < 0 or at > end:
            return -1
    if not delayed:
        out[n, DELAY] = NULL
    elif out[n, DELAY] == NULL or out[n, DELAY] == 0:
        out[n, DELAY] = 0
    else:
        out[n, DELAY] -= out[n, TIME]
    return at


@inlined
def _owner(data, at, table, owners, known):
    """(number of the session whose 16 bytes stand at `at`, sessions known now)."""
    low, high = eight(data, at), eight(data, at + 8)
    mask = len(table) - 1
    mixed = (low ^ (high * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xFF51AFD7ED558CCD)
    place = np.int64(mixed >> np.uint64(33)) & mask
    while table[place] >= 0:
        there = owners[table[place]]
        if eight(data, there) == low and eight(data, there + 8) == high:
            return table[place], known
        place = (place + 1) & mask
    table[place] = known
    owners[known] = at
    return known, known + 1


@inlined
def _begin(out, n, about, what, slot):
    lsn, time, kind, owner, light = about
    out[n, LSN] = lsn
    out[n, TIME] = time
    out[n, KIND] = kind
    out[n, WHAT] = what
    out[n, SLOT] = slot
    out[n, OWNER] = owner
    if light:
        return
    for field in range(TASK, FIELDS):
        if field != OWNER:
            out[n, field] = NULL


@inlined
def _op(data, at, end, op, layouts, out, about):
    """An op on tasks, from its third field on. (place behind it, lines made): negative, give up.

    A second value of -2 asks for more room. op: fields, code, tube, first line to fill. about: LSN,
    time, kind and owner of the record, and whether tasks are looked into not at all.
    """
    fields, code, slot, n = op
    light = about[4]
    room = out.shape[0]
    many = code >= INSERT_MANY
    what = code - INSERT_MANY + INSERT if many else code
    count, keys = 1, at
    if many:
        found, count, keys = head(data, at, end)
        if found != ARRAY:
            return -1, -1
    if n + max(count, 1) > room:
        return -1, -2
    if light:
        for line in range(n, n + count):
            _begin(out, line, about, what, slot)
        for _ in range(fields - 2):
            at = skip(data, at, end)
            if at < 0:
                return -1, -1
        return at, count
    if what == INSERT:
        at = keys
        for line in range(n, n + count):
            _begin(out, line, about, what, slot)
            at = _row(data, at, end, layouts, slot, out, line)
            if at < 0:
                return -1, -1
        for _ in range(fields - 3):
            at = skip(data, at, end)
            if at < 0:
                return -1, -1
        return at, count
    behind = skip(data, at, end)
    if behind < 0:
        return -1, -1
    _begin(out, n, about, what, slot)
    if what == SET:
        pairs = (fields - 3) >> 1
        if pairs < 1 or (fields - 3) & 1:
            return -1, -1
        behind = _pairs(data, behind, end, pairs, layouts[slot], out, n)
    else:
        out[n, STATE] = _DONE_STATE
        for _ in range(fields - 3):
            behind = skip(data, behind, end)
            if behind < 0:
                break
    if behind < 0:
        return -1, -1
    for line in range(n, n + count):
        if line > n:
            for field in range(FIELDS):
                out[line, field] = out[n, field]
        found, key, keys = head(data, keys, end)
        if found != INT:
            return -1, -1
        out[line, TASK] = key
    return behind, count


@inlined
def _record(data, at, end, about, tubes, out, n):
    """The ops of one record. (state, place behind or space, lines so far)."""
    spaces, layouts = tubes
    start, noted, first = at, False, n
    found, ops, at = head(data, at, end)
    if found != ARRAY:
        return GIVE_UP, 0, n
    slot, known = np.int64(-1), np.int64(-1)
    for _ in range(ops):
        before = at
        found, fields, at = head(data, at, end)
        if found != ARRAY or fields < 2:
            return GIVE_UP, 0, n
        found, code, at = head(data, at, end)
        if found != INT:
            return GIVE_UP, 0, n
        found, space, at = head(data, at, end)
        if found != INT or code < INSERT or code > DELETE_MANY:
            return GIVE_UP, 0, n
        tasks = code <= DELETE or code >= INSERT_MANY
        if not tasks or space < SPACE_ID_FIRST:
            if code == TERM:
                if n != first:
                    return GIVE_UP, 0, n
                if n >= out.shape[0]:
                    return MORE_ROOM, 0, n
                _begin(out, n, about, np.int64(TRUNCATE), np.int64(-1))
                n += 1
            noted = noted or space == NOTES_ID
            at = skip(data, before, end)
            if at < 0:
                return GIVE_UP, 0, n
            continue
        if fields < 3:
            return GIVE_UP, 0, n
        if space != known:
            slot, known = slot_of(spaces, space), space
            if slot < 0:
                return UNKNOWN_SPACE, space, n
        op = (fields, code, slot, n)
        at, made = _op(data, at, end, op, layouts, out, about)
        if made < 0:
            return MORE_ROOM if made == -2 else GIVE_UP, 0, n
        n += made
    if noted and not about[4] and not notes(data, start, end, first, out, n):
        return GIVE_UP, 0, n
    return DONE, at, n


@njit(cache=True, error_model="numpy", _nrt=False)
def walk(data, frames, bounds, tubes, sessions, out):
    """Rows of frame bodies. (how it ended, an unknown space, lines of `out`, sessions met).

    data: bodies one behind the other. frames: where each starts (and the last one ends), its first
    LSN, its records. bounds: the first and the last LSN wanted, and 1 for no look into tasks: of
    their lines LSN up to SLOT and OWNER are filled then. tubes: space ids, ascending; a line of
    `layouts` for each. sessions: -1s, a power of two above twice the records; room for the places
    of as many sessions. A record about no task: TRUNCATE, its own place as the payload's.
    """
    starts, firsts, counts = frames
    table, owners = sessions
    n, known = np.int64(0), np.int64(0)
    room, light = out.shape[0], bounds[2] != 0
    for frame in range(len(counts)):
        at, end = starts[frame], starts[frame + 1]
        found, records, at = head(data, at, end)
        if found != ARRAY or records != counts[frame]:
            return GIVE_UP, 0, n, known
        for lsn in range(firsts[frame], firsts[frame] + records):
            start = at
            if lsn < bounds[0] or lsn > bounds[1]:
                at = skip(data, at, end)
                if at < 0:
                    return GIVE_UP, 0, n, known
                continue
            found, fields, at = head(data, at, end)
            is_time, time, at = head(data, at, end)
            is_kind, kind, at = head(data, at, end)
            is_session, size, at = head(data, at, end)
            if found != ARRAY or fields != 4 or is_time != INT or is_kind != INT:
                return GIVE_UP, 0, n, known
            owner = np.int64(NULL)
            if is_session == BIN and size == 16 and at + 16 <= end:
                owner, known = _owner(data, at, table, owners, known)
                at += 16
            elif is_session != NIL:
                return GIVE_UP, 0, n, known
            if kind < 0 or kind > 255:
                return GIVE_UP, 0, n, known
            about = (lsn, time, kind, owner, light)
            before = n
            state, at, n = _record(data, at, end, about, tubes, out, n)
            if state != DONE:
                return state, at, n, known
            if n == before:
                if n >= room:
                    return MORE_ROOM, 0, n, known
                _begin(out, n, about, np.int64(TRUNCATE), np.int64(-1))
                n += 1
            if out[before, WHAT] == TRUNCATE:
                out[before, PAYLOAD_AT] = start
                out[before, PAYLOAD_SIZE] = at - start
        if at != end:
            return GIVE_UP, 0, n, known
    return DONE, 0, n, known
