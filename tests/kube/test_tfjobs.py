"""TFJobs under Kubeflow's training operator, compared with the TFClusters imported from them.

The manifests are those of tests/data/tfjobs. Their programs are replaced by a program that starts,
ends and fails as its case says, and records that on a volume. More cases test single fields.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube import tenants, training_operator, workloads
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest
from support.project import TESTS

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.needs("rwx")]

JOBS = TESTS / "data" / "tfjobs"
THEIRS = "tfjobs"
"""Prefix of the namespaces with TFJobs."""
CLAIM = "PersistentVolumeClaim"
ENDS = "/mnt/ends"
DEADLINE, TTL = 75, 30
MESH = "sidecar.istio.io/inject"
SERVES = "serve"
SUCCEEDED, FAILED, RUNNING = "Succeeded", "Failed", "Running"
NEVER, ON_FAILURE, EXIT_CODE = "Never", "OnFailure", "ExitCode"
SECONDS = 900
"""Time limit until all jobs have ended."""

PROGRAM = r"""
import json, os, re, signal, time

found = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task")
task = "worker-0"  # a TFJob of one task has no TF_CONFIG
if found:
    task = "{}-{}".format({"master": "chief"}.get(found["type"], found["type"]), found["index"])
folder = "/mnt/ends/" + os.environ["ENDS_OF"]
os.makedirs(folder, exist_ok=True)


def lines(of):
    try:
        with open(folder + "/" + of) as file:
            return file.read().split("\n")
    except FileNotFoundError:
        return []


def note(line):
    with open(folder + "/" + task, "a") as file:
        file.write(line + "\n")


def asked(*_):
    note("asked")
    os._exit(143)


signal.signal(signal.SIGTERM, asked)
before = lines(task).count("start")
note("start")
while not all("start" in lines(each) for each in os.environ["ENDS_WITH"].split()):
    time.sleep(0.2)
steps = json.loads(os.environ["ENDS_AS"]).get(task, ["0"])
step = steps[min(before, len(steps) - 1)]
code, seconds, other, line = re.fullmatch(r"(\w+)(?:[+](\d+))?(?:@(\S+)=(\w+))?", step).groups()
while other and "exit " + line not in lines(other):
    time.sleep(0.2)
time.sleep(float(seconds or 0))
if code == "serve":
    time.sleep(3600)
if code == "kill":
    note("killed")
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)  # the first process of a container gets no signal from itself
    os._exit(137)
note("exit " + code)
os._exit(int(code))
"""
"""The program that every task runs. At each start it does the next step of its task: it exits with
a code, serves (`serve`), or kills itself (`kill`). `0+15` waits 15 s first; `0@ps-0=3` waits until
ps-0 has exited with 3.
"""


@dataclass(frozen=True)
class Case:
    """A small job: its tasks' steps, one for each start, and its expected end."""

    tasks: str
    steps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Steps by task. The last step is repeated; tasks without steps exit with 0."""
    end: str = SUCCEEDED
    starts: Mapping[str, int] = field(default_factory=dict)
    """Expected starts of the tasks that start more than once."""
    run_policy: Mapping[str, object] = field(default_factory=dict)
    """Fields of `runPolicy` that replace those of the manifest."""
    here: str = ""
    """Expected end of the TFCluster, if it differs from the TFJob's."""
    starts_here: Mapping[str, int] | None = None
    named: str = ""
    """Field of the TFJob that the import must name if the TFCluster's end or starts differ."""

    @property
    def names(self) -> list[str]:
        """Names of the tasks."""
        return self.tasks.split()

    def expected(self, *, here: bool) -> dict[str, tuple[int, str]]:
        """Return how often each task starts, and how it ends if no operator ends it."""
        starts = self.starts if not here or self.starts_here is None else self.starts_here
        return {name: self._last(name, starts.get(name, 1)) for name in self.names}

    def _last(self, name: str, count: int) -> tuple[int, str]:
        steps = self.steps.get(name, ["0"])
        step = re.split("[+@]", steps[min(count, len(steps)) - 1])[0]
        return count, step


TWELVE = {
    "all-types": Case(
        "chief-0 worker-0 worker-1 worker-2 ps-0 ps-1 evaluator-0",
        {
            "chief-0": ["0@worker-1=0"],
            "worker-1": ["1", "0"],
            "worker-0": [SERVES],
            "ps-0": [SERVES],
            "ps-1": [SERVES],
        },
        starts={"worker-1": 2},
    ),
    "benchmark": Case("worker-0 ps-0", {"ps-0": [SERVES]}),
    "estimator": Case("worker-0 worker-1 worker-2", {"worker-1": [SERVES], "worker-2": [SERVES]}),
    "master": Case(
        "chief-0 worker-0 worker-1 ps-0",
        {"chief-0": ["0@worker-1=0"], "worker-1": ["kill", "0"], "ps-0": [SERVES]},
        starts={"worker-1": 2},
    ),
    "minio": Case("chief-0 worker-0 worker-1", {"worker-0": [SERVES], "chief-0": ["0@worker-1=0"]}),
    "mirrored-workers": Case(
        "worker-0 worker-1", {"worker-0": [SERVES], "worker-1": ["3"]}, end=FAILED
    ),
    "one-worker": Case("worker-0"),
    "run-policy": Case(
        "worker-0 worker-1",
        {"worker-0": [SERVES], "worker-1": [SERVES]},
        end=FAILED,
        run_policy={"activeDeadlineSeconds": DEADLINE, "ttlSecondsAfterFinished": TTL},
    ),
    "servers-and-workers": Case(
        "ps-0 ps-1 worker-0 worker-1 worker-2 worker-3",
        {"ps-0": [SERVES], "ps-1": [SERVES], "worker-0": ["0+3@worker-3=0"], "worker-1": [SERVES]},
    ),
    "two-workers": Case("worker-0 worker-1", {"worker-0": ["0@worker-1=0"]}),
    "volcano": Case(
        "worker-0 worker-1 worker-2 worker-3 worker-4",
        {f"worker-{i}": ["0+5@worker-0=0"] for i in (1, 2, 3, 4)},
    ),
    "volumes": Case("worker-0 worker-1", {"worker-1": [SERVES], "worker-0": ["7"]}, end=FAILED),
}
"""Cases of the manifests in tests/data/tfjobs. A job without a chief succeeds when its worker 0
succeeds, unless the case says AllWorkers.
"""


@dataclass(frozen=True)
class Small(Case):
    """A case without a manifest, with one restart policy for all task types."""

    restart: str = NEVER
    of_servers: str = ""
    """Restart policy of the parameter servers, if it differs from `restart`."""
    clean: str = "All"

    def manifest(self, name: str, image: str) -> Object:
        """Return the TFJob of this case."""
        counts: dict[str, int] = {}
        for each in self.names:
            kind = {"ps": "PS"}.get(each[:-2], each[:-2].capitalize())
            counts[kind] = counts.get(kind, 0) + 1
        container = {"name": "tensorflow", "image": image}
        types = {
            kind: {
                "replicas": count,
                "restartPolicy": (kind == "PS" and self.of_servers) or self.restart,
                "template": {"spec": {"containers": [container]}},
            }
            for kind, count in counts.items()
        }
        said = {"runPolicy": {"cleanPodPolicy": self.clean}, "tfReplicaSpecs": types}
        head = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
        return {**head, "metadata": {"name": name}, "spec": said}


LIMIT = "spec.runPolicy.backoffLimit"
ALONE = {
    "gives-up": Small(
        "worker-0",
        {"worker-0": ["1"]},
        FAILED,
        {"worker-0": 3},
        {"backoffLimit": 2},
        restart=ON_FAILURE,
    ),
    "code": Small(
        "worker-0 worker-1",
        {"worker-0": [SERVES], "worker-1": ["1"]},
        FAILED,
        restart=EXIT_CODE,
        clean="Running",
    ),
    "server-fails": Small(
        "ps-0 worker-0", {"ps-0": ["2"], "worker-0": [SERVES]}, FAILED, clean="None"
    ),
    "chief-and-all": Small("chief-0 worker-0", {"worker-0": [SERVES]}, clean="Running"),
    "retried-servers": Small(
        "ps-0 worker-0", {"ps-0": [SERVES], "worker-0": ["1"]}, FAILED, of_servers=ON_FAILURE
    ),
    # TFJobs that would end differently as TFClusters; the import names the field at fault.
    "killed": Small(
        "worker-0",
        {"worker-0": ["kill", "0"]},
        FAILED,
        here=SUCCEEDED,
        starts_here={"worker-0": 2},
        named="spec.tfReplicaSpecs.Worker.restartPolicy",
    ),
    "last-retry": Small(
        "worker-0",
        {"worker-0": ["1", "0+20"]},
        FAILED,
        {"worker-0": 2},
        {"backoffLimit": 1},
        here=SUCCEEDED,
        named=LIMIT,
        restart=ON_FAILURE,
    ),
    "chosen-code": Small(
        "worker-0",
        {"worker-0": ["200", "0"]},
        SUCCEEDED,
        {"worker-0": 2},
        here=FAILED,
        starts_here={},
        named="spec.tfReplicaSpecs.Worker.restartPolicy",
        restart=EXIT_CODE,
    ),
    "evaluator-fails": Small(
        "chief-0 evaluator-0",
        {"chief-0": ["0+20@evaluator-0=4"], "evaluator-0": ["4"]},
        FAILED,
        here=SUCCEEDED,
        named="spec.tfReplicaSpecs.Evaluator",
    ),
    "early-server": Small(
        "ps-0 worker-0",
        {"worker-0": ["0+100@ps-0=0"]},
        here=FAILED,
        named="spec.tfReplicaSpecs.PS",
    ),
}
CUT = {"gives-up", "last-retry", "evaluator-fails", "early-server"}
"""Cases in which one of the two operators ends tasks before they would exit."""
AT_ITS_LIMIT = {"gives-up", "last-retry"}
"""TFJobs that fail when the last retry starts. The program may or may not print its first line, so
starts are not compared.
"""
IN_TIME = {"run-policy"}
"""Jobs that fail at their deadline. The program may or may not print its first line, so starts are
not compared.
"""
CASES: dict[str, Case] = {**TWELVE, **ALONE}


# -- manifests adapted to this node ----------------------------------------------------------------


def runnable(manifest: Object, name: str, case: Case, image: str) -> Object:
    """Return a manifest with the tests' program, without the nodes, GPUs, queues, servers and
    folders that this cluster lacks.
    """
    # JSON, unlike deepcopy, also separates parts that task types share through YAML's aliases.
    made: Object = json.loads(json.dumps(manifest))
    made["metadata"] = {"name": name}
    made.pop("status", None)
    policy = made["spec"].setdefault("runPolicy", {})
    # The real operator's API accepts this field only below runPolicy.
    if (old := made["spec"].pop("cleanPodPolicy", None)) is not None:
        policy["cleanPodPolicy"] = old
    # with these fields it would never start here
    for key in ("managedBy", "suspend", "schedulingPolicy"):
        policy.pop(key, None)
    policy.update(case.run_policy)
    for replicas in made["spec"]["tfReplicaSpecs"].values():
        # The policy of these tests allows no annotation of a service mesh.
        replicas["template"].get("metadata", {}).get("annotations", {}).pop(MESH, None)
        pod = replicas["template"]["spec"]
        for key in (
            *("schedulerName", "priorityClassName", "nodeSelector", "tolerations", "affinity"),
            "hostNetwork",  # on the only node, the first worker would take the port
        ):
            pod.pop(key, None)
        pod.setdefault("securityContext", {"runAsUser": workloads.USER, "fsGroup": 100})
        nfs = [each["name"] for each in pod.get("volumes", ()) if "nfs" in each]
        volumes = [each for each in pod.get("volumes", ()) if each["name"] not in nfs]
        claim = {"name": "ends", "persistentVolumeClaim": {"claimName": "ends"}}
        pod["volumes"] = [*volumes, claim]
        for beside in pod.get("initContainers", ()):
            beside |= {"image": image, "command": ["true"]}
        for container in pod["containers"]:
            container["image"] = image
            container.pop("resources", None)
            if container["name"] != "tensorflow":
                container["command"] = ["true"]
                continue
            words = [*container.get("command", ()), *container.get("args", ())]
            mounts = [each for each in container.get("volumeMounts", ()) if each["name"] not in nfs]
            env = {
                "ENDS_OF": name,
                "ENDS_WITH": case.tasks,
                "ENDS_AS": json.dumps(case.steps),
            }
            container["command"], container["args"] = ["python3", "-c", PROGRAM], words
            container["volumeMounts"] = [*mounts, {"name": "ends", "mountPath": ENDS}]
            container["env"] = [
                *({"name": key, "value": value} for key, value in env.items()),
                *container.get("env", ()),
            ]
            # subPathExpr uses this variable; without it the container never starts
            if any("subPathExpr" in each for each in mounts):
                pod_name = {"fieldRef": {"fieldPath": "metadata.name"}}
                container["env"].append({"name": "POD_NAME", "valueFrom": pod_name})
            container["resources"] = {"limits": {"memory": "128Mi"}}
            if "workingDir" in container:
                container["workingDir"] = "/usr/lib"
    return made


def manifests(cases: Mapping[str, Case], image: str) -> dict[str, Object]:
    """Return the TFJobs of cases, by name."""
    made = {}
    for name, case in cases.items():
        if isinstance(case, Small):
            found = case.manifest(name, image)
        else:
            found = yaml.safe_load((JOBS / f"{name}.tfjob.yaml").read_text())
        made[name] = runnable(found, name, case, image)
    return made


def secret(name: str, **keys: str) -> Object:
    """Return a Secret that tasks may use."""
    head = {"name": name, "labels": {"tfcluster.dev/for-tasks": "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": head, "stringData": keys}


def surroundings(storage_class: str) -> list[Object]:
    """Return the secrets, claims and other objects that the manifests name."""
    login = secret("registry-login", **{".dockerconfigjson": '{"auths": {}}'})
    config = {"apiVersion": "v1", "kind": "ConfigMap"}
    wanted = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "20Mi"}},
    }
    head = {"apiVersion": "v1", "kind": CLAIM, "spec": wanted}
    claims = ("ends", "models", "strategy-volume", "event-volume", "images", "data")
    return [
        secret("minio-user", awsAccessKeyID="user", awsSecretAccessKey="hidden"),
        secret("export", token="t"),
        secret("proxies", NO_PROXY="*"),
        secret("keys", key="k"),
        {**login, "type": "kubernetes.io/dockerconfigjson"},
        {**config, "metadata": {"name": "settings"}, "data": {"level": "info"}},
        {**config, "metadata": {"name": "vision"}, "data": {"a": "b"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default-editor"}},
        *({**head, "metadata": {"name": name}} for name in claims),
    ]


# -- results ---------------------------------------------------------------------------------------


def reader(busybox: str) -> Object:
    """Return a pod that can read the files in which the programs record their starts and ends."""
    mount = {"name": "ends", "mountPath": ENDS}
    made = workloads.pod("reader", busybox, volumeMounts=[mount])
    claim = {"name": "ends", "persistentVolumeClaim": {"claimName": "ends"}}
    made["spec"]["volumes"] = [claim]
    return made


def written(kubectl: Kubectl) -> dict[str, dict[str, list[str]]]:
    """Return the recorded lines, by job and task."""
    text = kubectl.exec("reader", "sh", "-c", f"cd {ENDS} && grep -r . * || true")
    found: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        place, _colon, said = line.partition(":")
        job, _slash, task = place.partition("/")
        found.setdefault(job, {}).setdefault(task, []).append(said)
    return found


def own_ends(lines: Sequence[str]) -> tuple[int, str]:
    """Return how often a task started, and how it ends if no operator ends it, from the lines that
    its program recorded.
    """
    last = lines[-1].split()[-1]
    own = {"killed": "kill", "start": SERVES, "asked": SERVES}.get(last, last)
    return lines.count("start"), own


def ended(job: Object) -> str:
    """Return how a TFJob ended, or "" while it has not."""
    found = (job.get("status") or {}).get("conditions") or ()
    ends = [c["type"] for c in found if c["type"] in (SUCCEEDED, FAILED) and c["status"] == "True"]
    return ends[-1] if ends else ""


def task_of(pod: Object) -> tuple[str, str]:
    """Return the job and the task of a TFJob's pod."""
    of = {key.rpartition("/")[2]: text for key, text in pod["metadata"]["labels"].items()}
    kind = {"master": "chief"}.get(of["replica-type"], of["replica-type"])
    return of["job-name"], f"{kind}-{of['replica-index']}"


def pods_of(pods: Iterable[Object]) -> dict[str, dict[str, str]]:
    """Return the phases of the TFJobs' pods, by job and task."""
    found: dict[str, dict[str, str]] = {}
    for pod in pods:
        if "training.kubeflow.org/job-name" in pod["metadata"]["labels"]:
            job, task = task_of(pod)
            found.setdefault(job, {})[task] = pod["status"]["phase"]
    return found


@dataclass
class TFJobs:
    """The TFJobs under the training operator."""

    kubectl: Kubectl
    jobs: Mapping[str, Object]
    ends: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """API path of the TFJobs."""
        return training_operator.TFJOBS.format(self.kubectl.namespace)

    def look(self) -> bool:
        """Record the ends of jobs; return whether all jobs have ended."""
        api = self.kubectl.api
        for job in api.every(self.where).items:
            name = job["metadata"]["name"]
            if end := ended(job):
                self.ends.setdefault(name, end)
            elif (job.get("status") or {}).get("startTime") and self._limit(name):
                # The operator checks the deadline only when a job changes, so change an annotation.
                mark = {"metadata": {"annotations": {"tests/looked": str(time.time())}}}
                api.merge(f"{self.where}/{name}", mark)
        return self.ends.keys() == self.jobs.keys()

    def _limit(self, name: str) -> object:
        return self.jobs[name]["spec"]["runPolicy"].get("activeDeadlineSeconds")

    def is_deleted(self, name: str) -> bool:
        """Return whether a job should be deleted some time after its end."""
        return "ttlSecondsAfterFinished" in self.jobs[name]["spec"]["runPolicy"]

    def left(self) -> dict[str, tuple[set[str], set[str]]]:
        """Return the tasks of each job that still have pods, and those of them that are running."""
        found = pods_of(self.kubectl.every("pods"))
        return {
            name: (
                set(found.get(name, {})),
                {task for task, phase in found.get(name, {}).items() if phase == RUNNING},
            )
            for name in self.jobs
        }

    def expected_left(self) -> dict[str, tuple[set[str], set[str]]]:
        """Return the expected result of `left` by cleanPodPolicy, whose default is None."""
        found = {}
        for name, job in self.jobs.items():
            tasks = CASES[name].expected(here=False)
            serve = {task for task, (_count, last) in tasks.items() if last == SERVES}
            found[name] = {
                "None": (set(tasks), serve),
                "Running": (set(tasks) - serve, set()),
                "All": (set(), set()),
            }[job["spec"]["runPolicy"].get("cleanPodPolicy", "None")]
        return found


def imported(tenant: Tenant, jobs: Mapping[str, Object], folder: Path) -> tuple[str, str]:
    """Import all jobs by `tfcluster import`; return the TFClusters that it prints, and its messages
    about fields that it does not carry over.
    """
    file, kubeconfig = folder / "jobs.yaml", folder / "kubeconfig"
    file.write_text(yaml.safe_dump_all(jobs.values()))
    tenants.kubeconfig(tenant.kubectl, kubeconfig)
    command = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]
    env = {"PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig)}
    words = [*command, "import", str(file)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return each value that is not as expected, as (found, expected)."""
    return {
        name: (found.get(name), should)
        for name, should in expected.items()
        if found.get(name) != should
    }


def settled(look: Callable[[], Mapping[str, Any]], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the expected values; return the remaining differences."""
    with suppress(NodeError):
        wait_until(lambda: not differences(look(), expected), "as expected", seconds=90, every=1)
    return differences(look(), expected)


def tasks_of(found: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Any]:
    """Return, by job and task, how often the task started, and how it ends without an operator."""
    ends = {
        name: {task: own_ends(lines) for task, lines in tasks.items()}
        for name, tasks in found.items()
    }
    return without_cut(ends)


def without_cut(ends: Mapping[str, Mapping[str, tuple[int, str]]]) -> dict[str, Any]:
    """Return `ends`, but for the cases in CUT only the numbers of starts, because there an operator
    may end a task before its program does.
    """
    return {
        name: {task: count for task, (count, _last) in tasks.items()} if name in CUT else tasks
        for name, tasks in ends.items()
    }


@pytest.mark.parametrize("cases", [TWELVE, ALONE], ids=["manifests", "fields"])
def test_jobs_end_as_beside_kubeflows_operator(
    cluster: UnderTest,
    new_tenant: Callable[[], Tenant],
    tmp_path: Path,
    cases: Mapping[str, Case],
) -> None:
    """A TFJob and the TFCluster imported from it end in the same way, or the import names the field
    that differs.

    They have the same success or failure, the same starts and ends of tasks, and the same deletion
    of the record. No task of an ended TFCluster keeps running.
    """
    tenant = new_tenant()
    jobs = manifests(cases, tenant.image)
    theirs = furnished(cluster, tenant)
    differ = {"beside Kubeflow's operator": beside_theirs(theirs, jobs)}
    cluster.kubectl("delete", "namespace", theirs.namespace, "--wait=false")
    text, told = imported(tenant, jobs, tmp_path)
    named = {name: case.named for name, case in cases.items() if case.named}
    differ["not named"] = {
        n: told
        for n, where in named.items()
        if not re.search(
            rf"^{n}: (dropped|differs|not set): {re.escape(where)}", told, re.MULTILINE
        )
    }
    differ["as TFClusters"] = as_tfclusters(tenant, text, cases)
    assert not any(differ.values()), json.dumps(differ, indent=1)


def furnished(cluster: UnderTest, tenant: Tenant) -> Kubectl:
    """Make the objects that the jobs need, in the tenant's namespace and in a namespace for TFJobs;
    return kubectl for the latter.
    """
    tenants.move_in(tenant.kubectl)
    theirs = cluster.kubectl.within(f"{THEIRS}-{tenant.name}")
    theirs.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": theirs.namespace}})
    theirs.wait_until_furnished()
    for kubectl in (theirs, tenant.kubectl):
        there = {each["metadata"]["name"] for each in kubectl.every("pvc")}
        made = surroundings(cluster.description.storage_class)
        kubectl.apply(
            *(o for o in made if o["kind"] != CLAIM or o["metadata"]["name"] not in there)
        )
        kubectl.apply(reader(cluster.busybox))
    for kubectl in (theirs, tenant.kubectl):
        kubectl.running("reader")
    training_operator.install(theirs)
    return theirs


def beside_theirs(kubectl: Kubectl, jobs: Mapping[str, Object]) -> dict[str, Any]:
    """Run the TFJobs under the training operator; return the differences from their cases."""
    live = TFJobs(kubectl, jobs)
    with training_operator.running(kubectl):
        kubectl.apply(*jobs.values())
        wait_until(live.look, "all TFJobs end", seconds=SECONDS, every=1)
        for name in filter(live.is_deleted, jobs):
            kubectl.gone("tfjob", name, seconds=TTL + 120)
        left = settled(live.left, live.expected_left())
        found = tasks_of(written(kubectl))
    counted = jobs.keys() - AT_ITS_LIMIT - IN_TIME
    expected = without_cut({name: CASES[name].expected(here=False) for name in counted})
    return {
        **differences(live.ends, {name: CASES[name].end for name in jobs}),
        **{f"{name}: tasks": each for name, each in differences(found, expected).items()},
        **{f"{name}: pods": str(each) for name, each in left.items()},
    }


def as_tfclusters(tenant: Tenant, text: str, cases: Mapping[str, Case]) -> dict[str, Any]:
    """Run the TFClusters; return the differences from their cases."""
    ends: dict[str, str] = {}

    def look() -> bool:
        for run in tenant.kubectl.every("tfclusters"):
            phase = (run.get("status") or {}).get("phase", "")
            if phase in (SUCCEEDED, FAILED, "Stopped"):
                ends[run["metadata"]["name"].rpartition("-")[0]] = phase
        return ends.keys() == cases.keys()

    def left() -> dict[str, Any]:
        pods = tenant.kubectl.every("pods", "tfcluster.dev/name")
        return {"running": [p["metadata"]["name"] for p in pods if p["status"]["phase"] == RUNNING]}

    tenant.kubectl("create", "-f", "-", stdin=text)
    wait_until(look, "all TFClusters end", seconds=SECONDS, every=1)
    for name, case in cases.items():
        if "ttlSecondsAfterFinished" in case.run_policy:
            tenant.kubectl.gone("tfcluster", f"{name}-1", seconds=TTL + 120)
    runs_on = settled(left, {"running": []})
    found = tasks_of(written(tenant.kubectl))
    counted = cases.keys() - IN_TIME
    expected = without_cut({name: cases[name].expected(here=True) for name in counted})
    return {
        **differences(ends, {name: case.here or case.end for name, case in cases.items()}),
        **{f"{name}: tasks": each for name, each in differences(found, expected).items()},
        **runs_on,
    }


def test_the_api_of_tfjobs_refuses_their_old_shape(
    cluster: UnderTest, new_tenant: Callable[[], Tenant]
) -> None:
    """The TFJob API accepts `cleanPodPolicy` only below `runPolicy`, as in the jobs above."""
    tenant = new_tenant()
    training_operator.install(tenant.kubectl)
    (job,) = manifests({"run-policy": TWELVE["run-policy"]}, tenant.image).values()
    job["spec"]["cleanPodPolicy"] = "All"
    assert 'unknown field "spec.cleanPodPolicy"' in tenant.kubectl.refused(job)
