"""Both ends of a link between nodes: relay, applier, commit point, fork finding, rescue.

Frames and positions in, frames and decisions out. No sockets, files or clocks in here.
"""
