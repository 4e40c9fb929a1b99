"""From requests to records, pure: the call table, connections without sockets, rights, schema.

No clock, chance, socket, file or thread; knows nothing of other nodes.
"""
