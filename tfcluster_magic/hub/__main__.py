"""`python -m tfcluster_magic.hub`: what an administrator does to the hub from a shell.

It promises one command for each row of `COMMANDS`, each imported only when it is asked for, and an
error as one sentence with exit code 1. It does nothing itself.
"""

from __future__ import annotations

import importlib
import sys

import click

from ..errors import TFClusterError

COMMANDS = {
    "accounts": ("auth.commands", "accounts"),
    "backup": ("backups", "backup"),
    "restore": ("backups", "restore"),
    "secrets": ("secrets", "secrets"),
}
"""The word a person types, and where its click command is."""


class Commands(click.Group):
    """The commands of `COMMANDS`, found by name."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The words, in the order of the alphabet."""
        return sorted(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a word, None for another."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"tfcluster_magic.hub.{module}"), name)
        assert isinstance(found, click.Command)
        return found


@click.command(cls=Commands)
def main() -> None:
    """Administer the hub."""


if __name__ == "__main__":
    try:
        main(prog_name="python -m tfcluster_magic.hub")
    except TFClusterError as problem:
        sys.exit(str(problem))
