"""The alerts and the dashboards of k8s/monitoring in a real Prometheus.

Prometheus is Debian's package, unpacked into the cache. The test of a run's dashboard needs
kube-state-metrics on PATH, which the project does not build (see README.md).
"""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import socket
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
from kubenode.door import open_door
from support.kube.kubectl import Object
from support.kube.operator import SYSTEM, Tenant, spec_of
from support.kube.operator_modes import Installed, answers
from support.kube.under_test import UnderTest

from tfcluster_magic.spec import Lifecycle, Replicas, ReplicaSet, Resources

MONITORING = paths.ROOT / "k8s" / "monitoring"
ALERTS = Path(__file__).parent / "alerts.yaml"
HOW_TO = paths.ROOT / "docs" / "how-to" / "monitoring.md"
SERIES = paths.ROOT / "tests" / "data" / "prometheus_series.txt"
BUSY = """
import os
if os.environ["TFCLUSTER_TASK"] == "worker-2":
    raise SystemExit(0)
while True:
    sum(range(1_000_000))
"""
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
    """Every rule is valid. According to promtool, each alert is silent before its cause and fires
    after it.
    """
    for file in (MONITORING / "rules.yaml", ALERTS):
        shutil.copy(file, tmp_path)
    run([programs / "promtool", "check", "rules", "rules.yaml"], cwd=tmp_path)
    run([programs / "promtool", "test", "rules", "alerts.yaml"], cwd=tmp_path)
    groups = yaml.safe_load((tmp_path / "rules.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    tests = yaml.safe_load((tmp_path / "alerts.yaml").read_text())["tests"]
    tried = [case for test in tests for case in test["alert_rule_test"]]
    for alert in (rule["alert"] for rule in rules if "alert" in rule):
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
    """After a run under the operator has ended, each panel of the operator's dashboard shows a
    number, and no alert fires.
    """
    with (
        _operator(tenant, tmp_path) as operator,
        _prometheus(programs, tmp_path, operator) as address,
    ):
        wait_until(lambda: _ask(address, "tfcluster_leads == 1"), "it is scraped", seconds=60)
        (tmp_path / "train.py").write_text(PROGRAM)
        limits = Lifecycle(reclaim_after=0.0, grace=1.0)
        tenant.launch("shown-1", spec_of(tmp_path / "train.py", ps=1, lifecycle=limits))
        tenant.wait("shown-1", lambda status: status.get("releasedAt"), "it is over")
        queries = _queries("dashboard.json")
        assert len(queries) > 12
        for query in queries:
            wait_until(lambda query=query: _ask(address, query), query, seconds=60)
        _check_rules(address)


@pytest.mark.long
@pytest.mark.needs("node-inside", "rwx", "state-metrics")
def test_every_query_about_a_run_has_data(
    cluster: UnderTest, programs: Path, tenant: Tenant, tmp_path: Path
) -> None:
    """Prometheus scrapes a real kubelet, kube-state-metrics, API server and etcd. Each panel of a
    run's dashboard then shows each task of the run, and the dashboard's variables list the run.
    Every series that a query or an alert names exists.
    """
    (tmp_path / "train.py").write_text(BUSY)
    workers = Replicas(count=3, resources=Resources(cpu=0.3, memory="256Mi"))
    quick = Lifecycle(grace=1.0)
    tenant.launch(
        "panels-1",
        spec_of(tmp_path / "train.py", replicas=ReplicaSet(worker=workers), lifecycle=quick),
    )
    admin = _certificates(tenant, tmp_path)
    with (
        _operator(tenant, tmp_path) as operator,
        _state_metrics(tenant, tmp_path) as state,
        _prometheus(
            programs, tmp_path, operator, *_cluster_targets(cluster, admin, state)
        ) as address,
    ):
        tasks = {"worker-0", "worker-1"}
        for panel in _panels("dashboard-run.json"):
            for target in panel["targets"]:
                query = target["expr"]
                for name, value in {
                    "$__rate_interval": "2m",
                    "$namespace": tenant.name,
                    "$run": "panels-1",
                    "$task": ".+",
                }.items():
                    query = query.replace(name, value)
                wanted = {"worker-2"} if panel["title"] == "Ends of containers" else tasks
                if "by (task" not in query:
                    wanted = {""}
                wait_until(
                    lambda query=query, wanted=wanted: _tasks(address, query) >= wanted,
                    f"{panel['title']} shows {wanted}: {query}",
                    seconds=240,
                )
        assert "panels-1" in _values(address, "run", f'{{namespace="{tenant.name}"}}')
        assert set(_values(address, "task", '{run="panels-1"}')) == {*tasks, "worker-2"}
        _check_rules(address)
        known = set(_get(address, "label/__name__/values"))
        recorded = set(SERIES.read_text().split())
        assert recorded <= known, f"not in this Prometheus: {recorded - known}"


def _tasks(address: str, query: str) -> set[str]:
    """Return the tasks that have a number in the answer; "" for a number without a task."""
    found = _get(address, f"query?{urllib.parse.urlencode({'query': query})}")["result"]
    return {
        each["metric"].get("task", "") for each in found if not math.isnan(float(each["value"][1]))
    }


def _values(address: str, label: str, matching: str) -> list[str]:
    """Return the values of a label, by the request that Grafana sends for a dashboard variable."""
    asked = urllib.parse.urlencode({"match[]": f"tfcluster:task_pods:info{matching}"})
    found: list[str] = _get(address, f"label/{label}/values?{asked}")  # type: ignore[assignment]
    return found


def _check_rules(address: str) -> None:
    """Check that each rule is evaluated without an error, and that no alert fires."""
    groups = _get(address, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule["name"] for rule in rules if rule.get("state") == "firing"]


def _panels(file: str) -> list[Object]:
    found: list[Object] = json.loads((MONITORING / file).read_text())["panels"]
    return found


def _queries(file: str) -> list[str]:
    """Return the panels' queries; their rates are over an hour, which is longer than any test."""
    asked = [target["expr"] for panel in _panels(file) for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1h") for query in asked]


def _certificates(tenant: Tenant, folder: Path) -> dict[str, str]:
    """Write the certificates of the kubeconfig to files; return the fields of Prometheus'
    `tls_config`, and the API server's URL as `server`.
    """
    said = json.loads(tenant.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    found: dict[str, str] = {"server": said["clusters"][0]["cluster"]["server"]}
    parts = {
        "ca_file": said["clusters"][0]["cluster"]["certificate-authority-data"],
        "cert_file": said["users"][0]["user"]["client-certificate-data"],
        "key_file": said["users"][0]["user"]["client-key-data"],
    }
    for name, text in parts.items():
        path = folder / name
        path.write_bytes(base64.b64decode(text))
        path.chmod(0o600)
        found[name] = str(path)
    return found


def _cluster_targets(cluster: UnderTest, admin: dict[str, str], state: str) -> list[Object]:
    """Return scrape configurations for the targets that a cluster's own monitoring scrapes."""
    assert cluster.own is not None
    node = cluster.own.first
    server = urllib.parse.urlsplit(admin["server"])
    secure: Object = {
        "scheme": server.scheme,
        "tls_config": {key: admin[key] for key in ("ca_file", "cert_file", "key_file")},
        "static_configs": [{"targets": [server.netloc]}],
    }
    etcd = open_door(node, "etcd-metrics", 2381)
    return [
        # The kubelet's metrics of containers (cAdvisor), through the API server.
        {
            **secure,
            "job_name": "kubelet",
            "metrics_path": f"/api/v1/nodes/{node.name}/proxy/metrics/cadvisor",
        },
        {**secure, "job_name": "apiserver"},
        {"job_name": "etcd", "static_configs": [{"targets": [f"127.0.0.1:{etcd}"]}]},
        {"job_name": "kube-state-metrics", "static_configs": [{"targets": [state]}]},
    ]


@contextmanager
def _state_metrics(tenant: Tenant, folder: Path) -> Iterator[str]:
    """Run kube-state-metrics with the flag of docs/how-to/monitoring.md; yield its address."""
    program = shutil.which("kube-state-metrics")
    assert program is not None
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, telemetry = one.getsockname()[1], other.getsockname()[1]
    (flag,) = re.findall(r"--metric-labels-allowlist=\S+", HOW_TO.read_text())
    words = [program, f"--kubeconfig={tenant.kubectl.kubeconfig}", flag]
    words += [
        "--resources=pods,deployments",
        "--host=127.0.0.1",
        f"--port={port}",
        "--telemetry-host=127.0.0.1",
    ]
    words += [f"--telemetry-port={telemetry}"]
    with _process(words, folder / "kube-state-metrics.log"):
        address = f"127.0.0.1:{port}"
        wait_until(lambda: answers(f"http://{address}/metrics"), "kube-state-metrics", seconds=60)
        yield address


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
def _prometheus(programs: Path, folder: Path, operator: str, *more: Object) -> Iterator[str]:
    """Run a Prometheus with the project's rules that scrapes `operator` and `more`; yield its
    address.
    """
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "rules.yaml")],
        "scrape_configs": [
            {"job_name": "tfcluster", "static_configs": [{"targets": [operator]}]},
            *more,
        ],
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
