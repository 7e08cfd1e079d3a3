"""One case of each kind of attack on a real hub started like `make run`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attack.cases import attack, rows, table
from attack.kinds import KINDS, WITHOUT_HUB
from attack.target import Target
from support.hub.make_run import Hub

SEED = 1
SLOW = {"launch-options"}
QUICK = (
    *(name for name in KINDS["requests"] if name not in SLOW),
    *("forged-address", "reset", "used-link", "weak-passwords", "password-forms"),
    *("one-name-at-once", "one-run-at-once", "one-link-at-once", "notebook", "kernel"),
)


@pytest.fixture(scope="module")
def target(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return a target of attacks, whose hub all tests of this file share."""
    made = Target(tmp_path_factory.mktemp("attack"), hub)
    yield made
    made.close()


@pytest.mark.parametrize("name", QUICK)
def test_attack_is_held(name: str, target: Target) -> None:
    """The product withstands the attack, and nothing is left behind."""
    chosen = rows(KINDS, [name])
    held = attack(target, chosen, SEED, 1)
    assert held, table(chosen)


def test_every_kind_is_tried() -> None:
    """Every kind of attack is in the suite, except those on Kubernetes (`make test-kube`)."""
    tried = {row.kind for row in rows(KINDS, [*QUICK, *WITHOUT_HUB])}
    assert tried == {*KINDS} - {"kubernetes"}
