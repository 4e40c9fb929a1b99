"""The judge: an audit that replays the whole state of a log by a model of its own, in one process.

Here: reading a log into columns, the replay, the rules, the verdict. Must not be here: code of the
engine or of drivers, which is what is judged, and Spark.
"""
