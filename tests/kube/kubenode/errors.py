"""Errors outside this package's control, with messages on which a user can act."""

from __future__ import annotations


class NodeError(Exception):
    """A message for a user: what was tried, what was found, what to do. Never shown with a
    traceback.
    """
