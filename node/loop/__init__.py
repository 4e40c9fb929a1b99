"""The rim: event loop, sockets, timers, threads, files; what the core asks for is done here.

Nothing is decided here that the core or the cluster could decide.
"""
