"""The client library: connection to a cluster, tubes, tasks, the worker runner.

Here: what a producer or worker needs, over the stock asyncio connector. Must not be here: the
server's rooms, Spark.
"""
