"""The queue: calls become row changes and records; tubes, sessions, ownership, waiting, timers.

Plain functions that run to completion: no sockets, files, clocks or chance of its own.
"""
