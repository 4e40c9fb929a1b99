"""The rules, by what they are about.

Each module holds rules of one kind; a rule knows nothing of how the log was read or what becomes of
its findings.
"""
