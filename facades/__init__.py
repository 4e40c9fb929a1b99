"""Queues of other systems, each one folder: driver, tubes, arguments, calls, layout of its spaces.

The node knows them through `facades.registered` alone; engine and core ask whoever is registered
and name none of them. Nothing here reaches a clock, a socket or a file.
"""
