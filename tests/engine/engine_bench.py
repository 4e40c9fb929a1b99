"""The engine under test, with the names of the drivers that come with it."""

from tandemq_server.drivers import BUILT_IN
from tandemq_server.testing.bench import (
    EPOCH,
    SECOND,
    TERM_ID,
    Bench,
    Worker,
    assert_replica_agrees,
    shared_state,
    text,
    through_the_wire,
)

DRIVERS = tuple(BUILT_IN)
TTL_DRIVERS = ("fifottl", "limfifottl", "utubettl")
UTUBES = ("utube", "utubettl")

__all__ = [
    "DRIVERS",
    "EPOCH",
    "SECOND",
    "TERM_ID",
    "TTL_DRIVERS",
    "UTUBES",
    "Bench",
    "Worker",
    "assert_replica_agrees",
    "shared_state",
    "text",
    "through_the_wire",
]
