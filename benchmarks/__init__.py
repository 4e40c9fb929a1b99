"""Measurements of speed and memory, run by hand or by `make bench`; never tests.

Here: loads, yardsticks, the one table with goals. Must not be here: product code, timed tests.
"""
