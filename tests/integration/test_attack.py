"""One case of each kind of attack that needs no hub, and the report and repetition of attacks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from attack.cases import NotTried, Row, attack, rows, table
from attack.kinds import KINDS, WITHOUT_HUB
from attack.target import Target

SEED = 1


@pytest.mark.parametrize("name", WITHOUT_HUB)
def test_attack_is_held(name: str, tmp_path: Path) -> None:
    """The product withstands the attack, and nothing is left behind."""
    target = Target(tmp_path)
    chosen = rows(KINDS, [name])
    held = attack(target, chosen, SEED, 1)
    target.close()
    if chosen[0].not_tried:
        pytest.skip(chosen[0].not_tried)
    assert held, table(chosen)


def sometimes(_target: Target, drawn: random.Random) -> None:
    """An attack that fails with some seeds."""
    assert drawn.random() < 0.8, f"{drawn.random()}"


def test_failure_is_told_and_repeated_by_its_seed(tmp_path: Path) -> None:
    """The table shows the first failure of a case, with a seed that repeats it exactly."""
    chosen = rows({"some": {"odd": sometimes}})
    assert not attack(Target(tmp_path), chosen, 8, 100)
    (row,) = chosen
    assert 1 < row.tries < 100 and row.held == row.tries - 1
    assert f"{'some':12} {1:5} {row.tries:5} {row.held:5}  odd: AssertionError" in table(chosen)
    seed = int(row.again.partition("--seed ")[2].split()[0])
    assert f'make attack ATTACK="--seed {seed} --only odd --tries 1"' in table(chosen)
    (again,) = repeated = rows({"some": {"odd": sometimes}})
    attack(Target(tmp_path), repeated, seed, 1)
    assert again.failure == row.failure


def test_what_cannot_be_tried_is_no_failure(tmp_path: Path) -> None:
    """The table says why a case was not tried; the other cases are tried if there is time."""

    def needs_more(_target: Target, _drawn: random.Random) -> None:
        raise NotTried("no node is up")

    chosen = rows({"cluster": {"away": needs_more}, "some": {"fine": lambda *_: None}})
    assert attack(Target(tmp_path), chosen, 1, 3)
    assert [row.tries for row in chosen] == [0, 3]
    assert "not tried: away: no node is up" in table(chosen)
    late: list[Row] = rows({"some": {"fine": lambda *_: None}})
    assert attack(Target(tmp_path), late, 1, 3, seconds=-1)
    assert "no time left" in table(late)


def test_unknown_name_is_told(tmp_path: Path) -> None:
    """With an unknown name in `--only`, nothing is tried, and the message has the name."""
    with pytest.raises(KeyError, match="no-such-case"):
        rows(KINDS, ["archives", "no-such-case"])
    names = [name for cases in KINDS.values() for name in cases]
    assert len(names) == len({*names, *KINDS}) - len(KINDS)
