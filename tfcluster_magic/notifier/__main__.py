"""Entry point of the notifier: `python -m tfcluster_magic.notifier`.

On SIGTERM, the notifier finishes the attempts in progress and releases its Lease. If the notifier
loses the Lease, it exits at once.
"""

from __future__ import annotations

import argparse
import logging
import sys

from ..errors import TFClusterError
from ..kube.api import access, labels
from ..kube.controller import process
from ..kube.controller.leader_election import Leader
from ..kube.controller.process import ControllerProcess, NumberCollector, metrics_text
from ..kube.objects.policy import Policy, load_policy
from .controller import Notifier

LEASE = "tfcluster-notifier"
TEXTS = {
    "notifier_turns_total": "Turns of the notifier.",
    "notifier_failed_turns_total": "Turns of the notifier that failed.",
    "notifier_sent_total": "Messages that a receiver accepted.",
    "notifier_failed_attempts_total": "Attempts to send a message that failed.",
    "notifier_sending": "Attempts to send a message that are in progress.",
    "notifier_leads": "1 for the notifier that holds the Lease.",
}

log = logging.getLogger("tfcluster")


def parse_options(words: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_magic.notifier",
        description="Sends the notifications of the users of a Kubernetes cluster.",
    )
    parser.add_argument("--namespace", default="", help="serve this namespace alone")
    parser.add_argument("--policy", default="", metavar="FILE", help="the operator's policy")
    parser.add_argument("--lease-namespace", default="", help=f"else its own, {labels.OPERATOR[0]}")
    process.add_options(parser)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run until a signal ends the process; return the exit code."""
    asked = parse_options(words)
    process.apply_options(asked)
    try:
        policy = load_policy(asked.policy)
        return connect_service(asked, policy).work()
    except (TFClusterError, OSError) as error:
        log.error("%s", error)
        return process.FAILURE


def connect_service(asked: argparse.Namespace, policy: Policy) -> ControllerProcess:
    """Connect to the API server and build the notifier.

    Raises:
        BackendUnavailable: the cluster cannot be reached.
        OSError: the health port is taken.
    """
    api, own = access.connect(asked.context, asked.namespace)
    home = asked.lease_namespace or (
        own if access.in_pod() or asked.namespace else labels.OPERATOR[0]
    )
    identity = process.lease_identity(asked)
    lease = Leader(api, home, identity, process.exit_without_lease, name=LEASE)
    notifier = Notifier(api, asked.namespace, lease.leads, policy.notifications)
    return ControllerProcess(
        api, lease, notifier, asked.health_port, lambda: notifier_metrics(notifier, lease)
    )


def notifier_metrics(notifier: Notifier, lease: Leader) -> str:
    """Return the metrics in the text format of Prometheus."""
    numbers = {
        "notifier_turns_total": notifier.turns.taken,
        "notifier_failed_turns_total": notifier.turns.failed,
        "notifier_sent_total": notifier.senders.sent,
        "notifier_failed_attempts_total": notifier.senders.failed,
        "notifier_sending": notifier.senders.busy,
        "notifier_leads": lease.leads(),
    }
    return metrics_text((NumberCollector(numbers, TEXTS),))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
