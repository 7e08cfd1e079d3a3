"""The error for faults that a user can repair, such as a missing tool or a full disk."""

from __future__ import annotations


class NodeError(Exception):
    """A message for a user: what was tried, what was found, what to do. Never shown with a
    traceback.
    """
