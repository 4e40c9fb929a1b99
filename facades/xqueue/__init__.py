"""xqueue (moonlibs): records of the user's own layout in six states, at `box.space.NAME:method`.

Behaviour and texts: docs/compatibility-xqueue.md.
"""
