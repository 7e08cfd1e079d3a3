"""What Tab offers after `%tfcluster`: the same words as in a shell, from the same grammar."""

from __future__ import annotations

import glob
import os

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from ..cli import tfcluster
from ..cli.terminal import Terminal


def words(text: str, terminal: Terminal) -> list[str]:
    """The words that may stand at the end of `text`, what was typed after `%tfcluster`."""
    args, typed = _split(text)
    completer = ShellComplete(tfcluster, {"obj": terminal}, terminal.program, "")
    found: list[str] = []
    for item in completer.get_completions(args, typed):
        found += _files(item, typed)
    return found


def unfinished(text: str) -> str:
    """The end of `text` that a word of `words` takes the place of."""
    typed = _split(text)[1]
    return typed.partition("=")[2] if typed.startswith("--") and "=" in typed else typed


def _split(text: str) -> tuple[list[str], str]:
    """The finished words of `text`, and the one that is being typed."""
    args = split_arg_string(text)
    typed = args.pop() if args and not text[-1:].isspace() else ""
    return args, typed


def _files(item: CompletionItem, typed: str) -> list[str]:
    """A path parameter is completed by the shell; there is none here, so by us."""
    if item.type not in ("file", "dir"):
        return [item.value]
    matches = glob.glob(glob.escape(typed) + "*")
    return [path + "/" if os.path.isdir(path) else path for path in sorted(matches)]
