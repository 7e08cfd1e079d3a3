"""Messages to users while the operator is down. The tests have no more rights than a user."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubenode.commands import wait_until
from support.kube.operator import Tenant, spec_of
from support.kube.operator_modes import Process
from support.kube.tenants import kubeconfig, rights, user_rules

from tfcluster_magic import ClusterManager, cli
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.spec import Lifecycle

pytestmark = pytest.mark.hostile
SAID = "The operator of TFCluster has not answered since"
HEARTBEAT = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}


@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)],
    ids=["killed", "stopped"],
)
def test_users_are_told_of_an_outage_only_during_it(
    how: signal.Signals,
    new_tenant: Callable[[], Tenant],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`list` and `status` show a notice only from the moment at which the operator was killed or
    stopped until it runs again. A run that ends slowly shows no notice. Requests made during the
    outage are carried out afterwards.
    """
    tenant = new_tenant()
    # An operator that runs as a process has its Lease in the tenant's namespace, so the user needs
    # a right to read it. For an installed operator, k8s/base gives this right.
    more = [HEARTBEAT] if isinstance(tenant.operator, Process) else []
    tenant.kubectl.apply(*rights([*user_rules(), *more], tenant.name))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tenant.kubectl, tmp_path / "user")))
    monkeypatch.setenv("TFCLUSTER_LANGUAGE", "en")
    backend = KubernetesBackend()
    manager = ClusterManager(backend=backend)

    def says(*words: str) -> str:
        cli.run(list(words), Terminal(manager))
        said: Any = capsys.readouterr()
        return str(said.out + said.err)

    program = tmp_path / "waits.py"
    program.write_text("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)\n")
    tenant.launch("slow-1", spec_of(program, lifecycle=Lifecycle(grace=20)))
    wait_until(backend.list, "it is there", seconds=30)
    quiet = time.monotonic() + 5
    while tenant.status("slow-1").get("phase") != "Running" or time.monotonic() < quiet:
        assert SAID not in says("list")
    manager.stop("slow-1")
    while backend.get("slow-1").status.released_at is None:
        assert "operator" not in backend.why_it_lingers(backend.get("slow-1"))
        assert SAID not in says("status", "slow-1")
    tenant.operator.stop(how)
    tenant.launch("waits-1", spec_of(program, lifecycle=Lifecycle(grace=1)))
    wait_until(lambda: SAID in says("list"), "list says so", seconds=60, every=0.5)
    assert SAID in says("status", "waits-1")
    manager.stop("waits-1")
    assert SAID in backend.why_it_lingers(backend.get("waits-1"))
    tenant.operator.start()
    wait_until(lambda: SAID not in says("list"), "it is over", seconds=60, every=0.5)
    tenant.phase("waits-1", "Stopped")
    assert SAID not in says("status", "waits-1")
