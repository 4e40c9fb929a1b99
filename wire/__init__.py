"""IPROTO as pure functions: frames, arguments, replies, greeting, auth, EVAL, schema rows.

Bytes in, values out, and back. Nothing here knows a tube, a socket, a clock, chance or the log.
"""
