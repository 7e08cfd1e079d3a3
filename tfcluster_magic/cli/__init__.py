"""The command line `tfcluster VERB …` and the parser behind `%tfcluster VERB …`.

Shell and notebook share one grammar and one set of messages. Every error is one message with its
own exit code. A command imports only what its verb needs. The commands are in the modules of this
package; most commands call one method of the manager.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from ..errors import TFClusterError, UsageError
from ..i18n import ENGLISH, _, language, requested_language
from .group import LazyGroup, translated_click_message
from .terminal import Detached, Interrupted, Terminal

DETACHED = 130

EPILOG = """\b
Exit codes:
  0   done
  1   any other error
  2   the request is wrong; nothing was created
  3   there is no room; the message names what would fit
  4   the command does not fit the state of the run, or the name is taken
  5   no such run, task or log
  6   the backend is not available
  7   it cannot run here: a Python, a folder or a permission is missing
  10  the run that the command waited for ended without success
  11  the wait timed out; the run goes on
  130 detached by Ctrl-C; the run goes on

A run is called NAME-N, as in digits-2; NAME alone means its newest run.
In a notebook: %load_ext tfcluster_magic, then %tfcluster with the same arguments."""


@click.command(cls=LazyGroup, epilog=EPILOG)
@click.version_option(package_name="tfcluster-magic", prog_name="tfcluster")
def tfcluster() -> None:
    """Launch and watch distributed TensorFlow clusters."""


def run(argv: Sequence[str], terminal: Terminal) -> object:
    """Run the command in `argv` and return its result: a `TFCluster`, or None.

    Raises:
        TFClusterError: the request is wrong or failed; the message can be shown as it is.
        Detached: the user stopped watching a run, and the run continues.
        Interrupted: the user interrupted the command in any other situation.
    """
    terminal.typed = argv
    try:
        made = tfcluster.main(
            args=list(argv), prog_name=terminal.program, standalone_mode=False, obj=terminal
        )
    except click.Abort:
        raise Interrupted from None
    except click.ClickException as error:
        raise UsageError(_with_help_hint(error)) from None
    return None if isinstance(made, int) else made


def _with_help_hint(error: click.ClickException) -> str:
    text = translated_click_message(error.format_message()).rstrip(".。")
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return text
    text = f"{ctx.command_path}: {text[:1].lower()}{text[1:]}"
    asks = text.endswith(("?", "？"))  # noqa: RUF001 - the Chinese question mark
    more = _("{text} See `{command} --help`") if asks else _("{text}. See `{command} --help`")
    return more.format(text=text, command=ctx.command_path)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code. This is the console script."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the stream is closed, for example by `>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # `?` for characters that the encoding lacks
    with language(requested_language() if _can_encode(_("Options")) else ENGLISH):
        sys.exit(_exit_code(sys.argv[1:] if argv is None else argv))


def _can_encode(text: str) -> bool:
    """Return whether the terminal can show `text`."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _exit_code(argv: Sequence[str]) -> int:
    terminal = Terminal()
    try:
        run(argv, terminal)
        sys.stdout.flush()
    except TFClusterError as error:
        terminal.note(str(error))
        return error.exit_code
    except (Detached, Interrupted):
        return DETACHED
    except BrokenPipeError:  # `tfcluster logs | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return terminal.exit_code
