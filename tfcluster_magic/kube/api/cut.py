"""The end of a streamed answer, made by another thread than the one that reads it.

Promises that a reader who waits for the server's next word ends at once, instead of when that word
or its time limit comes. Owns no connection.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import urllib3


class Cut:
    """Ends a stream that another thread reads: the reader gets an ApiError, or the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: urllib3.BaseHTTPResponse | None = None
        self.made = False

    def __call__(self) -> None:
        """End it, and any later one."""
        with self._lock:
            self.made = True
            self._shut()

    def reach(self, response: urllib3.BaseHTTPResponse | None) -> None:
        """This is the stream now."""
        with self._lock:
            self._response = response
            if self.made:
                self._shut()

    def _shut(self) -> None:
        if self._response is not None:
            with suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
                self._response.shutdown()
