"""What the compiled walk writes down: the fields of a line, and what it needs to know of tubes.

Numba looks only at kernel.py when it reuses machine code: its `MADE_OF` changes with this file.
"""

from __future__ import annotations

from tandemq.model.record import DELETE, INSERT, INSERT_MANY, SET, TERM
from tandemq.spark.groups import NOTE_ATTEMPTS, NOTES_ID, SPACE_ID_FIRST
from tandemq.spark.heads import ARRAY, INT, compiled, head, skip

#: How a walk ended. MORE_ROOM: `out` is full. UNKNOWN_SPACE: one that `spaces` lacks.
DONE, GIVE_UP, MORE_ROOM, UNKNOWN_SPACE = 0, 1, 2, 3
#: Rows of `out`, one number a log row. *_AT and *_SIZE: a place in the data, in bytes.
(
    LSN,
    TIME,
    KIND,
    WHAT,
    SLOT,
    TASK,
    OWNER,
    STATE,
    TTL,
    TTR,
    DELAY,
    PRIORITY,
    UTUBE_AT,
    UTUBE_SIZE,
    PAYLOAD_AT,
    PAYLOAD_SIZE,
) = range(16)
FIELDS = 16
#: The same place in rows that are no puts: those have no payload, and puts no attempts yet.
ATTEMPTS = PAYLOAD_SIZE
NULL = -(2**63)
#: Columns of `layouts`: the field a driver's rows keep it in, or NONE; the last one for payload.
AT_TTL, AT_TTR, AT_PRIORITY, AT_UTUBE, AT_PAYLOAD, AT_EVENT, AT_ATTEMPTS = range(7)
PLACES = 7
NONE = -1


@compiled
def slot_of(spaces, space):
    low, high = 0, len(spaces)
    while low < high:
        middle = (low + high) >> 1
        if spaces[middle] < space:
            low = middle + 1
        else:
            high = middle
    return low if low < len(spaces) and spaces[low] == space else -1


@compiled
def _note(data, at, end, code, lines, out):
    """What a note says of a task's attempts into lines of its record; False to give up.

    at: the op behind its space. lines: the record's first, the one of the op that follows the note,
    the one behind the last. As `decode.Decoder._note` does it.
    """
    first, next_line, behind = lines
    found, fields, at = head(data, at, end)
    is_tube, _, at = head(data, at, end)
    is_task, task, at = head(data, at, end)
    if found != ARRAY or fields < 2 or is_tube != INT or is_task != INT:
        return False
    if code == SET:
        is_field, field, at = head(data, at, end)
        if is_field != INT or field != NOTE_ATTEMPTS:
            return is_field == INT
    is_count, count, at = head(data, at, end)
    if is_count != INT:
        return False
    if code == INSERT and count == 0:
        return True
    line = next_line
    while line < behind and (out[line, TASK] != task or out[line, WHAT] == INSERT):
        line += 1
    if line == behind:
        line = next_line - 1
        while line >= first and (out[line, TASK] != task or out[line, WHAT] == INSERT):
            line -= 1
        if line < first:
            return True
    slot = out[line, SLOT]
    while line > first and out[line - 1, TASK] == task and out[line - 1, SLOT] == slot:
        line -= 1
    while line < behind and out[line, TASK] == task and out[line, SLOT] == slot:
        out[line, ATTEMPTS] = count
        line += 1
    return True


@compiled
def notes(data, at, end, first, out, n):
    """The notes among the ops of a record whose lines are `first` up to `n`; False to give up."""
    line, fine = first, True
    _, ops, at = head(data, at, end)
    for _ in range(ops):
        behind = skip(data, at, end)
        _, _, at = head(data, at, end)
        _, code, at = head(data, at, end)
        _, space, at = head(data, at, end)
        if space >= SPACE_ID_FIRST or code == TERM:
            if code == INSERT or code == SET or code == DELETE or code == TERM:
                line += 1
            elif code >= INSERT_MANY:
                _, count, at = head(data, at, end)
                line += count
        elif space == NOTES_ID and code <= SET:
            fine = fine and _note(data, at, end, code, (first, line, n), out)
        at = behind
    return fine
