"""One process: configuration, command line, event loop, sockets, clock, metrics, admin API.

Whatever touches the outside world ends here; decisions about tasks belong to the rooms below.
"""
