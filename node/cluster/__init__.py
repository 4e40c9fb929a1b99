"""What nodes are to each other, pure: links, peers, the role, questions before a promotion.

Frames in, frames and effects out; sockets and timers are the loop's.
"""
