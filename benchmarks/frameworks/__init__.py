"""One program a framework: the application whose worker and producer `brokers` runs.

Each is imported by the framework's own worker, and run as a producer with `load.produce`. BROKER
and URL in the environment say on what. Must not be here: starting processes, figures.
"""
