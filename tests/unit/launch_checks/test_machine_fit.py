"""The check whether a cluster fits on a machine, computed only from given amounts of resources."""

from __future__ import annotations

import pytest

from tfcluster_magic.errors import Problem
from tfcluster_magic.launch_checks.local import check_fit
from tfcluster_magic.quota.preflight import AvailableResources, Limit
from tfcluster_magic.spec import Mode, Replicas, ReplicaSet, Resources, Spec

GIB = 2.0**30


def room(
    cpu: float = 8, memory: float = 10, gpu: float = 0, used: float = 0, **more: object
) -> AvailableResources:
    """Return a machine with these cores, GiB and GPUs, of which `used` GiB are taken."""
    return AvailableResources(
        cpu=Limit(total=cpu, free=cpu),
        memory=Limit(total=memory * GIB, free=(memory - used) * GIB),
        gpu=Limit(total=gpu, free=gpu),
        **{"max_tasks": 20, **more},  # type: ignore[arg-type]
    )


def cluster(resources: Resources, mode: Mode = Mode.BETWEEN_GRAPH, **counts: int) -> Spec:
    """Return a cluster in which each task has the same resources."""
    replicas = {t: Replicas(count=n, resources=resources) for t, n in counts.items()}
    return Spec(mode=mode, replicas=ReplicaSet(**replicas))


def told(spec: Spec, there: AvailableResources) -> list[str]:
    """Return the problems as a user reads them."""
    return [str(problem) for problem in check_fit(spec, there).problems]


def test_what_fits_is_not_refused() -> None:
    """A cluster that takes exactly the free resources is accepted without a warning."""
    verdict = check_fit(cluster(Resources(cpu=2, memory="2Gi"), worker=4, ps=1), room(cpu=10))
    assert verdict.problems == verdict.warnings == ()


def test_the_number_that_fits_is_named() -> None:
    """A request for more memory than is free is refused, and the refusal says how many workers
    would fit.
    """
    (text,) = told(cluster(Resources(memory="2Gi"), worker=6), room(memory=9))
    assert "4 workers of 2Gi fit, but 6 were requested" in text
    assert "use --workers 4, or less memory for each" in text


def test_other_tasks_are_counted_first() -> None:
    """The refusal advises fewer tasks of the type that requests most memory in total. The advised
    number is what fits next to the tasks of the other types.
    """
    (text,) = told(cluster(Resources(memory="2Gi"), worker=6, ps=2), room(memory=9))
    assert "2 workers of 2Gi fit" in text
    (text,) = told(cluster(Resources(memory="2Gi"), worker=1, ps=6), room(memory=4))
    assert "1 ps of 2Gi fits, but 6 were requested: use --ps 1" in text


def test_when_not_even_one_fits() -> None:
    """If not even one task fits, the message has the free amount and the other runs that use
    memory.
    """
    held = {"digits-1": 3 * GIB, "idle-1": 0.0}
    there = room(memory=4, used=3, held=held)
    (text,) = told(cluster(Resources(memory="2Gi"), worker=1), there)
    assert "1Gi of 4Gi is free (taken by digits-1 3Gi)" in text
    assert "idle-1" not in text
    assert "2Gi are requested, but 1Gi of 4Gi" in text
    assert text.endswith("use --worker-memory 1024Mi")
    (text,) = told(cluster(Resources(memory="2Gi"), worker=1), room(memory=4, used=3.99))
    assert "less memory for each" in text


def test_a_single_task_of_a_type_gets_the_size_that_fits() -> None:
    """If a type has only one task, the message names the memory that this task may have."""
    (text,) = told(cluster(Resources(memory="6Gi"), chief=1, worker=1), room(memory=9))
    assert text.endswith("use --chief-memory 3072Mi")
    (text,) = told(cluster(Resources(gpu=4), chief=1), room(gpu=3))
    assert text.endswith("use --chief-gpu 3")


def test_gpus() -> None:
    """GPUs above the free number are refused like memory; a machine without GPUs is reported."""
    spec = cluster(Resources(gpu=1), worker=3)
    (text,) = told(spec, room(gpu=2))
    assert "2 workers of 1 GPU fit, but 3 were requested: use --workers 2" in text
    (text,) = told(spec, room())
    assert "no GPU" in text


def test_cpu_is_only_a_warning() -> None:
    """CPU is shared, so a larger request is accepted with a warning."""
    verdict = check_fit(cluster(Resources(cpu=4), worker=3), room(cpu=8))
    assert verdict.problems == ()
    assert verdict.warnings[0].startswith("12 CPU cores are requested, but this machine has 8")


def test_many_workers_on_few_cores_are_warned_of() -> None:
    """More than two workers for each core are accepted with a warning that names the number of
    cores.
    """
    assert check_fit(cluster(Resources(), worker=4, ps=1), room(cpu=2)).warnings == ()
    (warning,) = check_fit(cluster(Resources(), worker=5), room(cpu=2)).warnings
    assert warning.startswith("5 workers share 2 CPU cores")
    assert warning.endswith("use --workers 2")


def test_tasks_without_a_limit_are_warned_of() -> None:
    """Tasks without a memory limit cause a warning if the memory is too small even for TensorFlow
    itself.
    """
    verdict = check_fit(cluster(Resources(), worker=4), room(memory=1))
    assert verdict.problems == ()
    assert "4 tasks without a memory limit" in verdict.warnings[0]
    assert verdict.warnings[0].endswith("1Gi is free: 2 of them fit")
    assert check_fit(cluster(Resources(), Mode.IN_GRAPH, worker=4), room(memory=1)).warnings == ()


def test_the_number_that_fits_is_of_the_tasks_without_a_limit() -> None:
    """If the memory is too small for the tasks without a memory limit, the number that fits is a
    number of these tasks; workers with a limit do not change it.
    """
    limited, free = Resources(memory="64Mi"), Resources()
    replicas = ReplicaSet(
        worker=Replicas(count=6, resources=limited), ps=Replicas(count=4, resources=free)
    )
    (caution,) = check_fit(Spec(replicas=replicas), room(memory=1)).cautions
    assert (caution.field, caution.value, caution.fits) == ("replicas.ps.count", 4, 2)


@pytest.mark.parametrize("count", [21, 1000])
def test_too_many_tasks(count: int) -> None:
    """More tasks than the machine allows are refused with the maximum."""
    (text,) = told(cluster(Resources(), worker=count), room(memory=10**6))
    assert "at most 20 tasks run here: use --workers 20" in text
    (text,) = told(cluster(Resources(), chief=1, worker=count, ps=3), room(memory=10**6))
    assert "at most 20 tasks run here: use --workers 16" in text


def test_every_problem_is_told_at_once() -> None:
    """Obstacles on the machine, such as a log folder that cannot be written, and all scarce
    resources are reported together.
    """
    obstacle = Problem("log folder", "/log", "it cannot be written")
    spec = cluster(Resources(memory="20Gi", gpu=2), worker=21)
    assert len(told(spec, room(gpu=1, obstacles=(obstacle,)))) == 4
