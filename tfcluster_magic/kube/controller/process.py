"""What every controller's process is asked in the same words, and how it ends when it must.

Owns the options that all have and the exit codes; what a controller does stands in its own
`__main__`.
"""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from . import leader_election, logs

FAILURE, LOST_LEASE = 1, 3
"""Exit codes: it could not begin; it may not act any more."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every controller can be asked to a command line."""
    parser.add_argument("--health-port", type=int, default=8080, help="0: any free one")
    parser.add_argument("--identity", default="", help="its name in the Lease; else its pod's")
    parser.add_argument("--kubeconfig", default="", help="else KUBECONFIG, or the pod's account")
    parser.add_argument("--context", default="", help="of the kubeconfig")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")


def begin(asked: argparse.Namespace) -> None:
    """Log as asked, and mean the kubeconfig that was named."""
    logs.begin(as_json=asked.log_format == "json")
    if asked.kubeconfig:
        os.environ["KUBECONFIG"] = asked.kubeconfig


def identity(asked: argparse.Namespace) -> str:
    """By which it holds a Lease: what was asked, else its pod's, else this process' own."""
    return asked.identity or os.environ.get("POD_UID") or leader_election.this_process()


def die() -> NoReturn:
    """End at once, because the Lease is lost: a turn that goes on would be a second writer."""
    os._exit(LOST_LEASE)
