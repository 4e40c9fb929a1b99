"""The seat, joined to the node: what an arbiter says becomes role and commit point, and back.

The rules are in `statemachine.seat`; adapters to arbiters are another room. Only `calls` waits.
"""
