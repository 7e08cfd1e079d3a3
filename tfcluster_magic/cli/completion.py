"""`completion`: the script that completes verbs, options and names of runs in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .wording import Command

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(tfcluster completion bash)"          in ~/.bashrc
    zsh:   eval "$(tfcluster completion zsh)"           in ~/.zshrc
    fish:  tfcluster completion fish | source           in ~/.config/fish/config.fish
    """  # noqa: D301 - click reads \b
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    click.echo(kind(root, {}, "tfcluster", "_TFCLUSTER_COMPLETE").source())
