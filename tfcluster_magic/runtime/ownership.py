"""Whose an output folder is: the run that came first leaves its uid there, as the name of a folder.

Promises that a run never writes between the files of another one that had its number: a launch from
where the log volume is not mounted cannot see that the number is used. A folder and not a file, for
its name is there at once and whole on every volume. Standard library, Python 3.8.
"""

from __future__ import annotations

import os

from task_config import ConfigError

MARK = ".tfcluster-run-"


def take(folder: str, uid: str) -> None:
    """Make the folder this run's own. Raises ConfigError when it is another's, OSError."""
    own = MARK + uid
    # A peer of this run leaves the mark before anything else: a list that was begun after another
    # showed something has it. A look at the mark itself would take a volume's error for "no".
    if os.listdir(folder) and own not in os.listdir(folder):
        raise ConfigError(_taken(folder))
    os.makedirs(os.path.join(folder, own), exist_ok=True)
    if any(name.startswith(MARK) and name != own for name in os.listdir(folder)):
        raise ConfigError(_taken(folder))


def _taken(folder: str) -> str:
    return (
        f"the output folder {folder} has files of an earlier run of that number, which are left "
        "as they are: launch again for the next number, or with another --name; a notebook of the "
        "cluster sees which numbers are used"
    )
