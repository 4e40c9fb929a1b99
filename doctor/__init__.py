"""What `tandemq doctor` looks at: a configuration, a data directory, a running node.

Here: examinations that change nothing and tell what they found. Must not be here: printing.
"""
