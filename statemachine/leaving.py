"""Why the fiber leaves what is under way. Raised and caught within its walk only."""

from __future__ import annotations


class StepFailed(Exception):
    """The owner answered a step with Failed."""


class NotAllowed(Exception):
    """What is asked for may not be done, for a reason no waiting helps against."""


class Leave(Exception):
    """What is under way is not wanted, or not allowed, any more."""


class Overdue(Exception):
    """The deadline of what is under way has passed."""
