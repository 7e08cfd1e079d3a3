"""`python -m tfcluster_magic.hub secrets`: what the parts of the hub know each other by.

It promises random values that stand nowhere else, that a value which the cluster has is kept (a new
one would sign everybody out, or lose what is encrypted with it), and that values go to standard
output alone, what was done to standard error.
"""

from __future__ import annotations

import base64
import secrets as random
from typing import Any

import click

from ..errors import InvalidRequest, Problem
from ..i18n import _

NAME = "tfcluster-hub-tokens"
KEYS = ("proxy", "cookie", "crypt", "tenancy", "console")
"""Between hub and proxy; of browsers' cookies; of what the hub stores encrypted; of tenancy; of the
admin console.
"""


@click.command("secrets")
@click.option("--namespace", default="tfcluster-hub", show_default=True, help="The hub's.")
@click.option("--context", default="", help="Of the kubeconfig; without it, the current one.")
@click.option(
    "--new",
    multiple=True,
    metavar="KEY",
    help="Make this one anew: proxy, cookie (signs everybody out), crypt, tenancy, console.",
)
def secrets(namespace: str, context: str, new: tuple[str, ...]) -> None:
    """Print the Secret that the hub needs, for kubectl apply."""
    if unknown := sorted({*new} - {*KEYS}):
        allowed = _("one of {keys} is allowed").format(keys=", ".join(KEYS))
        raise InvalidRequest([Problem("--new", ", ".join(unknown), allowed)])
    there = _secret_of_cluster(context, namespace)
    data = {key: there.get(key, "") for key in KEYS}
    made = [key for key in KEYS if key in new or not data[key]]
    for key in made:
        data[key] = base64.b64encode(random.token_hex(32).encode()).decode()
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "type": "Opaque",
        "data": data,
    }
    import yaml

    click.echo(yaml.safe_dump(manifest, sort_keys=False), nl=False)
    kept = [key for key in KEYS if key not in made]
    text = _("Secret {name} in {namespace}: made {made}; kept {kept}.")
    words = {"made": ", ".join(made) or _("none"), "kept": ", ".join(kept) or _("none")}
    click.echo(text.format(name=NAME, namespace=namespace, **words), err=True)


def _secret_of_cluster(context: str, namespace: str) -> dict[str, Any]:
    """What the cluster has, by key; nothing before the first time.

    Raises:
        TFClusterError: the cluster cannot be asked: a guess could replace what is in use.
    """
    from ..kube.api import access  # a machine need not have Kubernetes' client
    from ..kube.api.client import ApiError, path

    api, _namespace = access.connect(context)
    try:
        found = api.get(path("secrets", namespace, NAME))
    except ApiError as error:
        if error.gone:
            return {}
        what = _("the secret {name}").format(name=NAME)
        raise access.explain(error, what, server=api.server) from None
    finally:
        api.close()
    return dict(found.get("data") or {})
