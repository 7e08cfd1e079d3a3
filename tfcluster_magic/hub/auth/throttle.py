"""Slows down password guessing without locking out the owner of the account.

Tries are counted for each account from each address, and for each account from all addresses. A
browser in which the account has signed in before shows a signed cookie (see `authenticator`) and
has its own count, whatever others try. Many wrong passwords from one address refuse nobody there,
because a whole lab may share it: its tries wait for each other in a separate queue. Memory is
bounded, whatever names and addresses are tried. A try counts from its start, so that a hundred at
the same moment count as a hundred. The counts belong to this process; a restart of the hub forgets
them. This module knows neither passwords nor accounts.

ref: https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum

KEYS = 10_000
"""Keys that are remembered; the one tried longest ago goes first."""


class Throttle:
    """Tries of keys: accounts, or addresses.

    Args:
        tries: how many are allowed within the window.
        window: in seconds.
        clock: seconds, never backwards.
    """

    def __init__(
        self, tries: int, window: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tries = tries
        self.window = window
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until the next try of this key is allowed, 0 for now."""
        times = self._times.get(key)
        if times is None or len(times) < self.tries:
            return 0.0
        return max(0.0, times[0] + self.window - self._clock())

    def begin(self, key: str) -> None:
        """Count a try."""
        times = self._times.setdefault(key, deque(maxlen=self.tries))
        times.append(self._clock())
        self._times.move_to_end(key)
        if len(self._times) > KEYS:
            self._times.popitem(last=False)

    def forgive(self, key: str) -> None:
        """Take one try back: it was no guess."""
        if times := self._times.get(key):
            times.pop()

    def forget(self, key: str) -> None:
        """Take all of them back: the password is known there."""
        self._times.pop(key, None)


class Queue(Enum):
    """The queue in which a password waits to be compared; no queue holds up another."""

    KNOWN = "known"
    """Browsers in which the account has signed in before."""
    NEW = "new"
    NOISY = "noisy"
    """Addresses that many wrong passwords came from: one at a time for all of them."""


class TooManyTries(Exception):
    """A try is refused for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Tries:
    """Counts of sign-ins.

    Args:
        each: tries for an account from one address or known browser, within `window`.
        strangers: tries for an account from all unknown browsers, within `long_window`.
        noisy: tries from an address within `window`, after which it has to queue apart.
        window, long_window: in seconds.
        clock: seconds, never backwards.
    """

    def __init__(
        self,
        each: int,
        strangers: int,
        noisy: int,
        window: float,
        long_window: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = Throttle(each, window, clock)
        self._pair = Throttle(each, window, clock)
        self._account = Throttle(strangers, long_window, clock)
        self._address = Throttle(noisy, window, clock)

    def begin(self, name: str, address: str, browser: str | None) -> tuple[Queue, Try]:
        """Count a try; `browser` is one in which this account has signed in before.

        Raises:
            TooManyTries: the try has to wait, even with the right password.
        """
        if browser is not None and not self._known.wait(browser):
            self._known.begin(browser)
            return Queue.KNOWN, Try(forget=((self._known, browser),))
        pair = f"{address}\0{name}"
        if wait := max(self._pair.wait(pair), self._account.wait(name)):
            raise TooManyTries(wait)
        noisy = self._address.wait(address) > 0
        self._pair.begin(pair)
        self._account.begin(name)
        self._address.begin(address)
        # Not all counts of the account: a guesser would start again with each sign-in of its owner.
        forgive = ((self._account, name), (self._address, address))
        return Queue.NOISY if noisy else Queue.NEW, Try(((self._pair, pair),), forgive)


class Try:
    """One try, until it is known whether its password was right."""

    def __init__(
        self,
        forget: tuple[tuple[Throttle, str], ...] = (),
        forgive: tuple[tuple[Throttle, str], ...] = (),
    ) -> None:
        self._forget, self._forgive = forget, forgive

    def right(self) -> None:
        """Note that the password was right."""
        for throttle, key in self._forget:
            throttle.forget(key)
        for throttle, key in self._forgive:
            throttle.forgive(key)
