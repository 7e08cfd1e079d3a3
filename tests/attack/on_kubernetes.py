"""The hostile tests of `tests/kube`, if a Kubernetes node is up."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubenode.cluster import Cluster

from .cases import Attempt, NotTried
from .target import Target

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "kube"
SECONDS = 840
NONE_CHOSEN = 5  # https://docs.pytest.org/en/stable/reference/exit-codes.html


def _tests(words: Sequence[str], **variables: str) -> None:
    """Run tests of `tests/kube`; raise an error with the name and the reason of each failure."""
    if not os.environ.get("CLUSTER") and (os.geteuid() != 0 or not Cluster().nodes()):
        raise NotTried("no node is up, `make kube-up` starts one")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *words]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as tests:
        try:
            said, _ = tests.communicate(timeout=SECONDS)
        except BaseException:
            tests.send_signal(signal.SIGINT)  # SIGINT lets pytest clean up
            try:
                tests.communicate(timeout=120)
            finally:
                tests.kill()
            raise
    if tests.returncode == NONE_CHOSEN:
        raise NotTried("there is no such test")
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert tests.returncode == 0, "\n".join(failed) or said[-1500:]


def users(target: Target, drawn: random.Random) -> None:
    """The API server and the operator refuse what a user's account must not do."""
    del target, drawn
    _tests([str(FILES / "test_security.py"), str(FILES / "test_rights.py")])


def neighbours(target: Target, drawn: random.Random) -> None:
    """Other users' pods cannot reach any server of a run."""
    del target, drawn
    _tests([str(FILES / "test_isolation.py"), str(FILES / "test_network_policy.py")])


def hostile(target: Target, drawn: random.Random) -> None:
    """The operator withstands attacks: the tests with the marker `hostile` pass."""
    del target, drawn
    _tests([str(FILES), "-m", "hostile"])


def chaos(target: Target, drawn: random.Random) -> None:
    """If any process of cluster, operator or clients dies, no run is lost and nothing leaks."""
    del target
    seed = str(drawn.getrandbits(31))
    words = [str(FILES / "test_chaos.py"), "--chaos-steps", "20", "--chaos-seed", seed]
    _tests(words, TFCLUSTER_KUBE_OPERATOR="process")


CASES: Mapping[str, Attempt] = {
    "tricks-of-users": users,
    "neighbours": neighbours,
    "hostile-users": hostile,
    "chaos": chaos,
}
