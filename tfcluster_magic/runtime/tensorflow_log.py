r"""Recognize the log lines of TensorFlow's own C++ code in the output of a task.

A message can have several lines: a protobuf in text form, often with a sentence after it.

    I0000 00:00:1795825530.912483 16221 eager_service_impl.cc:355] SessionOptions: goo.gle/debugstr
    device_count {
      key: "CPU"
    }
    (an empty line)

A continuation line counts as part of the message only if it directly follows a line of TensorFlow
that announces a protobuf, and fits what was printed since. So a protobuf that the program itself
prints is never mistaken for one. labextension/src/logs/noise.ts has the same patterns and rules; a
test compares them. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# These patterns match log lines at the levels I (info) and W (warning). They do not match the
# levels E (error) and F (fatal), and no lines that a Python file or absl has logged. They do not
# match a line about waiting for another task, because this line says why nothing happens.
FIRST_LINES = (
    # 2026-11-21 16:36:34.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] …
    (
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(?:cc|h|cpp|cu):\d+\]"
        r"(?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))"
    ),
    # I0000 00:00:1732207594.123456    4711 cpu_device.cc:88] …
    (
        r"^[IW]\d{4} \d\d:\d\d:[\d.]+\s+\d+ \S+\.(?:cc|h|cpp|cu):\d+\]"
        r"(?!.*(?:still waiting for|[Bb]arrier timed out|[Ww]aiting for \d|[Ss]tragglers:))"
    ),
    # TensorFlow logs this as a second line after the first example above
    (
        r"^To enable the following instructions: .* "
        r"rebuild TensorFlow with the appropriate compiler flags\.$"
    ),
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$",
)
# A first line after which a protobuf follows. Older versions of TensorFlow print the
# first field at once, without a mark.
ANNOUNCES = r'^.*(?:\bgoo\.gle\/debug[a-z]+ *|[ :]name: ".*"|[ :][a-z_]+ (\{)|, but input \d+:)$'
# One line of a protobuf: a field with its value, the begin of a message, or its end.
FIELD = r'^( *)(?:(\})|(?:[A-Za-z]\w*|\[[\w./-]+\])(?:( \{)|: (?:".*"|\[.*\]|[-+]?\w[-+.\w]*)))$'
# What else a message can contain after a protobuf; a colon announces one more.
SENTENCES = (
    r"^(?:\twhile inferring type of node '.*'| is neither a subtype nor a supertype of the"
    r" combined inputs preceding it:|\. Consider either turning off auto-sharding .*)$"
)

_FIRST = re.compile("|".join(FIRST_LINES))
_ANNOUNCES, _FIELD = re.compile(ANNOUNCES, re.ASCII), re.compile(FIELD, re.ASCII)
_SENTENCES = re.compile(SENTENCES)
_OUTSIDE, _AFTER = -2, -1


class TensorFlowLog:
    """TensorFlow's own log lines among the lines of one task, which are passed in order."""

    def __init__(self) -> None:
        # how many messages of a protobuf are open; _AFTER after the empty line at its end
        self._depth = _OUTSIDE

    def hides(self, text: str) -> bool:
        """Return whether TensorFlow itself logged this line, the next one of the task."""
        if self._depth != _OUTSIDE and self._continues(text):
            return True
        self._depth = _OUTSIDE
        if not _FIRST.match(text):
            return False
        if found := _ANNOUNCES.match(text):
            self._depth = 1 if found[1] else 0
        return True

    def _continues(self, text: str) -> bool:
        depth = self._depth
        if depth <= 0 and _SENTENCES.match(text):
            self._depth = 0 if text.endswith(":") else _OUTSIDE
            return True
        if depth == 0 and (not text or text.startswith("goo.gle/debug")):
            self._depth = 0 if text else _AFTER
            return True
        if depth >= 0 and (found := _FIELD.match(text)):
            indent, closes, opens = found.groups()
            outer = depth - 1 if closes else depth
            self._depth = outer + 1 if opens else outer
            return len(indent) == 2 * outer
        return False


def are_program_lines(lines: Iterable[str]) -> list[bool]:
    """Return for each of a task's consecutive lines whether it is not one of TensorFlow's own."""
    log = TensorFlowLog()
    return [not log.hides(line) for line in lines]


def program_lines(lines: Iterable[str]) -> list[str]:
    """Return a task's consecutive lines without TensorFlow's own log lines."""
    log = TensorFlowLog()
    return [line for line in lines if not log.hides(line)]
