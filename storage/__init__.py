"""Blocking files: a disk of named operations, segments, the log, snapshots, recovery, inspection.

Nothing here knows a queue, an event loop, a clock or a peer; only `files.py` touches the OS.
"""
