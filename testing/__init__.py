"""For authors of drivers: an engine under test with a virtual clock, and the suite of the contract.

What the project's own drivers are tested with. Nothing of a running node imports this, and no check
needs a test runner, a clock, a socket or a file.
"""

from tandemq_server.testing.bench import Bench, Worker, assert_replica_agrees
from tandemq_server.testing.conformance import Check, driver_checks, driver_conformance

__all__ = [
    "Bench",
    "Check",
    "Worker",
    "assert_replica_agrees",
    "driver_checks",
    "driver_conformance",
]
