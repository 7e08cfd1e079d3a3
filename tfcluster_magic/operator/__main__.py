"""Entry point of the operator: `python -m tfcluster_magic.operator`.

On SIGTERM the process finishes the current turns and releases its Lease. When it loses the Lease,
it exits at once. Logs go to standard error, one line each.
"""

from __future__ import annotations

import argparse
import logging
import sys

from ..errors import TFClusterError
from ..kube.api import access
from ..kube.controller import process
from ..kube.controller.leader_election import OPERATOR_NAMESPACE, Leader
from ..kube.controller.process import ControllerProcess, metrics_text
from ..kube.objects.policy import Policy, load_policy
from .metrics import StateCollector
from .reconcile.controller import Controller
from .reconcile.schedules import ScheduleClock

log = logging.getLogger("tfcluster")


def parse_options(words: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_magic.operator",
        description="Makes TFClusters of a Kubernetes cluster true.",
    )
    parser.add_argument("--namespace", default="", help="look after this namespace alone")
    parser.add_argument("--policy", default="", metavar="FILE", help="what tasks may use, as YAML")
    parser.add_argument("--lease-namespace", default="", help=f"else its own, {OPERATOR_NAMESPACE}")
    process.add_options(parser)
    return parser.parse_args(words)


def main(words: list[str], clock: ScheduleClock | None = None) -> int:
    """Run until a signal ends the process; return the exit code. `clock` is the clock of
    schedules.
    """
    asked = parse_options(words)
    process.apply_options(asked)
    try:
        policy = load_policy(asked.policy)
        return connect_service(asked, policy, clock).work()
    except (TFClusterError, OSError) as error:
        log.error("%s", error)
        return process.FAILURE


def connect_service(
    asked: argparse.Namespace, policy: Policy, clock: ScheduleClock | None = None
) -> ControllerProcess:
    """Connect to the API server and build the operator.

    Raises:
        BackendUnavailable: the cluster cannot be reached.
        OSError: the port for probes is in use.
    """
    api, own = access.connect(asked.context, asked.namespace)
    home = asked.lease_namespace or (
        own if access.in_pod() or asked.namespace else OPERATOR_NAMESPACE
    )
    lease = Leader(api, home, process.lease_identity(asked), process.exit_without_lease)
    controller = Controller(
        api, asked.namespace, home, lease.leads, policy, lambda: lease.unwatched, clock
    )
    return ControllerProcess(
        api, lease, controller, asked.health_port, lambda: controller_metrics(controller, lease)
    )


def controller_metrics(controller: Controller, lease: Leader) -> str:
    """Return the metrics in the text format of Prometheus."""
    turns, caches, scheduler = controller.turns, controller.caches, controller.scheduler
    recorded = controller.context.metrics
    numbers = {
        "turns_total": turns.taken,
        "failed_turns_total": turns.failed,
        "status_writes_total": recorded.status_writes,
        "waiting_turns": len(turns.work),
        "records": len(caches.runs.every()),
        "schedules": len(controller.schedules.cache.every()),
        "scheduled_launches_total": controller.schedules.launches,
        "pods": len(caches.pods.every()),
        "leads": lease.leads(),
        "options_writes_total": scheduler.publisher.writes,
        "network_policies_enforced": scheduler.enforcement.enforced is True,
    }
    informers = [
        each for each in (*caches.all, *scheduler.cluster_state.all) if each.synced.is_set()
    ]
    return metrics_text((recorded.registry, StateCollector(caches, informers, numbers)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
