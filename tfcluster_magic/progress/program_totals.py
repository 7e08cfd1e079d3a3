"""How long a program means to train, as far as its arguments say so. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Names as people write them, once `-` is `_`; what they count.
_HOW_MANY = r"((num|nb|n|max|total|global)_?)?((train|training)_?)?"
_NAMES = (
    (re.compile(_HOW_MANY + r"steps_per_epoch$"), "steps_per_epoch"),
    (re.compile(_HOW_MANY + r"(steps|iterations)$"), "steps"),
    (re.compile(_HOW_MANY + r"epochs$"), "epochs"),
)


class Totals(NamedTuple):
    """What the program will do in all; None where its arguments do not say."""

    steps: int | None = None
    epochs: int | None = None


def total_from_arguments(arguments: Sequence[str]) -> Totals:
    """The totals named by arguments such as `--max_steps 800`, `--train-steps=800`, `--epochs 3`.

    The last one given counts. `--epochs` times `--steps_per_epoch` gives the steps where those are
    not given themselves.
    """
    found: dict[str, int] = {}
    for argument, after in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = argument.partition("=")
        number = _positive(value if equals else after)
        if name.startswith("-") and number is not None:
            name = name.lstrip("-").replace("-", "_").lower()
            found.update({kind: number for rule, kind in _NAMES if rule.match(name)})
    if "steps" not in found and "epochs" in found and "steps_per_epoch" in found:
        found["steps"] = found["epochs"] * found["steps_per_epoch"]
    return Totals(found.get("steps"), found.get("epochs"))


def _positive(text: str) -> int | None:
    """A whole number above 0, also as `1e5` or `10_000`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if 1 <= number < 1e15 and number == int(number) else None
