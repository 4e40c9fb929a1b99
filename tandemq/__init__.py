"""What applications import: a client that follows the master, a worker runner, Spark sources.

Built on stock connectors. Nothing of the server is imported from here.
"""
