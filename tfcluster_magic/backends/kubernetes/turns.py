"""When each task is asked for its lines while all of them are followed. Pure.

Promises that the first look at every task comes at once, that one which prints is asked again
soon, and that whoever follows asks at most `RATE` questions a second.

Why questions and no streams (`follow=true`): a stream is a connection here, in the API server and
to the kubelet for as long as somebody looks, and a thread here: 600 for one look at 600 tasks, and
one that went silent with its node looks like a task that prints nothing. A question takes the API
server about 2 ms. 2000 tasks, four for each of 500 people who all look, are 250 questions a second
while they are quiet and 2000 when all of them print all the time; asking each task every 0.4 s
would be 5000 in both cases. Who follows 600 tasks that print sees lines up to 15 s late, and of
few tasks up to 1 s.
"""

from __future__ import annotations

from dataclasses import dataclass

SOON = 1.0
"""Seconds after which a task that printed is asked again."""
SELDOM = 8.0
"""The same of one that was quiet, at most: each time twice as long."""
RATE = 40.0
"""Questions a second for all tasks together, beside the first ones."""


@dataclass
class _Turn:
    at: float = 0.0
    pause: float = 0.0
    pending: bool = False
    woken: bool = False


class Turns:
    """The turns of so many tasks, which are numbered."""

    def __init__(self, tasks: int) -> None:
        self._turns = [_Turn() for _ in range(tasks)]

    def due(self, now: float, most: int) -> list[int]:
        """Tasks to ask now, those first that wait the longest; each until it was `answered`."""
        found = [i for i, turn in enumerate(self._turns) if not turn.pending and turn.at <= now]
        found = sorted(found, key=lambda i: self._turns[i].at)[: max(0, most)]
        for each in found:
            self._turns[each].pending = True
        return found

    def wake(self, task: int) -> None:
        """Its pod has changed: it is asked at once, perhaps for its first or last lines."""
        turn = self._turns[task]
        turn.at, turn.pause, turn.woken = 0.0, 0.0, turn.pending

    def answered(self, task: int, now: float, found: bool, behind: bool) -> None:
        """The answer is there: whether it had lines, and whether more can be read at once."""
        turn = self._turns[task]
        turn.pending = False
        behind, turn.woken = behind or turn.woken, False
        turn.pause = SOON if found else min(SELDOM, 2 * (turn.pause or SOON / 2))
        # All of them at this pace are RATE questions a second.
        turn.at = now if behind else now + max(turn.pause, len(self._turns) / RATE)
