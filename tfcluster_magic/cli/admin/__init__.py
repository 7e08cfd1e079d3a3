"""The command `admin`: manages users and their clusters through the admin console's API."""

from __future__ import annotations

import click

from .clusters import clusters_command, leaks_command, logs_command, stop_command
from .hub_api import AdminGroup
from .schedules import pause_command, resume_command, schedules_command
from .site import (
    audit_command,
    hours_command,
    override_command,
    storage_command,
    usage_command,
)
from .users import servers_command, users_command


@click.group("admin", cls=AdminGroup)
def admin_command() -> None:
    """For administrators of a hub: clusters, schedules and users of everyone, leaks, the audit log.

    If you run the hub on this machine, you need no token. Elsewhere, make one as an administrator
    on the hub's page /hub/token with the scope access:services!service=admin, and put it into
    TFCLUSTER_HUB_TOKEN or a file.
    """


for _command in (
    clusters_command,
    stop_command,
    logs_command,
    leaks_command,
    schedules_command,
    pause_command,
    resume_command,
    users_command,
    servers_command,
    override_command,
    hours_command,
    usage_command,
    storage_command,
    audit_command,
):
    admin_command.add_command(_command)
