"""The role machine: INIT STARTUP RUNNING ENDING WAITING as one table, who may be promoted, fencing.

Pure decisions about roles and terms. Nothing here knows a task, a socket, a file or a clock.
"""
