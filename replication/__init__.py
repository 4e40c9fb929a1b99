"""Both ends of a link, as pure objects: lineage, messages, handshake, relay, applier, commit point.

Bytes, ticks and clock values come in, messages and decisions go out. No sockets, files or clocks.
"""
