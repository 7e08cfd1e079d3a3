"""The entry point of tenancy: `python -m tfcluster_magic.hub.tenancy`.

On SIGTERM it finishes its reconciliations and releases the Lease; if it loses the Lease, it exits
at once. It logs to standard error, one line for each event.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from ...errors import TFClusterError
from ...kube.api import access
from ...kube.controller import leader_election, process
from ...kube.controller.process import ControllerProcess, NumberCollector, metrics_text
from . import namespace_objects
from .controller import Tenancy

HOME = "tfcluster-hub"
LEASE = "tfcluster-tenancy"
TOKEN = "TFCLUSTER_HUB_TOKEN"  # noqa: S105

log = logging.getLogger("tfcluster")


def options(words: list[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_magic.hub.tenancy",
        description="Provision the namespaces of the hub's users, and keep them up to date.",
    )
    parser.add_argument(
        "--home", default="", help=f"the hub's namespace; by default, the pod's own, or {HOME}"
    )
    parser.add_argument(
        "--prefix",
        default="",
        help=f"of namespaces; by default, {namespace_objects.PREFIX_VARIABLE}",
    )
    parser.add_argument(
        "--hub-url",
        default=os.environ.get("TFCLUSTER_HUB_API", ""),
        help=f"of the hub's API, with its token in {TOKEN}; by default, TFCLUSTER_HUB_API; "
        "without it there are no groups",
    )
    process.add_options(parser)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run tenancy until a signal ends it."""
    asked = options(words)
    process.apply_options(asked)
    try:
        return service(asked).work()
    except (TFClusterError, OSError) as error:
        log.error("%s", error)
        return process.FAILURE


def service(asked: argparse.Namespace) -> ControllerProcess:
    """Return the connected service. Raises BackendUnavailable, UsageError, or OSError for a taken
    port.
    """
    prefix = namespace_objects.namespace_prefix(asked.prefix)
    api, own = access.connect(asked.context, asked.home)
    home = asked.home or (own if access.in_pod() else HOME)
    lease = leader_election.Leader(
        api, home, process.lease_identity(asked), process.exit_without_lease, name=LEASE
    )
    hub = (asked.hub_url, os.environ.get(TOKEN, ""))
    tenancy = Tenancy(api, home, prefix, hub, lease.leads)
    return ControllerProcess(
        api, lease, tenancy, asked.health_port, lambda: metrics(tenancy, lease)
    )


METRICS = {
    "tenancy_turns_total": "Reconciliations of a namespace.",
    "tenancy_failed_turns_total": "Reconciliations that failed and are retried.",
    "tenancy_waiting_turns": "Namespaces that wait for reconciliation.",
    "tenancy_tenants": "Namespaces of users.",
    "tenancy_leads": "1 for the process that holds the Lease.",
    "tenancy_groups_known": "1 once the groups of the hub's users are known.",
    "tenancy_records_most_bytes": "Bytes that the TFClusters of all users may take of etcd.",
    "tenancy_records_unbounded_users": "Users without a limit on their number of TFClusters.",
    "tenancy_etcd_budget_bytes": "Bytes that the policy's `etcdBudget` allows.",
}
"""Metrics and their help texts."""


def metrics(tenancy: Tenancy, lease: leader_election.Leader) -> str:
    """Return the metrics in Prometheus' text format."""
    numbers = {
        "tenancy_turns_total": tenancy.turns.taken,
        "tenancy_failed_turns_total": tenancy.turns.failed,
        "tenancy_waiting_turns": len(tenancy.turns.work),
        "tenancy_tenants": len(tenancy.caches.namespaces.every()),
        "tenancy_leads": lease.leads(),
        "tenancy_groups_known": tenancy.membership.known,
        "tenancy_records_most_bytes": tenancy.records.most,
        "tenancy_records_unbounded_users": tenancy.records.unbounded,
        "tenancy_etcd_budget_bytes": tenancy.records.budget,
    }
    return metrics_text((NumberCollector(numbers, METRICS),))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
