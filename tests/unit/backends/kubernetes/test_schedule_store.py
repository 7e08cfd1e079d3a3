"""Verbs for schedules on Kubernetes: a user's client and an operator, with an API server that only
stores objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from support.kube_server import Refusal
from support.kubernetes_backend import MUCH, backend
from support.operator_world import World
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.kubernetes.namespace_access import OPTIONS_KEY
from tfcluster_magic.errors import Conflict, InvalidRequest, NameTaken, NotFound
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.launch_checks.kubernetes import FACTS_KEY, LaunchFacts
from tfcluster_magic.quota.preflight import Options
from tfcluster_magic.schedules import Overlap
from tfcluster_magic.spec import Phase

WHERE = path("tfclusterschedules", "a", "nightly")


@dataclass
class Desk:
    """A user's manager, and a server with its operator."""

    manager: ClusterManager
    world: World

    def occurrences(self) -> list[str]:
        """Return the states of the due times, as the user sees them."""
        return [o.state.value for o in self.manager.schedules.show("nightly").status.occurrences]

    def taken(self) -> bool:
        """Return whether the operator has read the newest spec."""
        found = self.world.server.objects[WHERE]
        told = (found.get("status") or {}).get("observedGeneration")
        return bool(told == found["metadata"]["generation"])

    def end(self, run: str) -> None:
        """Let the run named `run` succeed."""
        times = dict.fromkeys(("startedAt", "finishedAt", "releasedAt"), time.time())
        self.world.say(run, phase="Succeeded", reason="Completed", message="", **times)


@pytest.fixture
def desk(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    world = World()
    told = Options(backend="kubernetes", cpu=MUCH, memory=MUCH, gpu=MUCH)
    data = {
        OPTIONS_KEY: msgspec.json.encode(told).decode(),
        FACTS_KEY: msgspec.json.encode(LaunchFacts().published()).decode(),
    }
    world.server.put(path("configmaps", "a", labels.OPTIONS), {"data": data})
    world.operate()
    folder = own_folders / "work"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    monkeypatch.chdir(folder)
    yield Desk(ClusterManager(backend(world.server, own_folders, monkeypatch, "a")), world)
    world.rest()
    world.server.close()


def test_every_verb_works_as_on_one_machine(desk: Desk) -> None:
    """Create, list, show, pause, resume, run-now, update, history, backfill and delete work. The
    user's account writes only the schedule's spec, and the user sees each change at once, even
    before the operator has read it.
    """
    verbs, server = desk.manager.schedules, desk.world.server
    made = verbs.create(
        "nightly",
        "train.py",
        ["--day", "{scheduled_for:%Y}"],
        cron="0 0 1 1 *",
        time_zone="Asia/Shanghai",
        overlap="allow",
        workers=2,
        deadline="3h",
    )
    assert made.rules.deadline == 3 * 3600 and made.rules.overlap is Overlap.ALLOW
    assert made.launch.spec.replicas.worker.count == 2
    assert [each.name for each in verbs.list()] == ["nightly"]
    with pytest.raises(NameTaken, match="there is a schedule nightly"):
        verbs.create("nightly", "train.py", cron="@daily")

    assert verbs.pause("nightly", "repairs", by="ida").status.paused
    wait_until(desk.taken)
    paused = verbs.show("nightly").status.paused
    assert paused is not None and (paused.by, paused.reason) == ("ida", "repairs")
    with pytest.raises(Conflict, match="paused"):
        verbs.run_now("nightly")
    assert verbs.resume("nightly").status.paused is None
    assert verbs.show("nightly").status.paused is None, "also before the operator has seen it"
    wait_until(desk.taken)

    verbs.run_now("nightly")
    wait_until(lambda: desk.occurrences() == ["Running"])
    assert desk.manager.backend.get("nightly-1").metadata.scheduled is not None
    desk.end("nightly-1")
    wait_until(lambda: desk.occurrences() == ["Succeeded"])

    asked = verbs.backfill("nightly", "2020-01-01", "2022-01-01")
    assert asked.status.backfills[0].total == 3
    with pytest.raises(Conflict, match="is still active"):
        verbs.backfill("nightly", "2020-01-01", "2022-01-01")
    for number in (2, 3, 4):
        wait_until(lambda n=number: f"nightly-{n}" in server.names("tfclusters"))
        desk.end(f"nightly-{number}")
    wait_until(lambda: verbs.show("nightly").status.backfills[0].finished_at)
    assert verbs.history("nightly")[0].run == "nightly-1"

    (Path.cwd() / "train.py").write_text("print('newer')\n")
    before = verbs.show("nightly")
    after = verbs.update("nightly", overlap="replace", workers=3)
    now = verbs.show("nightly")
    assert now.rules.overlap is after.rules.overlap is Overlap.REPLACE
    assert now.rules.deadline == 3 * 3600 and now.rules.time_zone == "Asia/Shanghai"
    assert now.launch.spec.replicas.worker.count == 3
    program, old = now.launch.spec.program, before.launch.spec.program
    assert program is not None and old is not None
    assert program.sha256 != old.sha256 and program.arguments == old.arguments

    verbs.delete("nightly")
    with pytest.raises(NotFound, match="there is no schedule nightly"):
        verbs.show("nightly")
    assert desk.manager.backend.get("nightly-2").status.phase is Phase.SUCCEEDED


def test_changes_at_the_same_time_are_both_kept(desk: Desk) -> None:
    """A write that conflicts with a write by the operator is repeated."""
    verbs, server = desk.manager.schedules, desk.world.server
    verbs.create("nightly", "train.py", cron="0 0 1 1 *", overlap="allow")
    conflicts = [Refusal(409, "Conflict")]

    def refuses(method: str, where: str) -> Refusal | None:
        is_it = (method, where) == ("PATCH", WHERE) and conflicts
        return conflicts.pop() if is_it else None

    server.refuses = refuses
    verbs.run_now("nightly")
    verbs.run_now("nightly")
    assert not conflicts
    wait_until(lambda: desk.occurrences() == ["Running", "Running"])


def test_what_kubernetes_cannot_do_is_refused(desk: Desk) -> None:
    """On Kubernetes, `--track` is refused. For an unknown schedule, the error suggests a similar
    name.
    """
    verbs = desk.manager.schedules
    with pytest.raises(InvalidRequest, match="launches a snapshot"):
        verbs.create("nightly", "train.py", cron="@daily", track=True)
    verbs.create("nightly", "train.py", cron="@daily")
    with pytest.raises(NotFound, match="did you mean nightly"):
        verbs.show("nigthly")


def test_a_manifest_by_hand_is_shown_and_its_rules_are_updated(desk: Desk) -> None:
    """For a schedule that was applied with kubectl, `update` changes the rules and keeps the
    template; options of the launch are refused. An invalid schedule is listed with its problem.
    """
    spec = {"cron": "0 0 1 1 *", "template": {"spec": {"program": {"inline": "print()"}}}}
    desk.world.server.put(WHERE, {"spec": spec})
    odd = path("tfclusterschedules", "a", "odd")
    desk.world.server.put(odd, {"spec": {**spec, "cron": "99 * * * *"}})
    verbs = desk.manager.schedules
    good, wrong = verbs.list()
    assert not good.status.problem and "spec.cron" in wrong.status.problem
    verbs.update("nightly", cron="0 0 2 2 *")
    now = verbs.show("nightly")
    assert now.rules.cron == "0 0 2 2 *" and now.launch.spec == good.launch.spec
    with pytest.raises(InvalidRequest, match="manifest"):
        verbs.update("nightly", workers=2)
