"""The alerts and the dashboard of k8s/monitoring in a real Prometheus. Prometheus is Debian's
package, unpacked into the cache.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kubenode import debian, paths
from kubenode.commands import locked, run, wait_until
from support.kube.kubectl import Object
from support.kube.operator import SYSTEM, Tenant, spec_of
from support.kube.operator_modes import Installed, answers

from tfcluster_magic.spec import Lifecycle

MONITORING = paths.ROOT / "k8s" / "monitoring"
ALERTS = Path(__file__).parent / "alerts.yaml"
PROGRAM = """
import os, time
if os.environ["TFCLUSTER_TASK_TYPE"] == "ps":
    time.sleep(3600)
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of `prometheus` and `promtool`."""
    folder = paths.cache() / "debian" / "prometheus"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock"), waiting_for="Prometheus"):
        if not folder.exists():
            debian.unpack("prometheus", folder)
    return folder / "usr" / "bin"


def test_each_alert_fires_for_its_cause_alone(programs: Path, tmp_path: Path) -> None:
    """Every rule is valid. For promtool, each alert is silent before its cause and fires after
    it.
    """
    for file in (MONITORING / "rules.yaml", ALERTS):
        shutil.copy(file, tmp_path)
    run([programs / "promtool", "check", "rules", "rules.yaml"], cwd=tmp_path)
    run([programs / "promtool", "test", "rules", "alerts.yaml"], cwd=tmp_path)
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((tmp_path / "alerts.yaml").read_text())["tests"]
    tried = [case for test in tests for case in test["alert_rule_test"]]
    for alert in (rule["alert"] for rule in rules):
        assert {bool(c.get("exp_alerts")) for c in tried if c["alertname"] == alert} == {
            True,
            False,
        }


def test_the_api_server_accepts_the_monitoring_manifests(tenant: Tenant) -> None:
    """`kubectl apply -k k8s/monitoring` makes a Service for the operator, two ConfigMaps and a
    policy that admits Prometheus.
    """
    told = tenant.kubectl("kustomize", str(MONITORING))
    told = told.replace(f"namespace: {SYSTEM}", f"namespace: {tenant.name}")
    made = tenant.kubectl("apply", "--dry-run=server", "-f", "-", "-o", "name", stdin=told)
    assert sorted(made.split()) == [
        "configmap/tfcluster-alerts",
        "configmap/tfcluster-dashboard",
        "networkpolicy.networking.k8s.io/operator-metrics",
        "service/operator-metrics",
    ]


def test_every_query_of_the_dashboard_has_data(
    programs: Path, tenant: Tenant, tmp_path: Path
) -> None:
    """With an operator that ran a launch, each panel shows a number and no alert fires."""
    with (
        _operator(tenant, tmp_path) as operator,
        _prometheus(programs, tmp_path, operator) as address,
    ):
        wait_until(lambda: _ask(address, "tfcluster_leads == 1"), "it is scraped", seconds=60)
        (tmp_path / "train.py").write_text(PROGRAM)
        limits = Lifecycle(reclaim_after=0.0, grace=1.0)
        tenant.launch("shown-1", spec_of(tmp_path / "train.py", ps=1, lifecycle=limits))
        tenant.wait("shown-1", lambda status: status.get("releasedAt"), "it is over")
        queries = _queries()
        assert len(queries) > 12
        for query in queries:
            wait_until(lambda query=query: _ask(address, query), query, seconds=60)
        groups = _get(address, "rules")["groups"]
        assert {rule["health"] for rule in groups[0]["rules"]} == {"ok"}
        assert not [rule["name"] for rule in groups[0]["rules"] if rule["state"] == "firing"]


def _queries() -> list[str]:
    """Return the panels' queries, over a range longer than any test."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1h") for query in asked]


def _ask(address: str, query: str) -> list[float]:
    """Return the numbers of a query's answer; empty if it has no data."""
    found = _get(address, f"query?{urllib.parse.urlencode({'query': query})}")["result"]
    values = [float(each["value"][1]) for each in found]
    return [value for value in values if not math.isnan(value)]


def _get(address: str, what: str) -> Object:
    with urllib.request.urlopen(f"http://{address}/api/v1/{what}", timeout=10) as answer:
        found: Object = json.load(answer)["data"]
    return found


@contextmanager
def _prometheus(programs: Path, folder: Path, operator: str) -> Iterator[str]:
    """Run a Prometheus with the project's rules that scrapes `operator`; yield its address."""
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "rules.yaml")],
        "scrape_configs": [{"job_name": "tfcluster", "static_configs": [{"targets": [operator]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    log = folder / "prometheus.log"
    words = [str(programs / "prometheus"), f"--config.file={folder}/prometheus.yml"]
    words += [f"--storage.tsdb.path={folder}/data", "--web.listen-address=127.0.0.1:0"]
    with _process(words, log):
        port = _told(log, "Listening on", "address=127.0.0.1:")
        address = f"127.0.0.1:{port}"
        wait_until(lambda: answers(f"http://{address}/-/ready"), "Prometheus", seconds=60)
        yield address


@contextmanager
def _operator(tenant: Tenant, folder: Path) -> Iterator[str]:
    """Yield the address of the operator's metrics."""
    if not isinstance(tenant.operator, Installed):
        yield f"127.0.0.1:{tenant.operator.port}"
        return
    kubectl = tenant.kubectl.within(SYSTEM)
    words = [str(kubectl.program), "--kubeconfig", kubectl.kubeconfig, "-n", SYSTEM]
    words += ["port-forward", "deployment/operator", ":8080", "--address=127.0.0.1"]
    log = folder / "port-forward.log"
    with _process(words, log):
        yield f"127.0.0.1:{_told(log, 'Forwarding', '127.0.0.1:')}"


@contextmanager
def _process(words: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as to, subprocess.Popen(words, stdout=to, stderr=to) as program:
        try:
            yield
        finally:
            program.terminate()
            program.wait(30)


def _told(log: Path, line: str, before: str) -> str:
    """Return the port that a program chose, from its log."""

    def port() -> str:
        found = [each for each in log.read_text().splitlines() if line in each and before in each]
        return found[0].partition(before)[2].split()[0] if found else ""

    wait_until(port, f"{line} in {log.name}", seconds=60)
    return port()
