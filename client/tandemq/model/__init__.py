"""Nouns everyone shares: task states, record codec, position and terms, errors, limits.

Plain values and pure functions only. Nothing here knows a tube, a socket, a file or a clock.
"""
