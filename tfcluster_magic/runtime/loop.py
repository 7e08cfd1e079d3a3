"""One poll() over file descriptors, signals and timers; it sleeps while there is nothing to do.

Owns the wake-up pipe by which signals and threads end the sleep. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


# The most that poll() takes is 24 days.
LONGEST = 24 * 3600.0


class Loop:
    """Callbacks by descriptor, signal number and timer name, all called from run()."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fds: dict[int, Callable[[], None]] = {}
        self._signals: dict[int, Callable[[], None]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self.wakeup, self._wake = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._poll.register(self.wakeup, select.POLLIN)

    def wake(self) -> None:
        """End the sleep and call what was given for signal 0; safe from any thread."""
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            # Full: the loop is about to wake up anyway.
            pass

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call back for a signal, outside of signal context. 0 stands for wake()."""
        self._signals[number] = callback
        if number:
            # Any handler will do: without one the signal's default is taken, or nothing as PID 1.
            signal.signal(number, lambda _number, _frame: None)

    def on_fd(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Call back when poll() reports any of these events, an error or a hang-up."""
        self._fds[fd] = callback
        self._poll.register(fd, events)

    def off_fd(self, fd: int) -> None:
        """Forget a descriptor; unknown ones are fine."""
        if self._fds.pop(fd, None):
            self._poll.unregister(fd)

    def after(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once; a timer of the same name is replaced."""
        self._timers[name] = (time.monotonic() + seconds, callback)

    def cancel(self, name: str) -> None:
        """Forget a timer; unknown ones are fine."""
        self._timers.pop(name, None)

    def run(self, done: Callable[[], bool]) -> None:
        """Work until done() is true."""
        while not done():
            for fd, _events in self._poll.poll(self._milliseconds()):
                if fd == self.wakeup:
                    self._read_signals()
                elif fd in self._fds:
                    self._fds[fd]()
            now = time.monotonic()
            for name, (when, callback) in list(self._timers.items()):
                if when <= now:
                    self._timers.pop(name, None)
                    callback()

    def _milliseconds(self) -> int | None:
        if not self._timers:
            return None
        first = min(when for when, _ in self._timers.values())
        return max(0, int(min(first - time.monotonic(), LONGEST) * 1000) + 1)

    def _read_signals(self) -> None:
        for number in set(os.read(self.wakeup, 4096)):
            if number in self._signals:
                self._signals[number]()
