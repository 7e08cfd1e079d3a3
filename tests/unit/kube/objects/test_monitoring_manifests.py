"""The dashboards, the rules for Prometheus and the log collector's configuration in k8s/: their
form, and the series that their queries name. `tests/kube/test_monitoring.py` runs each query in a
real Prometheus, and checks that the series in `prometheus_series.txt` exist there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.project import ROOT

MONITORING = ROOT / "k8s" / "monitoring"
LOGS = ROOT / "k8s" / "overlays" / "logs"
RECORDED = frozenset((ROOT / "tests" / "data" / "prometheus_series.txt").read_text().split())
OWN = frozenset(re.findall(r"`(tfcluster_\w+)`", (ROOT / "docs/reference/metrics.md").read_text()))
DASHBOARDS = ("dashboard.json", "dashboard-run.json")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_WORDS = {"and", "or", "unless", "bool", "offset", "by", "on", "without", "ignoring"}


def series_of(query: str) -> set[str]:
    """Return the names of the series in a query."""
    text = re.sub(r'"[^"]*"', '""', query)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", text)
    names = re.findall(r"(?<![\w:$.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])", text)
    return {name for name in names if name not in _WORDS}


def panels(file: str) -> list[dict[str, Any]]:
    """Return the panels of a dashboard."""
    found: list[dict[str, Any]] = json.loads((MONITORING / file).read_text())["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    """Return every rule for Prometheus: recording rules and alerts."""
    groups = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each query: its dashboard and panel, or its rule."""
    for file in DASHBOARDS:
        for panel in panels(file):
            yield from ((f"{file}: {panel['title']}", each["expr"]) for each in panel["targets"])
    yield from ((str(rule.get("alert") or rule["record"]), rule["expr"]) for rule in rules())


def test_the_names_of_series_are_found() -> None:
    """Functions, labels, words of PromQL and texts are not series."""
    query = 'sum by (a) (rate(x_total{b="c"}[5m]) * on (d) group_left (e) r:f:info{g=~".+"}) > 0.5'
    assert series_of(query) == {"x_total", "r:f:info"}
    assert series_of("absent(up == 1) or max(a_b) > 1.5 * 1024 ^ 3 unless on () q") == {
        "up",
        "a_b",
        "q",
    }


@pytest.mark.parametrize(
    ("where", "query"), [pytest.param(*each, id=each[0]) for each in queries()]
)
def test_queries_name_only_series_that_exist(where: str, query: str) -> None:
    """Each series is a metric of the operator, or was recorded from a real Prometheus."""
    found = {
        _SUFFIX.sub("", name) if name.startswith("tfcluster_") else name
        for name in series_of(query)
    }
    assert found, where
    assert found <= RECORDED | OWN


def test_every_recorded_series_is_used() -> None:
    """Each series in `prometheus_series.txt` is named by a query."""
    used = {name for _where, query in queries() for name in series_of(query)}
    made = {rule["record"] for rule in rules() if "record" in rule}
    assert used | made >= RECORDED


@pytest.mark.parametrize("file", DASHBOARDS)
def test_panels_do_not_overlap(file: str) -> None:
    """Each panel has its own number and place, and the variables that it uses exist."""
    said = json.loads((MONITORING / file).read_text())
    places = [
        (x, y)
        for panel in said["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(places) == len({*places}) and all(x < 24 for x, _y in places)
    assert len({panel["id"] for panel in said["panels"]}) == len(said["panels"])
    variables = {each["name"] for each in said["templating"]["list"]} | {"__rate_interval"}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(said["panels"]))} <= variables


def test_links_of_runs_name_the_dashboard_and_its_variables() -> None:
    """The dashboard has the uid and the variables that the links to a run's graphs name, and the
    links show the time of the run.
    """
    from tfcluster_magic.output.usage import graphs_link

    said = json.loads((MONITORING / "dashboard-run.json").read_text())
    assert said["uid"] == "tfcluster-run"
    assert {"namespace", "run"} <= {each["name"] for each in said["templating"]["list"]}
    base = "https://g.example.com/d/tfcluster-run?var-namespace=ida"
    assert graphs_link(base, "a-1", 1000.0, None) == f"{base}&var-run=a-1&from=940000&to=now"
    assert graphs_link(base, "a-1", 1000.0, 2000.5) == f"{base}&var-run=a-1&from=940000&to=2060500"
    assert graphs_link("", "a-1", 1000.0, None) is None


def test_the_log_collector_is_not_root_and_cannot_be_reached() -> None:
    """The collector's pods meet Pod Security "restricted" except for the folder of logs, which they
    mount but cannot change. They may not read Secrets, and nothing can connect to them.
    """
    (daemon,) = yaml.safe_load_all((LOGS / "collector.yaml").read_text())
    spec = daemon["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    rights = [
        each
        for each in yaml.safe_load_all((LOGS / "rbac.yaml").read_text())
        if each["kind"] == "ClusterRole"
    ]
    granted = [rule for role in rights for rule in role["rules"]]
    assert {verb for rule in granted for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {what for rule in granted for what in rule["resources"]} == {
        "pods",
        "namespaces",
        "jobs",
    }
    policy = yaml.safe_load((LOGS / "network.yaml").read_text())["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in policy


def test_every_part_of_the_collector_is_used() -> None:
    """The pipeline names exactly the parts that are configured."""
    said = yaml.safe_load((LOGS / "collector-config.yaml").read_text())
    pipeline = said["service"]["pipelines"]["logs"]
    for kind in ("receivers", "processors", "exporters"):
        assert sorted(pipeline[kind]) == sorted(said[kind])
    labels = [*said["processors"]["k8s_attributes"]["extract"]["labels"]]
    assert {"run", "task"} <= {each["tag_name"] for each in labels}
    built = (Path(ROOT) / "tests/kube/modules/collector/main.go").read_text()
    for name in (*pipeline["receivers"], *pipeline["processors"], *pipeline["exporters"]):
        assert name.replace("_", "") in built
