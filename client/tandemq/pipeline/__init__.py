"""Spark jobs over the log: history, audit, report, load, compact.

Offline work on files and clients; no node ever imports this room.
"""
