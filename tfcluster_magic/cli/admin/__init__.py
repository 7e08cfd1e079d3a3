"""`admin`: what the hub's administrators do with users and their clusters, by the console's API.

Each module is a group of verbs and names them in `COMMANDS`.
"""

from __future__ import annotations

import click

from . import audit, clusters, hours, site, storage, users
from .common import Group


@click.group("admin", cls=Group)
def admin_command() -> None:
    """For administrators of a hub: clusters and users of everyone, leaks, the audit log.

    It needs a token of an administrator, made on the hub's page /hub/token with the scope
    access:services!service=admin, in TFCLUSTER_HUB_TOKEN or a file.
    """


for _module in (clusters, users, site, hours, storage, audit):
    for _command in _module.COMMANDS:
        admin_command.add_command(_command)
