"""An operator on a server that stores objects. The test acts as kubelet and Job controller."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from support.kube_server import KubeServer, Object
from support.polling import wait_until
from support.project import DATA
from tfcluster_magic import program
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.reconcile.controller import Controller
from tfcluster_magic.operator.scheduling.admission import Admitted, Held, Verdict
from tfcluster_magic.spec import (
    Lifecycle,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    resource_form,
)

RECORDED = DATA / "pods"
RUNS = path("tfclusters", "a")
JOBS = path("jobs", "a")
PODS = path("pods", "a")
SERVICE = path("services", "a", "digits-1")


class AdmitAll:
    """An admission that accepts every run."""

    def decide(self, cluster: object) -> Verdict:
        return Admitted()

    def decide_held(self, cluster: object) -> Verdict:
        return Held()


class Jobs(KubeServer):
    """A Job controller that only marks suspended Jobs as suspended."""

    def __init__(self) -> None:
        super().__init__()
        self.notes_suspensions = True
        self.is_followed = True
        """Whether watches send Jobs."""

    def put(self, path: str, found: Object) -> Object:
        """See `KubeServer.put`."""
        if path.startswith(f"{JOBS}/") and self.notes_suspensions:
            now = {"type": "Suspended", "status": str(bool(found["spec"].get("suspend")))}
            found.setdefault("status", {})["conditions"] = [now]
        return super().put(path, found)

    def _tell(self, kind: str, path: str, found: Object) -> None:
        if self.is_followed or not path.startswith(f"{JOBS}/"):
            super()._tell(kind, path, found)


class World:
    """A server and an operator, with actions of a Job controller and a kubelet."""

    def __init__(self) -> None:
        self.server = self.make_server()
        self.server.put("/api/v1/nodes/node-1", node(ready=True))
        self.leads = True
        self.controller: Controller | None = None
        self.admission: Any = AdmitAll()
        self.policy = Policy()
        self.unwatched = 0.0
        self.count = 0

    def make_server(self) -> Jobs:
        """Return a new server without objects."""
        return Jobs()

    def operate(self) -> None:
        """Start an operator; it replaces the last one."""
        self.rest()
        made = Controller(
            self.server.api(), "", "a", lambda: self.leads, self.policy, lambda: self.unwatched
        )
        made.context.admission = self.admission
        made.scheduler.begin = lambda: None  # type: ignore[method-assign]
        made.follow()
        wait_until(lambda: made.caches.synced)
        made.begin()
        self.controller = made

    def rest(self) -> None:
        """Stop the operator."""
        if self.controller is not None:
            self.controller.end()
            self.controller = None

    def launch(self, name: str, **more: Any) -> None:
        """POST a run."""
        cluster, _dash, run = name.rpartition("-")
        self.server.put(f"{RUNS}/{name}", custom_resource.write(cluster, int(run), spec(**more)))

    def run(self, name: str) -> Object:
        """Return the current run."""
        return self.server.objects[f"{RUNS}/{name}"]

    def status(self, name: str) -> Object:
        """Return the run's status, with keys in snake_case."""
        return resource_form.read(Status, self.run(name).get("status") or {})

    def say(self, name: str, **status: Any) -> None:
        """Change a run's status; `status` has field names in snake_case."""
        found = copy.deepcopy(self.run(name))
        found["status"] = found.get("status", {}) | resource_form.write(Status, status)
        self.server.put(f"{RUNS}/{name}", found)

    def job(self, name: str) -> Object:
        """Return the current Job."""
        return self.server.objects[f"{JOBS}/{name}"]

    def pod(self, job: str, recorded: str, index: int = 0, pod: str = "") -> str:
        """Create a pod of a Job from the recorded pod `recorded`. If `pod` is given, replace the
        pod of that name.
        """
        found = json.loads((RECORDED / f"{recorded}.json").read_text())
        head = found["metadata"]
        head["labels"] = self.job(job)["spec"]["template"]["metadata"]["labels"]
        head["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
        self.count += 1
        name = pod or f"{job}-{index}-{self.count}"
        head["uid"] = name
        for field in ("resourceVersion", "creationTimestamp", "name", "ownerReferences"):
            head.pop(field, None)
        where = f"{PODS}/{name}"
        now = f"2026-11-21T20:{self.count // 60:02}:{self.count % 60:02}Z"
        before = self.server.objects.get(where, {"metadata": {"creationTimestamp": now}})
        head["creationTimestamp"] = before["metadata"]["creationTimestamp"]
        head["ownerReferences"] = [{"uid": self.job(job)["metadata"]["uid"]}]
        self.server.put(where, found)
        return name

    def wait(self, name: str, condition: Callable[[Object], object]) -> Object:
        """Wait until a condition holds for a run's status."""
        wait_until(lambda: f"{RUNS}/{name}" in self.server.objects and condition(self.status(name)))
        return copy.deepcopy(self.status(name))

    def phase(self, name: str, phase: str) -> Object:
        """Wait for a phase."""
        return self.wait(name, lambda status: status.get("phase") == phase)

    def made(self) -> int:
        """Return how many objects have been created, without Services, whose creation depends on
        the tasks' addresses.
        """
        made = [where for method, where in self.server.calls if method == "POST"]
        return len([where for where in made if not where.endswith("/services")])


def node(ready: bool) -> Object:
    return {
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]},
    }


def spec(workers: int = 1, ps: int = 0, chief: int = 0, evaluator: int = 0, **more: Any) -> Spec:
    taken, _warnings = program.snapshot(__file__, workspace=RECORDED, cwd=RECORDED)
    counts = {"worker": workers, "ps": ps, "chief": chief, "evaluator": evaluator}
    replicas = ReplicaSet(**{kind: Replicas(count=count) for kind, count in counts.items()})
    return Spec(program=taken, replicas=replicas, lifecycle=Lifecycle(**more))


def up(
    world: World,
    name: str = "digits-1",
    workers: int = 1,
    ps: int = 0,
    chief: int = 0,
    evaluator: int = 0,
    **more: Any,
) -> None:
    """Create a run with all tasks running."""
    world.launch(name, workers=workers, ps=ps, chief=chief, evaluator=evaluator, **more)
    counts = {"worker": workers, "ps": ps, "chief": chief, "evaluator": evaluator}
    for kind, count in counts.items():
        if count:
            wait_until(lambda job=f"{name}-{kind}": f"{JOBS}/{job}" in world.server.objects)
        for index in range(count):
            world.pod(f"{name}-{kind}", "running", index, f"{name}-{kind}-{index}-first")
    world.phase(name, "Running")
