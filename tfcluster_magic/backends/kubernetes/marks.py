"""Where in an answer of the API, or in a copy, that begins which was not given yet. Pure.

Promises that nothing is left out for its time stamp: a node's clock may step back, and lines may
have equal stamps. A line is recognised by its place among those with its stamp, or by those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

Said = tuple[str, bytes]
"""A line of the API: its time stamp as the node wrote it, and its text."""


@dataclass
class Mark:
    """The line of a log that was given last."""

    stamp: str = ""
    same: int = 0
    """Lines given, one after the other up to this one, that have this very stamp."""
    length: int = 0
    """Bytes given of it: a line that has no end yet grows."""

    def move(self, line: Said) -> None:
        """Set it on the line that follows."""
        stamp, text = line
        self.same = self.same + 1 if stamp == self.stamp else 1
        self.stamp, self.length = stamp, len(text)

    def since(self, margin: float) -> str:
        """When so many seconds before the line began; the API takes whole seconds."""
        zone = self.stamp[29:].replace("Z", "+00:00")
        second = datetime.fromisoformat(self.stamp[:19] + zone)
        return (second - timedelta(seconds=margin)).isoformat()

    def find(self, said: Sequence[Said], cut: bool) -> int | None:
        """Which of `said` is the marked line; None when it is not among them.

        `cut`: lines before these were left out of the answer, perhaps some with the same stamp.
        """
        end = next((i for i in range(len(said) - 1, -1, -1) if said[i][0] == self.stamp), None)
        if end is None:
            return None
        begin = end
        while begin and said[begin - 1][0] == self.stamp:
            begin -= 1
        if cut and not begin:
            return None
        return min(begin + self.same - 1, end)


def behind(lines: Sequence[str], given: Sequence[str]) -> int | None:
    """Where in `lines` that begins which follows the latest occurrence of `given`, whose last line
    may have grown; None when it is not there.
    """
    *before, last = given
    for at in range(len(lines) - 1, len(before) - 1, -1):
        if lines[at].startswith(last) and list(lines[at - len(before) : at]) == before:
            return at + 1
    return None
