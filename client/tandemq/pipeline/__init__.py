"""Jobs over the log: history, audit, report, load, compact, follow; on Spark or in one process.

Offline work on files and clients; no node ever imports this room.
"""
