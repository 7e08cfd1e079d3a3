"""Limits on guesses of passwords."""

from __future__ import annotations

import pytest
from support.clock import Clock

from tfcluster_magic.hub.auth import guess_limits
from tfcluster_magic.hub.auth.guess_limits import HashQueue, SignInLimits, Throttle, TooManyTries


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tries(clock: Clock) -> SignInLimits:
    return SignInLimits(each=3, strangers=5, noisy=7, window=60.0, long_window=600.0, clock=clock)


def test_tries_are_counted_until_they_are_old(clock: Clock) -> None:
    """After too many attempts, the wait lasts until the oldest attempt is outside the window."""
    tries = Throttle(3, 60.0, clock)
    for _ in range(3):
        assert tries.wait("ada") == 0
        tries.begin("ada")
        clock.now += 10
    assert tries.wait("ada") == 30
    assert tries.wait("bob") == 0
    clock.now += 30
    assert tries.wait("ada") == 0


def test_a_right_password_forgets_the_wrong_ones(clock: Clock) -> None:
    """A correct password clears all attempts at its account, and one attempt from its address."""
    tries = Throttle(2, 60.0, clock)
    for key in ("ada", "ada", "address", "address"):
        tries.begin(key)
    tries.forget("ada")
    tries.forgive("address")
    tries.forgive("unknown")
    assert tries.wait("ada") == tries.wait("address") == 0
    tries.begin("address")
    assert tries.wait("address") == 60


def test_a_shared_address_refuses_nobody(tries: SignInLimits) -> None:
    """After wrong guesses at made-up names, other users at the same address wait in a queue, but
    can sign in.
    """
    for number in range(7):
        tries.begin(f"made-up-{number}", "10.0.0.1", None)
    queue, one = tries.begin("ada", "10.0.0.1", None)
    assert queue is HashQueue.NOISY
    one.right()
    assert tries.begin("ada", "10.0.0.2", None)[0] is HashQueue.NEW


def test_addresses_of_one_ipv6_network_count_as_one(tries: SignInLimits) -> None:
    """All addresses of an IPv6 network share one limit; another network has its own limit."""
    for number in range(3):
        tries.begin("ada", f"2001:db8:0:1::{number}", None)
    with pytest.raises(TooManyTries):
        tries.begin("ada", "2001:db8:0:1:ffff:ffff:ffff:ffff", None)
    assert tries.begin("ada", "2001:db8:0:2::1", None)[0] is HashQueue.NEW
    for number in range(7):
        tries.begin(f"made-up-{number}", f"2001:db8:0:3::{number}", None)
    assert tries.begin("bob", "2001:db8:0:3::99", None)[0] is HashQueue.NOISY


def test_ipv4_addresses_of_a_dual_stack_socket_count_alone(tries: SignInLimits) -> None:
    """Each IPv4 address has its own limit, even if it is written as an IPv6 address."""
    for _try in range(3):
        tries.begin("ada", "::ffff:10.0.0.1", None)
    with pytest.raises(TooManyTries):
        tries.begin("ada", "10.0.0.1", None)
    assert tries.begin("ada", "::ffff:10.0.0.2", None)[0] is HashQueue.NEW


def test_whose_password_is_guessed_gets_in(tries: SignInLimits, clock: Clock) -> None:
    """Wrong guesses at an account block the guesser's address at once, and soon every browser that
    has never signed in. A browser that has signed in before has its own limit.
    """
    for _ in range(3):
        tries.begin("ada", "10.0.0.1", None)
    with pytest.raises(TooManyTries):
        tries.begin("ada", "10.0.0.1", None)
    for number in range(2, 4):
        tries.begin("ada", f"10.0.0.{number}", None)
    with pytest.raises(TooManyTries) as refused:
        tries.begin("ada", "10.0.0.9", None)
    assert refused.value.seconds == 600

    for _ in range(3):
        queue, one = tries.begin("ada", "10.0.0.1", "hers")
        assert queue is HashQueue.KNOWN
    with pytest.raises(TooManyTries):
        tries.begin("ada", "10.0.0.1", "hers")
    one.right()
    assert tries.begin("ada", "10.0.0.1", "hers")[0] is HashQueue.KNOWN
    clock.now += 600
    assert tries.begin("ada", "10.0.0.1", None)[0] is HashQueue.NEW


def test_a_right_password_gives_others_no_more_tries(tries: SignInLimits) -> None:
    """A guesser gets no new attempts when the account's owner signs in from another address."""
    for number in range(4):
        tries.begin("ada", f"10.0.0.{number}", None)
    tries.begin("ada", "10.0.0.8", None)[1].right()
    tries.begin("ada", "10.0.0.9", None)
    with pytest.raises(TooManyTries):
        tries.begin("ada", "10.0.0.9", None)


def test_many_names_take_no_more_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of remembered names is limited; the name whose last attempt is oldest is forgotten
    first.
    """
    monkeypatch.setattr(guess_limits, "KEYS", 3)
    tries = Throttle(1, 60.0, clock)
    for key in "abcd":
        tries.begin(key)
    assert [tries.wait(key) > 0 for key in "abcd"] == [False, True, True, True]
