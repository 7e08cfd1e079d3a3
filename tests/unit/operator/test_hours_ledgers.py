"""The operator's ledgers of hours, in which each run counts exactly once, whatever is deleted or
restarted; also budgets of hours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import msgspec
import pytest
from support.kube_server import Refusal
from support.ledger_reader import HOME, LEDGER, Book
from support.operator_world import JOBS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube import hour_ledgers
from tfcluster_magic.kube.api.client import ApiError
from tfcluster_magic.kube.api.labels import BUDGET, USER
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.status import run_observer as kube_held
from tfcluster_magic.operator import hours_ledgers
from tfcluster_magic.operator.hours_ledgers import Accountant
from tfcluster_magic.operator.usage_sampler import METRICS_API
from tfcluster_magic.quota import ledger
from tfcluster_magic.quota.ledger import Ledger
from tfcluster_magic.spec import TFCluster


@pytest.fixture
def book(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """An operator that keeps ledgers, and Ada's namespace."""
    monkeypatch.setattr(hours_ledgers, "LEDGER_PERIOD", 0.02)
    monkeypatch.setattr(hours_ledgers, "LEDGER_DELAY", 0.1)
    yield (made := Book(world))
    made.end()


def held(world: World, name: str) -> float:
    """Return the core-seconds that a run has used until now, computed from its record."""
    cluster: TFCluster = custom_resource.read(world.run(name))
    run = ledger.accounted_run(cluster)
    assert run is not None
    return 3600 * sum(each.cpu for each in ledger.hours_by_day(run, time.time()).values())


def finish(world: World, name: str) -> None:
    """Let the only worker of the run succeed."""
    world.pod(f"{name}-worker", "succeeded", 0, f"{name}-worker-0-first")
    world.wait(name, lambda status: status.get("releasedAt"))


def test_a_run_is_written_down_when_it_begins_and_when_it_is_over(world: World, book: Book) -> None:
    """Each run causes two ledger writes; its hours count for its user, group and cluster."""
    up(world)
    wait_until(lambda: list(book.kept.begun.values()))
    assert book.kept.days == {}
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted)
    uid = world.run("digits-1")["metadata"]["uid"]
    assert set(book.kept.counted) == {uid}
    assert not book.kept.begun
    assert book.seconds() == pytest.approx(held(world, "digits-1"), abs=1e-3)
    notes = world.server.objects[LEDGER]["metadata"]["annotations"]
    assert notes == {hour_ledgers.LEDGER_NAMESPACE: "a", USER: "ada"}


def test_a_short_run_is_written_down_once(
    world: World, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends soon causes one ledger write. Fifty runs that start at once do not wait for
    the ledger, but budgets count them.
    """
    monkeypatch.setattr(hours_ledgers, "LEDGER_DELAY", 3600.0)
    book.say(**{BUDGET: json.dumps({"cpuHours": 1e-9, "days": 7})})
    up(world)
    wait_until(book.told)
    assert book.kept == Ledger()
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted)
    assert not book.kept.begun


def test_hours_outlive_records_and_operators(world: World, book: Book) -> None:
    """The hours of a run stay when its record is deleted. A new operator counts nothing twice, and
    continues from the ledger.
    """
    up(world)
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted)
    before = book.seconds()
    assert before > 0
    book.restart()
    up(world, "digits-2")
    wait_until(lambda: book.kept.begun)
    assert book.seconds() == before
    world.server.remove(f"{RUNS}/digits-1")
    finish(world, "digits-2")
    wait_until(lambda: len(book.kept.counted) == 2)
    both = before + held(world, "digits-2")
    assert book.seconds() == pytest.approx(both, abs=1e-3)
    world.server.remove(f"{RUNS}/digits-2")
    book.restart()
    assert book.seconds() == pytest.approx(both, abs=1e-3)


def test_a_number_outlives_its_run(world: World, book: Book) -> None:
    """The highest run number of a name stays known after this run is deleted. This is also true for
    a run that never used resources, and for a new operator.
    """

    def told() -> object:
        assert book.keeper is not None
        return hour_ledgers.last_numbers(book.keeper.published_text("a"))

    up(world)
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted and told() == {"digits": 1})
    world.launch("later-4")
    wait_until(lambda: f"{JOBS}/later-4-worker" in world.server.objects)
    world.server.remove(f"{RUNS}/later-4")
    wait_until(lambda: book.kept.numbers == {"digits": 1, "later": 4})
    assert book.keeper is not None
    keeper = book.keeper
    # empty as soon as the number of `later` is written
    wait_until(lambda: not keeper._numbers["a"])
    book.restart()
    wait_until(lambda: told() == {"digits": 1, "later": 4})


def test_a_run_that_is_deleted_while_it_runs_counts_until_then(world: World, book: Book) -> None:
    """Deleting a running run's record removes none of its hours."""
    up(world)
    wait_until(lambda: book.kept.begun)
    sure = held(world, "digits-1")
    world.server.remove(f"{RUNS}/digits-1")
    wait_until(lambda: book.kept.counted)
    assert book.seconds() >= sure
    assert not book.kept.begun


def test_a_run_that_is_deleted_while_no_operator_is_there_counts_too(
    world: World, book: Book
) -> None:
    """If a run is deleted while no operator is running, its hours count until an operator last
    handled the run.
    """
    up(world)
    wait_until(lambda: book.kept.begun)
    sure = held(world, "digits-1")
    book.end()
    world.rest()
    world.server.remove(f"{RUNS}/digits-1")
    book.restart()
    wait_until(lambda: book.kept.counted)
    assert book.seconds() >= sure


def test_what_cannot_be_written_is_written_later(world: World, book: Book) -> None:
    """If the API refuses a write, or another client writes, no hours are lost or counted twice."""
    up(world)
    wait_until(lambda: book.kept.begun)
    down = Refusal(503, "ServiceUnavailable", "later")
    world.server.refuses = lambda method, where: down if where == LEDGER else None
    finish(world, "digits-1")
    world.server.remove(f"{RUNS}/digits-1")
    other = json.loads(json.dumps(world.server.objects[LEDGER]))
    world.server.put(LEDGER, other)  # the operator now knows an older version of the ledger
    world.server.refuses = lambda _method, _where: None
    wait_until(lambda: book.kept.counted)
    assert book.seconds() > 0
    assert len(book.kept.counted) == 1


def test_a_budget_refuses_by_what_is_held_now(world: World, book: Book) -> None:
    """A budget counts active runs, and also ended runs whose records were deleted. Without a
    budget, nothing is checked.
    """
    up(world)
    assert book.told() == []
    book.say(**{BUDGET: json.dumps({"cpuHours": 1e-9, "days": 7})})
    wait_until(book.told)
    assert book.kept.counted == {}
    world.launch("mnist-1")
    world.server.remove(f"{RUNS}/digits-1")
    wait_until(lambda: book.kept.counted)
    assert book.keeper is not None
    cluster = custom_resource.read(world.run("mnist-1"))
    (problem,) = book.keeper.budget_problems(cluster, lambda _run: 1.0) or ()
    assert "administrator" in str(problem)
    book.say(**{BUDGET: json.dumps({"cpuHours": 100})})
    wait_until(lambda: not book.keeper.budget_problems(cluster, lambda _run: 1.0))  # type: ignore[union-attr]


def test_a_user_is_told_what_is_over_and_what_is_allowed(world: World, book: Book) -> None:
    """The operator publishes the hours of ended runs, and a client adds the hours of active
    runs.
    """
    book.say(**{BUDGET: json.dumps({"cpuHours": 20, "gpuHours": 0})})
    up(world)
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted)
    up(world, "digits-2")
    assert book.keeper is not None
    wait_until(lambda: '"days":{"' in book.keeper.published_text("a"))  # type: ignore[union-attr]
    text = book.keeper.published_text("a")
    assert text is book.keeper.published_text("a")  # the text is computed only once
    both = [custom_resource.read(world.run(name)) for name in ("digits-1", "digits-2")]
    told = hour_ledgers.read_account(text, both, time.time())
    assert told.group == "ml101"
    assert told.budget is not None
    assert (told.budget.cpu_hours, told.budget.gpu_hours) == (20, 0)
    (row,) = ledger.hours_rows({"": told.days}, "2000-01-01", "2999-01-01", "cluster")
    meant = held(world, "digits-1") + held(world, "digits-2")
    assert row.cpu * 3600 == pytest.approx(meant, abs=5)


def test_an_operator_without_the_right_counts_by_records(world: World, book: Book) -> None:
    """An operator whose role is from an older version has no right to ledgers, and counts only
    existing records for budgets.
    """
    book.end()
    no = Refusal(403, "Forbidden", "no")
    world.server.refuses = lambda _method, where: no if "/configmaps" in where else None
    world.operate()
    book.say(**{BUDGET: json.dumps({"cpuHours": 1e-9})})
    book.begin()
    world.launch("digits-1")
    assert book.keeper is not None
    wait_until(lambda: book.keeper.loaded)  # type: ignore[union-attr]
    assert book.told() == []


def test_what_tasks_really_use_is_told_by_the_clusters_metrics(world: World, book: Book) -> None:
    """The ledger has the CPU-hours that tasks really used, and next to them the requested CPU-hours
    of the measured time; only the time since a pod got its node is measured. In a cluster without
    the metrics API, no use is published.
    """
    up(world)
    assert book.keeper is not None
    meter, uid = book.keeper.sampler, world.run("digits-1")["metadata"]["uid"]
    controller = world.controller
    assert controller is not None
    wait_until(controller.caches.pods.every)
    pod = next(iter(controller.caches.pods.every()))
    name = pod["metadata"]["name"]
    metrics = f"{METRICS_API}/namespaces/a/pods/{name}"
    containers = [{"name": "tensorflow", "usage": {"cpu": "250m", "memory": "1Mi"}}]
    head = {"labels": pod["metadata"]["labels"]}
    world.server.put(metrics, {"metadata": head, "containers": containers})
    since = kube_held.bound_since(pod)
    assert since is not None
    meter.sample(0.0, since - 40.0)
    # the first sample adds nothing, because its duration is unknown
    assert meter.usage_of(uid) is None
    meter.sample(60.0, since + 20.0)
    meter.sample(100.0, since + 60.0)
    assert meter.usage_of(uid) == pytest.approx((15.0, 60 * kube_held.requested_cores(pod)))
    finish(world, "digits-1")
    wait_until(lambda: book.kept.counted)
    (row,) = ledger.hours_rows({"": book.kept.days}, "2000-01-01", "2999-01-01", "user")
    assert row.used == pytest.approx(15.0 / 3600, abs=1e-6)
    assert row.measured == pytest.approx(60 * kube_held.requested_cores(pod) / 3600, abs=1e-6)
    # removed as soon as the usage is written to the ledger
    wait_until(lambda: meter.usage_of(uid) is None)
    no = Refusal(404, "NotFound", "no such kind")
    world.server.refuses = lambda _method, where: no if where.startswith(METRICS_API) else None
    with pytest.raises(ApiError):
        meter.sample(200.0, since + 160.0)


def test_ledgers_of_other_operators_are_left_alone(world: World, book: Book) -> None:
    """An operator of one namespace does not treat the runs of other namespaces as deleted."""
    up(world)
    wait_until(lambda: book.kept.begun)
    before = book.kept
    book.end()
    assert world.controller is not None
    caches, cluster_state = world.controller.caches, world.controller.scheduler.cluster_state
    other = Accountant(
        world.server.api(), "b", HOME, caches, cluster_state, lambda: True, lambda: 0.0
    )
    world.server.put(
        LEDGER, hour_ledgers.write_ledger("a", "ada", msgspec.structs.replace(before, days={}))
    )
    other._load()
    assert "a" not in other._books
    assert other.loaded
