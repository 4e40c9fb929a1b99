"""What a newcomer, a developer and an operator do, done by a script that says how long it takes.

`python3 -m tests.runs FOLDER` in a checkout: clones it to FOLDER and does it all there. Needs what
the README asks for, and nothing of this checkout but its commits. docs/runs.md has a protocol.
"""
