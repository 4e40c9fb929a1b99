"""The witness: one process on a third machine that keeps a register for each cluster of nodes.

Here: its log (register.py), the nodes' keys (liveness.py), its HTTP (server.py, checks.py,
metrics.py), its life (process.py). Must not be here: what a seat means, how nodes ask (arbiters/),
or any agreement with another process: there is one witness, and who wants several uses etcd.
"""
