"""Kubeflow's TFJob operator on the same nodes, with its defaults and with a higher rate of API
calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kubenode.commands import say
from support.kube import training_operator

from benchmarks.rows import Row, compared
from tfcluster_magic.kube.api.client import Object

from .site import Site
from .variants import PS, TFCLUSTER, WORKERS, Way, measure, on_fakes

TUNED = ("--kube-api-qps=200", "--kube-api-burst=400", "--controller-threads=10")
SHIPPED, FAST = "tfjob_shipped", "tfjob_tuned"
JOB = Way("tfjob", lambda _site: [_job()])


def tfjob(site: Site, rounds: int) -> list[Row]:
    """Measure TFCluster and both variants of TFJob in turn."""
    training_operator.install(site.kubectl)
    values: dict[str, list[float]] = defaultdict(list)
    objects = 0.0
    for number in range(1, rounds + 1):
        values["ours"].append(measure(site, TFCLUSTER)["running"])
        for name, flags in ((SHIPPED, ()), (FAST, TUNED)):
            with training_operator.running(site.kubectl, *flags):
                measured = measure(site, JOB)
            values[name].append(measured["running"])
            # Under load some EndpointSlices are created only after the objects were counted, so the
            # largest count is used.
            objects = max(objects, measured["objects"])
        say(f"round {number}: { ({name: round(each[-1], 2) for name, each in values.items()}) }")
    ours, shipped, tuned = (values[name] for name in ("ours", SHIPPED, FAST))
    note = f"TFJob, {PS} ps and {WORKERS} workers: {objects:.0f} objects; as shipped"
    return [
        compared(
            "scale_to_tfjob", "s", ours, shipped, at_most=1 / 6, note=f"{note}, {_each(shipped)}"
        ),
        compared(
            "scale_to_tfjob_tuned",
            "s",
            ours,
            tuned,
            at_most=0.5,
            note=f"{' '.join(TUNED)}, {_each(tuned)}",
        ),
    ]


def _each(times: Sequence[float]) -> str:
    """Return a note with the time of each round.

    The TFJob operator makes the pods and Services of one task type, then those of the other, in the
    random order of a Go map. The last pod is therefore its 700th or its 1100th write. By default it
    writes 20 objects a second, so the rounds may differ by 20 seconds. Ref: `ReconcileJobs` in
    pkg/controller.v1/common/job.go.
    """
    return f"in turn {', '.join(f'{each:.1f}' for each in times)} s: ps or workers first"


def _job() -> Object:
    def replicas(count: int) -> Object:
        template = on_fakes()
        template["containers"][0]["name"] = "tensorflow"  # the only name that TFJob accepts
        del template["restartPolicy"]
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": template}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "scale"},
        "spec": {"tfReplicaSpecs": {"PS": replicas(PS), "Worker": replicas(WORKERS)}},
    }
