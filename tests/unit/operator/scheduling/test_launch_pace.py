"""The rate at which runs of one namespace start, whoever launches them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.admission_cluster import Place
from support.clock import Clock
from support.polling import wait_until

from tfcluster_magic.operator.reconcile.status_rules import waiting_message
from tfcluster_magic.operator.scheduling.admission import Admitted, Waiting
from tfcluster_magic.operator.scheduling.launch_queue import AT_ONCE, EVERY, LaunchPace


@pytest.fixture
def there() -> Iterator[Place]:
    """A cluster with a large node and two users; one user has one run more than may start at
    once.
    """
    made = Place()
    made.node("node-1", 1000)
    for name in ("alice", "bob"):
        made.tenant(name)
    for number in range(1, AT_ONCE + 2):
        made.run("alice", f"digits-{number}", 1, 1)
    made.run("bob", "digits-1", 1, 1)
    made.begin()
    yield made
    made.end()


def test_who_launches_all_the_time_takes_nothing_from_others(there: Place) -> None:
    """If many runs are launched in a namespace, AT_ONCE of them start at once, and then one run
    starts every EVERY seconds. Other namespaces are not affected, and the message of a waiting run
    has this reason.
    """
    clock = Clock()
    there.admission.pace = LaunchPace(clock)
    for number in range(1, AT_ONCE + 1):
        assert there.decide("alice", f"digits-{number}") == Admitted()
    told = there.decide("alice", f"digits-{AT_ONCE + 1}")
    assert isinstance(told, Waiting)
    assert f"this namespace has started {AT_ONCE} clusters" in str(told.sentence)
    assert there.decide("bob", "digits-1") == Admitted()
    clock.now += EVERY
    assert there.decide("alice", f"digits-{AT_ONCE + 1}") == Admitted()


def test_a_place_does_not_change_each_second(there: Place) -> None:
    """While the rate limits the queue, runs far back in the queue get rounded places, so that each
    start changes few records.
    """
    clock = Clock()
    there.admission.pace = LaunchPace(clock)
    waiting = [f"later-{number}" for number in range(1, 151)]
    for name in waiting:
        there.run("alice", name, 1, 1)
    begun = [f"digits-{number}" for number in range(1, AT_ONCE + 2)]
    for name in begun[:AT_ONCE]:
        there.decide("alice", name)
    wait_until(lambda: told(there, waiting[0])[1] == 2)

    before = {name: told(there, name) for name in waiting}
    clock.now += EVERY
    assert there.decide("alice", begun[-1]) == Admitted()
    wait_until(lambda: told(there, waiting[1])[1] == 2)
    after = {name: told(there, name) for name in waiting}

    assert before[waiting[98]] == (f"{PACED} (among the next 100 in the queue)", 100)
    assert before[waiting[60]] == (f"{PACED} (among the next 70 in the queue)", 70)
    assert before[waiting[5]] == (f"{PACED} (place 7 in the queue)", 7)
    assert sum(before[name] != after[name] for name in waiting) < 20


PACED = f"its turn: this namespace has started {AT_ONCE} clusters; the others start one per second"


def told(there: Place, name: str) -> tuple[str, int]:
    """Return the message and the place of a waiting run."""
    verdict = there.decide("alice", name)
    assert isinstance(verdict, Waiting)
    return str(waiting_message(verdict)), verdict.place


def test_what_was_used_is_made_up_for() -> None:
    """After a pause without launches, as many runs may start at once as the pause has earned, but
    never more than AT_ONCE.
    """
    clock = Clock()
    pace = LaunchPace(clock)

    def begin_all() -> int:
        begun = 0
        while pace.is_due("alice"):
            pace.note("alice")
            begun += 1
        return begun

    assert begin_all() == AT_ONCE
    assert begin_all() == 0
    clock.now += 5 * EVERY
    assert begin_all() == 5
    clock.now += 1e6
    assert begin_all() == AT_ONCE
