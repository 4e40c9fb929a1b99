"""Operations on tasks as the jobs see them: small numbers, and what they mean for a task's end."""

from __future__ import annotations

#: Operations by code. 0 is any other.
CODES = {
    "put": 1,
    "take": 2,
    "ack": 3,
    "release": 4,
    "bury": 5,
    "kick": 6,
    "delete": 7,
    "ttr": 8,
    "ttl": 9,
    "delay": 10,
    "finish": 11,
    "dead": 12,
    "move": 13,
}
PUT, TAKE, ACK, RELEASE, BURY, KICK, DELETE, TTR, TTL, DELAY, FINISH, DEAD, MOVE = range(1, 14)
#: How a delivery or a task ended, by the operation that ended it.
OUTCOMES = {
    ACK: "acked",
    RELEASE: "released",
    TTR: "ttr",
    TTL: "ttl",
    BURY: "buried",
    DELETE: "deleted",
    FINISH: "finished",
    DEAD: "dead",
    MOVE: "moved",
}
