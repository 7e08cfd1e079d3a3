"""What Tab offers after `%tfcluster`: the same words as in a shell, from the same grammar."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from . import tfcluster
from .terminal import Terminal


def complete(shell: Any, event: Any) -> list[str]:
    """IPython's hook: the words that fit where the cursor is."""
    magics = shell.magics_manager.registry.get("TFClusterMagics")
    before = re.split(r"%tfcluster\s", event.text_until_cursor, maxsplit=1)
    if magics is None or len(before) < 2:
        return []
    return words(before[1], Terminal(magics.manager))


def words(text: str, terminal: Terminal) -> list[str]:
    """The words that may stand at the end of `text`, what was typed after `%tfcluster`."""
    args = split_arg_string(text)
    unfinished = args.pop() if args and not text[-1:].isspace() else ""
    completer = ShellComplete(tfcluster, {"obj": terminal}, terminal.program, "")
    found: list[str] = []
    for item in completer.get_completions(args, unfinished):
        found += _files(item, unfinished)
    return found


def _files(item: CompletionItem, unfinished: str) -> list[str]:
    """A path parameter is completed by the shell; there is none here, so by us."""
    if item.type not in ("file", "dir"):
        return [item.value]
    matches = glob.glob(glob.escape(unfinished) + "*")
    return [path + "/" if os.path.isdir(path) else path for path in sorted(matches)]
