"""`tfcluster render` for Kubernetes, without a cluster: two layouts, and your own templates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.golden_runs import BETWEEN_GRAPH, COLLECTIVE, EVERYTHING, IN_GRAPH, LARGE, run
from support.project import ROOT
from support.task_process import RUNTIME

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.kube.objects.manifests import ManifestLayout, render_manifests, render_template
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.spec import Spec

Object = dict[str, Any]
SPECS = {"between": BETWEEN_GRAPH, "in-graph": IN_GRAPH, "all": EVERYTHING, "mirrored": COLLECTIVE}


def laid_out(spec: Spec, layout: ManifestLayout = ManifestLayout.PER_TASK) -> list[Object]:
    """Return the manifests of a run."""
    return [*yaml.safe_load_all(render_manifests(run(spec), Policy(), layout))]


@pytest.fixture
def tfcluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command without the official client of Kubernetes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    hidden = "import sys; sys.modules['kubernetes'] = None"
    main = "from tfcluster_magic.cli import main; main()"

    def run_it(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", f"{hidden}; {main}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run_it


@pytest.mark.parametrize("layout", ManifestLayout)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_manifests_belong_to_nobody(spec: Spec, layout: ManifestLayout) -> None:
    """Rendered manifests can be applied with kubectl: they have no owner and no namespace, and
    their labels say that kubectl manages them, not the operator.
    """
    for each in laid_out(spec, layout):
        head = each["metadata"]
        assert not head.keys() & {"ownerReferences", "namespace", "uid"}
        assert head["labels"]["app.kubernetes.io/managed-by"] == "kubectl"
        assert "tfcluster.dev/uid" not in head["labels"]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_task_has_an_address_of_its_own(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the layout `per-task`, each address in TF_CONFIG is the name of a Service that selects
    exactly one pod.
    """
    monkeypatch.syspath_prepend(str(RUNTIME))
    from task_config import TaskConfig

    found = laid_out(spec)
    config = TaskConfig(json.loads(found[0]["data"]["task.json"]), "worker-0")
    hosts = {address.partition(":")[0] for every in config.cluster.values() for address in every}
    services = {
        s["metadata"]["name"]: s["spec"]["selector"] for s in found if s["kind"] == "Service"
    }
    assert services.keys() == hosts
    pods = [w["spec"]["template"] for w in found if w["kind"] in ("Job", "Deployment")]
    assert len(pods) == spec.replicas.total
    for name, selector in services.items():
        (chosen,) = [p for p in pods if selector.items() <= p["metadata"]["labels"].items()]
        assert chosen["spec"]["hostname"] == name


def test_who_serves_is_a_deployment() -> None:
    """Parameter servers serve until they are deleted, so they are Deployments; workers are Jobs."""
    kinds = {w["metadata"]["name"]: w["kind"] for w in laid_out(EVERYTHING)}
    assert kinds["digits-2-ps-0"] == "Deployment"
    assert {kinds[f"digits-2-{t}-0"] for t in ("worker", "chief", "evaluator")} == {"Job"}
    servers = [w for w in laid_out(IN_GRAPH) if w["kind"] == "Deployment"]
    assert len(servers) == IN_GRAPH.replicas.total
    assert all(w["spec"]["template"]["spec"]["restartPolicy"] == "Always" for w in servers)


def test_render_needs_no_cluster(tfcluster: Any) -> None:
    """A launch can be rendered for Kubernetes without a cluster, and without the Python client of
    Kubernetes.
    """
    done = tfcluster("render", "--backend", "kubernetes", "train.py", "--workers", "3", "--ps", "1")
    assert done.returncode == 0, done.stderr
    found = [*yaml.safe_load_all(done.stdout)]
    kinds = [each["kind"] for each in found]
    assert kinds == ["ConfigMap", "Service", "NetworkPolicy", "Job", "Job"]
    assert found[3]["spec"]["completions"] == 3
    assert found[0]["data"]["program--train.py"].endswith("print('trained')\n")


def test_a_policy_fills_in(tfcluster: Any, tmp_path: Path) -> None:
    """The administrator's policy decides image, claims and other fields of rendered manifests."""
    (tmp_path / "policy.yaml").write_text("defaultImage: registry/x:1\ndataClaim: ''\n")
    done = tfcluster("render", "train.py", "--layout", "per-task", "--policy", "policy.yaml")
    assert done.returncode == 0, done.stderr
    pods = [
        e["spec"]["template"]["spec"] for e in yaml.safe_load_all(done.stdout) if e["kind"] == "Job"
    ]
    assert {pod["containers"][0]["image"] for pod in pods} == {"registry/x:1"}
    assert all(
        "/data" not in [m["mountPath"] for m in p["containers"][0]["volumeMounts"]] for p in pods
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "none.yaml"), "none.yaml"),
        (("--template", "none.j2"), "there is no such file"),
        (("--template", "x", "--layout", "native"), "leave out --layout"),
        (("--workers", "0", "--layout", "native"), "at least 1 worker"),
    ],
)
def test_wrong_words_are_refused(tfcluster: Any, words: tuple[str, ...], said: str) -> None:
    """A spec that cannot be rendered is refused with its problems, and nothing is printed."""
    done = tfcluster("render", "train.py", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_large_program_is_told(tfcluster: Any, tmp_path: Path) -> None:
    """A program too large for a manifest is rendered as its path in the workspace, with a note."""
    (tmp_path / "train.py").write_text("x = 1\n" * 20000)
    done = tfcluster("render", "train.py", "--layout", "native")
    assert done.returncode == 0, done.stderr
    assert "too large for a manifest" in done.stderr
    described = json.loads(next(yaml.safe_load_all(done.stdout))["data"]["task.json"])
    assert described["program"]["dir"].startswith("/home/jovyan/.tfcluster/code/")


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    """A user's template can use tasks, files and objects, and include other templates in its
    folder.
    """
    (tmp_path / "one.j2").write_text("- {{ task.address | json }}\n")
    template = tmp_path / "mine.j2"
    template.write_text(
        "run: {{ name | json }}\nimage: {{ policy.defaultImage | json }}\ntasks:\n"
        "{% for task in tasks %}{% include 'one.j2' %}{% endfor %}"
        "kinds: {{ objects | map(attribute='kind') | list | json }}\n"
        "pod: {{ tasks[0].pod | json }}\n"
    )
    made = yaml.safe_load(render_template(run(BETWEEN_GRAPH), Policy(), template))
    assert made["run"] == "digits-2"
    assert made["tasks"][-1] == "digits-2-ps-0.digits-2:2222"
    assert made["kinds"] == ["ConfigMap", "Service", "NetworkPolicy", "Job", "Job"]
    assert made["pod"]["spec"]["containers"][0]["name"] == "tensorflow"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: {{ nobody }}\n", 2, "'nobody' is undefined"),
        ("a: 1\n\n{% if %}\n", 3, "Expected an expression"),
        ("\n\n{{ tasks[0].pod | nofilter }}\n", 3, "No filter named"),
        ("a: {{ 1 / 0 }}\n", 1, "ZeroDivisionError"),
        ("{% include 'gone.j2' %}", 0, "there is no such file"),
        ("a: {{ name.__class__.__mro__ }}\n", 1, "unsafe"),
    ],
)
def test_a_wrong_template_is_refused(tmp_path: Path, text: str, line: int, said: str) -> None:
    """A template that fails, or uses private attributes, is refused, and the refusal names the
    line.
    """
    template = tmp_path / "mine.j2"
    template.write_text(text)
    with pytest.raises(InvalidRequest, match="the template cannot be used") as refusal:
        render_template(run(BETWEEN_GRAPH), Policy(), template)
    assert said in str(refusal.value)
    where = f"{template}:{line}" if line else str(tmp_path / "gone.j2")
    assert where in str(refusal.value)


def test_a_template_of_a_large_program(tmp_path: Path) -> None:
    """A user's template can also render a run whose program is too large for a manifest and stays
    in the workspace.
    """
    (tmp_path / "mine.j2").write_text("{{ cluster.spec.program.sha256 | json }}")
    assert render_template(run(LARGE), Policy(), tmp_path / "mine.j2") == f'"{"ab" * 32}"'


def test_the_template_of_the_manual_works(tmp_path: Path) -> None:
    """The template in the manual renders pods without Jobs, under the names that tasks look up."""
    manual = (ROOT / "docs" / "how-to" / "kubernetes-render.md").read_text()
    (tmp_path / "mine.j2").write_text(manual.partition("```jinja\n")[2].partition("```")[0])
    found = yaml.safe_load_all(render_template(run(BETWEEN_GRAPH), Policy(), tmp_path / "mine.j2"))
    pods = [each for each in found if each and each["kind"] == "Pod"]
    names = [f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}" for pod in pods]
    assert names == [
        "digits-2-worker-0.digits-2",
        "digits-2-worker-1.digits-2",
        "digits-2-ps-0.digits-2",
    ]
