"""One thread that does something again and again, beside the turns.

Promises that it begins when it is told, that its end is known, and that a daemon thread holds up
no end of the process; what it does, and how it takes its own errors, is its subclass'.
"""

from __future__ import annotations

import abc
import threading


class Background(abc.ABC):
    """A thread called `name` that runs `_run` until it returns; that looks at `_enough`."""

    def __init__(self, name: str) -> None:
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Do nothing more."""
        self._enough.set()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @abc.abstractmethod
    def _run(self) -> None:
        """What it does."""
