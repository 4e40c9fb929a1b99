"""Names of the protocol's numbers: request types, header and body keys, features, system spaces.

Only what some connector sends or reads is named. No behaviour lives here.
"""

from __future__ import annotations

# Request types (header key 0x00 of a request).
OK = 0x00
SELECT = 0x01
INSERT = 0x02
REPLACE = 0x03
UPDATE = 0x04
DELETE = 0x05
CALL_16 = 0x06
AUTH = 0x07
EVAL = 0x08
UPSERT = 0x09
CALL = 0x0A
EXECUTE = 0x0B
NOP = 0x0C
PREPARE = 0x0D
BEGIN = 0x0E
COMMIT = 0x0F
ROLLBACK = 0x10
PING = 0x40
JOIN = 0x41
SUBSCRIBE = 0x42
VOTE_DEPRECATED = 0x43
VOTE = 0x44
FETCH_SNAPSHOT = 0x45
REGISTER = 0x46
ID = 0x49
WATCH = 0x4A
UNWATCH = 0x4B
EVENT = 0x4C
WATCH_ONCE = 0x4D
# Not a request type: what the decoder puts there when a packet cannot be read.
MALFORMED = -1

ERROR_FLAG = 0x8000

REQUEST_NAMES: dict[int, str] = {
    SELECT: "SELECT",
    INSERT: "INSERT",
    REPLACE: "REPLACE",
    UPDATE: "UPDATE",
    DELETE: "DELETE",
    CALL_16: "CALL_16",
    AUTH: "AUTH",
    EVAL: "EVAL",
    UPSERT: "UPSERT",
    CALL: "CALL",
    EXECUTE: "EXECUTE",
    NOP: "NOP",
    PREPARE: "PREPARE",
    BEGIN: "BEGIN",
    COMMIT: "COMMIT",
    ROLLBACK: "ROLLBACK",
    PING: "PING",
    JOIN: "JOIN",
    SUBSCRIBE: "SUBSCRIBE",
    VOTE_DEPRECATED: "VOTE_DEPRECATED",
    VOTE: "VOTE",
    FETCH_SNAPSHOT: "FETCH_SNAPSHOT",
    REGISTER: "REGISTER",
    ID: "ID",
    WATCH: "WATCH",
    UNWATCH: "UNWATCH",
    EVENT: "EVENT",
    WATCH_ONCE: "WATCH_ONCE",
}

# Header keys.
KEY_TYPE = 0x00
KEY_SYNC = 0x01
KEY_SCHEMA_VERSION = 0x05
KEY_STREAM_ID = 0x0A

# Body keys.
KEY_SPACE_ID = 0x10
KEY_INDEX_ID = 0x11
KEY_LIMIT = 0x12
KEY_OFFSET = 0x13
KEY_ITERATOR = 0x14
KEY_KEY = 0x20
KEY_TUPLE = 0x21
KEY_FUNCTION = 0x22
KEY_USER = 0x23
KEY_EXPRESSION = 0x27
KEY_DATA = 0x30
KEY_ERROR_TEXT = 0x31
KEY_ERROR = 0x52
KEY_VERSION = 0x54
KEY_FEATURES = 0x55
KEY_EVENT_KEY = 0x57
KEY_EVENT_DATA = 0x58
KEY_AUTH_TYPE = 0x5B
# Of SUBSCRIBE and its reply, between two nodes of ours.
KEY_NONCE = 0x70
KEY_PROOF = 0x71

# Keys of one frame of the error stack.
ERROR_TYPE = 0
ERROR_FILE = 1
ERROR_LINE = 2
ERROR_MESSAGE = 3
ERROR_ERRNO = 4
ERROR_CODE = 5
ERROR_FIELDS = 6

# What the server announces. 2.11.0 is the newest line that triggers no 3.x branch in a connector;
# features: 2 extended errors, 3 watchers, 6 WATCH_ONCE. Streams and names in SELECT stay out.
SERVER_VERSION = "2.11.0"
PROTOCOL_VERSION = 6
FEATURES: tuple[int, ...] = (2, 3, 6)
AUTH_TYPE = "chap-sha1"

# Spaces a connector reads at connect.
SPACE_SCHEMA = 272
SPACE_COLLATION = 276
SPACE_VCOLLATION = 277
SPACE_SPACE = 280
SPACE_VSPACE = 281
SPACE_INDEX = 288
SPACE_VINDEX = 289


def request_name(rtype: int) -> str:
    """`CALL`, or `type 0x7f` for a number without a name; for logs and metrics."""
    return REQUEST_NAMES.get(rtype) or f"type 0x{rtype:02x}"
