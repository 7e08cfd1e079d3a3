"""What goes wrong outside this package's control, said so that a person can act on it."""

from __future__ import annotations


class NodeError(Exception):
    """A message for a person: what was tried, what was found, what to do. Never shown with a
    traceback.
    """
