"""The log's files as readers need them: blocks, segments, snapshots, names, terms.

Shared by the server, which writes them, and by Spark jobs; opens no file by itself.
"""
