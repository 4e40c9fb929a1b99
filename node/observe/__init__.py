"""What a node tells about itself: status, metrics, inventory, history, events.

Reads the other rooms; changes nothing but by the calls that an operator may make.
"""
