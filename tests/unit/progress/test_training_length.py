"""The intended length of a training, from a program's arguments."""

from __future__ import annotations

import pytest

from tfcluster_magic.progress.run_observation import totals_from_arguments


@pytest.mark.parametrize(
    ("arguments", "steps", "epochs"),
    [
        ("--steps 800", 800, None),
        ("--max_steps=800 --batch_size 32", 800, None),
        ("--train-steps 1e5", 100_000, None),
        ("--num_train_steps 10_000", 10_000, None),
        ("--iterations 5", 5, None),
        ("--epochs 3", None, 3),
        ("--num-epochs=3 --steps 7", 7, 3),
        ("--epochs 3 --steps_per_epoch 100", 300, 3),
        ("--steps 5 --steps 6", 6, None),
        ("--steps", None, None),
        ("--steps many", None, None),
        ("--steps -1", None, None),
        ("--steps 1.5", None, None),
        ("--steps nan", None, None),
        ("steps 5", None, None),
        ("--save_steps 5 --log_every 3 --warmup_steps 9", None, None),
        ("", None, None),
    ],
)
def test_totals(arguments: str, steps: int | None, epochs: int | None) -> None:
    """Totals are recognised only by common names of arguments."""
    assert totals_from_arguments(arguments.split()) == (steps, epochs)
