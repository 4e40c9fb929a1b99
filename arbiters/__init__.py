"""The arbiter: one register outside of the nodes that says who may lead, and who lives.

Here: what a node may ask of it (base.py), and the ways to each kind: etcd, the witness, one in
memory. Must not be here: what a node makes of the answers (statemachine/), the witness (witness/).
"""
