"""What a stranger, or somebody let in too far, may try on a node: one program, one line for each.

Outside of the wheel. Must not be here: fixes, or anything the product imports.
"""
