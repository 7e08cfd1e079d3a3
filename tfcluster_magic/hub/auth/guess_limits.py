"""Limits on guesses of passwords: which tries are refused, and in which queue a try is checked.

An attacker who guesses passwords cannot lock out the account's owner.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from ipaddress import IPv6Address, IPv6Network, ip_address

KEYS = 10_000
"""Maximum number of keys whose tries a `Throttle` remembers. It drops the key that was used longest
ago first.
"""


class Throttle:
    """Counts of tries by key: an account, an address or a browser.

    Args:
        tries: maximum tries of a key within the window.
        window: length of the window, in seconds.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, tries: int, window: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tries = tries
        self.window = window
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Return the seconds until this key may try again; 0 if it may try now."""
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
        """Take back the count of one try that was not a guess."""
        if times := self._times.get(key):
            times.pop()

    def forget(self, key: str) -> None:
        """Take back the count of all tries of a key whose user knows the password."""
        self._times.pop(key, None)


class HashQueue(Enum):
    """The queue in which a password waits to be compared; queues do not delay each other."""

    KNOWN = "known"
    """Tries from browsers in which the account has signed in before."""
    NEW = "new"
    NOISY = "noisy"
    """Tries from addresses with many wrong passwords; all these addresses share one thread."""


class TooManyTries(Exception):
    """The try is refused; the next one is allowed in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class SignInLimits:
    """Limits of sign-in tries.

    Args:
        each: maximum tries for an account within `window`, from one address or from one browser in
            which it has signed in before.
        strangers: maximum tries for an account within `long_window`, from all other browsers
            together.
        noisy: maximum tries from an address within `window`; further tries from the address wait in
            the queue NOISY.
        window, long_window: lengths of the windows, in seconds.
        clock: returns monotonic seconds.
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

    def begin(
        self, name: str, address: str, browser: str | None
    ) -> tuple[HashQueue, SignInAttempt]:
        """Count a try. Return the queue for its password, and the try itself. If the password turns
        out to be right, call the method `right` of the try.

        Args:
            name: the account.
            address: the address of the client.
            browser: the mark of a browser in which the account has signed in before; None for any
                other browser.

        Raises:
            TooManyTries: the try has to wait, even with the right password.
        """
        address = network(address)
        if browser is not None and not self._known.wait(browser):
            self._known.begin(browser)
            return HashQueue.KNOWN, SignInAttempt(forget=((self._known, browser),))
        pair = f"{address}\0{name}"
        if wait := max(self._pair.wait(pair), self._account.wait(name)):
            raise TooManyTries(wait)
        noisy = self._address.wait(address) > 0
        self._pair.begin(pair)
        self._account.begin(name)
        self._address.begin(address)
        # Forgive only this try. If all earlier tries were forgiven, each sign-in of the account's
        # owner would let somebody who guesses passwords start again.
        forgive = ((self._account, name), (self._address, address))
        return HashQueue.NOISY if noisy else HashQueue.NEW, SignInAttempt(
            ((self._pair, pair),), forgive
        )


def network(address: str) -> str:
    """Return the key under which tries from an address are counted. For IPv6 it is the /64, because
    one customer controls all of it.
    """
    try:
        found = ip_address(address)
    except ValueError:  # a Unix socket has no address
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))
    return address


class SignInAttempt:
    """A try whose result is not known yet."""

    def __init__(
        self,
        forget: tuple[tuple[Throttle, str], ...] = (),
        forgive: tuple[tuple[Throttle, str], ...] = (),
    ) -> None:
        self._forget, self._forgive = forget, forgive

    def right(self) -> None:
        """Take back the count of the try, because the password was right."""
        for throttle, key in self._forget:
            throttle.forget(key)
        for throttle, key in self._forgive:
            throttle.forgive(key)
