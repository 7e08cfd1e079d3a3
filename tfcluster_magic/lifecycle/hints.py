"""Hints for known errors: what a task's last lines say, and what to do about it.

Pure: lines in, one line out. Owns the table of errors that people meet, in order of precedence.
"""

from __future__ import annotations

import re

from ..i18n import _, mark
from ..spec import TaskExit

_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"ModuleNotFoundError: No module named '?tensorflow\b",
        mark(
            "TensorFlow is missing where the tasks run: `python -m pip install tensorflow-cpu`, "
            "or on Kubernetes an image that has it (--image)"
        ),
    ),
    (
        r"ModuleNotFoundError: No module named '?([\w.]+)",
        mark(
            "Install it for the Python that `tfcluster options` names: `python -m pip install {0}`"
        ),
    ),
    (
        r"(?:Could not start gRPC server|Address already in use|Failed to add port|errno: ?98)",
        mark(
            "The program asked for a port that is taken: use its address in TF_CONFIG or --*_hosts"
        ),
    ),
    (
        r"File \"(?:[^\"]*/)?([^\"/]+)\", line (\d+)\n(?:.*\n){0,2}(?:Syntax|Indentation|Tab)Error",
        mark("It is in line {1} of {0}"),
    ),
    (
        r"(?:exec|line \d+): ([\w./+-]+): (?:command )?not found",
        mark("There is no command {0} where the tasks run"),
    ),
    (r"No space left on device", mark("The disk is full: free space, or write somewhere else")),
    (
        r"create_per_worker_dataset|Attempt to convert a value \(PerReplica",
        mark(
            "Keras 3 cannot fit() under this strategy: use tf_keras (--env TF_USE_LEGACY_KERAS=1)"
        ),
    ),
    (
        r"py_function|PyFunc|EagerPyFunc",
        mark("py_function runs only in the process that defined it: place it there"),
    ),
    (
        r"Permission denied: '?([^']+)",
        mark("The task may not touch {0}: write to $TFCLUSTER_OUTPUT_DIR instead"),
    ),
    (
        r"error: unrecognized arguments?: (.+)",
        mark("The program does not know {0}: check what follows `--`"),
    ),
)
_NOISE = re.compile(
    r"^\s*$|^[IWE]\d{4} |^\d{4}-\d\d-\d\d .*: [IWE] |^\*\*\*|^\s+(File |@|\^|~)|^Traceback "
)


def last_words(task_exit: TaskExit) -> str:
    """The line that says best why a task failed: its last one that is not log noise."""
    for line in reversed(task_exit.last_lines):
        if not _NOISE.match(line):
            return line.strip()[:300]
    return ""


def hint(task_exit: TaskExit) -> str:
    """What to do about a known error, or nothing."""
    text = "\n".join(task_exit.last_lines)
    for pattern, advice in _HINTS:
        if match := re.search(pattern, text):
            return _(advice).format(*(g.strip() for g in match.groups()))
    return ""
