"""`python -m tfcluster_magic.hub`: commands for an administrator who manages the hub from a shell.

The commands are `secrets` and those of `COMMANDS`. The module of a command is imported only when
the command is called. An error prints one sentence and exits with code 1.
"""

from __future__ import annotations

import base64
import importlib
import secrets as random
import sys
from typing import Any

import click

from ..errors import InvalidRequest, Problem, TFClusterError
from ..i18n import _

HUB_TOKENS = "tfcluster-hub-tokens"
HUB_TOKEN_KEYS = ("proxy", "cookie", "crypt", "tenancy", "console")
"""The names of the hub's tokens in its Secret. In this order, the tokens are for requests between
hub and proxy, browser cookies, the hub's encrypted state, tenancy, and the admin console.
"""


@click.command("secrets")
@click.option(
    "--namespace", default="tfcluster-hub", show_default=True, help="The hub's namespace."
)
@click.option(
    "--context", default="", help="Context of the kubeconfig; the current one by default."
)
@click.option(
    "--new",
    multiple=True,
    metavar="KEY",
    help="Replace this token: proxy, cookie (signs everybody out), crypt, tenancy, console.",
)
def secrets(namespace: str, context: str, new: tuple[str, ...]) -> None:
    """Print the Secret that the hub needs, for `kubectl apply`."""
    if unknown := sorted({*new} - {*HUB_TOKEN_KEYS}):
        allowed = _("use one of {keys}").format(keys=", ".join(HUB_TOKEN_KEYS))
        raise InvalidRequest([Problem("--new", ", ".join(unknown), allowed)])
    there = _secret_of_cluster(context, namespace)
    data = {key: there.get(key, "") for key in HUB_TOKEN_KEYS}
    made = [key for key in HUB_TOKEN_KEYS if key in new or not data[key]]
    for key in made:
        data[key] = base64.b64encode(random.token_hex(32).encode()).decode()
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": HUB_TOKENS, "namespace": namespace},
        "type": "Opaque",
        "data": data,
    }
    import yaml

    click.echo(yaml.safe_dump(manifest, sort_keys=False), nl=False)
    kept = [key for key in HUB_TOKEN_KEYS if key not in made]
    text = _("Secret {name} in {namespace}: created {made}; kept {kept}.")
    words = {"made": ", ".join(made) or _("none"), "kept": ", ".join(kept) or _("none")}
    click.echo(text.format(name=HUB_TOKENS, namespace=namespace, **words), err=True)


def _secret_of_cluster(context: str, namespace: str) -> dict[str, Any]:
    """Return the data of the cluster's Secret by key; empty if it does not exist yet.

    Raises:
        TFClusterError: the cluster does not answer. An empty result would be wrong in this case:
            the caller would replace tokens that are in use.
    """
    from ..kube.api import access  # the Kubernetes client is optional
    from ..kube.api.client import ApiError, path

    api, _namespace = access.connect(context)
    try:
        found = api.get(path("secrets", namespace, HUB_TOKENS))
    except ApiError as error:
        if error.gone:
            return {}
        what = _("the secret {name}").format(name=HUB_TOKENS)
        raise access.explain_api_error(error, what, server=api.server) from None
    finally:
        api.close()
    return dict(found.get("data") or {})


# -- commands

COMMANDS = {
    "accounts": ("tfcluster_magic.hub.auth.commands", "accounts"),
    "check-policy": ("tfcluster_magic.hub.check_policy", "check_policy"),
    "backup": ("tfcluster_magic.hub.backups", "backup"),
    "restore": ("tfcluster_magic.hub.backups", "restore"),
}
"""The module and the click command of each command, by the command's name. The module is imported
when the command is called.
"""


class Commands(click.Group):
    """A group of `secrets` and the commands in `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names, sorted."""
        return sorted([*COMMANDS, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, name = COMMANDS[cmd_name]
        try:
            found = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            return _unavailable(cmd_name, str(error.name))
        assert isinstance(found, click.Command)
        return found


def _unavailable(name: str, package: str) -> click.Command:
    """Return a command that says which package is missing."""
    text = _("Needs the Python package {package}: run it where the hub runs.")
    told = text.format(package=package)

    def refuse(words: tuple[str, ...]) -> None:  # noqa: ARG001 - click's signature
        raise TFClusterError(told)

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=told,
    )


@click.command(cls=Commands)
def main() -> None:
    """Administer the hub."""


main.add_command(secrets)


if __name__ == "__main__":
    try:
        main(prog_name="python -m tfcluster_magic.hub")
    except TFClusterError as problem:
        sys.exit(str(problem))
