"""The queue of the Tarantool 1.5 era: spaces by number, tubes in them, arguments as text.

Behaviour and texts: docs/compatibility-queue15.md.
"""
