"""In-memory tables: tuples, primary key, ordered indexes, transactions; where drivers keep tasks.

Nothing here knows what a task means, who calls, or where a record is written.
"""
