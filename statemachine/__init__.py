"""The role of a node: five states as a table, the fiber that walks them, who may be promoted.

Facts and moments come in, effects go out. No sockets, files, clocks or records of its own.
"""
