"""The console on Kubernetes, tested with a server that stores objects like the Kubernetes API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.golden_runs import EVERYTHING
from support.kube_server import KubeServer, Object
from support.kubernetes_console import ADA, BOB, launched, server, tenant, within
from support.node_logs import NodeLog
from support.polling import wait_until_async

from tfcluster_magic.backends.kubernetes.namespace_access import OPTIONS_KEY
from tfcluster_magic.errors import Conflict, NotFound, TFClusterError
from tfcluster_magic.hub.console.sites import kubernetes_runs
from tfcluster_magic.hub.console.sites.base import SiteSchedule, run_row
from tfcluster_magic.hub.console.sites.kubernetes import KubernetesSite
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.quota.preflight import Limit, Options
from tfcluster_magic.schedules import Pause
from tfcluster_magic.spec import (
    Annotations,
    Cause,
    Message,
    Phase,
    Reason,
    Status,
    Stop,
    TaskExit,
    TaskFailure,
    TaskState,
    TaskStatus,
    TypeCounts,
    to_json,
)

__all__ = ["server"]  # a fixture used by the tests below
KINDS = ("namespaces", "pods", "tfclusters", "tfclusterschedules")
LONG_AGO = "2026-01-01T00:00:00Z"


def of(run: Object, kind: str, name: str, task: int | None = None, **more: Any) -> tuple[str, Any]:
    """Return the path and the content of an object of `run`."""
    head = run["metadata"]
    made: Object = {"labels": labels.run_labels(head["name"], head["uid"])}
    if task is not None:
        made["labels"][labels.TASK_TYPE] = "worker"
        made["annotations"] = {labels.INDEX: str(task)}
    made |= {key: more.pop(key) for key in ("ownerReferences",) if key in more}
    return path(kind, head["namespace"], name), {"metadata": made, "kind": kind, **more}


def test_runs_have_links_to_graphs_by_one_request_a_minute(server: KubeServer) -> None:
    """The console links runs to the dashboard in Grafana whose address the operator published in a
    namespace; until it is published, there are no links. The address is read at most once a minute.
    """

    async def look(site: KubernetesSite) -> None:
        rows = (await site.runs()).rows
        assert await site.graphs(rows) == {}
        site._options_expire = 0.0
        server.put(path("configmaps", ADA, labels.OPTIONS), {"data": {OPTIONS_KEY: published}})
        server.put(path("configmaps", BOB, labels.OPTIONS), {"data": {OPTIONS_KEY: published}})
        before = len(server.calls)
        for _again in range(2):
            links = await site.graphs(rows)
        assert server.calls[before:] == [("GET", path("configmaps", ADA))]
        (digits,) = (row for row in rows if row.name == "digits-2")
        assert set(links) == {digits.uid}
        start = "https://grafana.example.com/d/tfcluster-run?var-namespace="
        assert links[digits.uid].startswith(f"{start}{ADA}&var-run=digits-2&from=")

    room = Limit(total=1, free=1)
    options = Options("kubernetes", room, room, room, grafana_url="https://grafana.example.com/")
    published = to_json(options).decode()
    launched(server, ADA, "digits-2", phase="Running", reason="Running")
    launched(server, "default", "other-1", phase="Running", reason="Running")
    within(server, look)


def test_runs_of_everyone_by_one_list_however_often_somebody_looks(server: KubeServer) -> None:
    """The row of a run has its owner, resources, nodes and failed tasks. Changes arrive by watches,
    without another list request.
    """
    run = launched(
        server,
        ADA,
        "digits-2",
        phase="Failed",
        reason="ProgramFailed",
        message="worker-1 failed",
        failures=[{"task": "worker-1", "attempt": 1, "exit": {"cause": "Error", "finishedAt": 5}}],
    )
    for task, node in enumerate(("node-b", "node-a")):
        server.put(*of(run, "pods", f"digits-2-worker-{task}", task, spec={"nodeName": node}))
    launched(server, BOB, "exam-1", phase="Running", reason="Running")
    launched(server, "tfcluster-u-not-eves", "exam-1")
    launched(server, "default", "other-1")
    odd = {
        "spec": {"mode": "?", "replicas": 3, "program": {"x": "y" * 1000}},
        "status": {"phase": 1},
    }
    server.put(path("tfclusters", "default", "Odd"), odd)

    async def look(world: KubernetesSite) -> None:
        for _look in range(20):
            seen = await world.runs()
        assert seen.missed == ()
        rows = {(row.owner, row.name): row for row in seen.rows}
        asked = len(server.calls)
        mine = (await world.runs_of("ada")).rows
        assert [(row.owner, row.name) for row in mine] == [("ada", "digits-2")]
        # the namespace `tfcluster-u-not-eves` belongs to another user
        assert (await world.runs_of("eve")).rows == ()
        assert len(server.calls) == asked, "the home page costs the API server nothing"
        assert sorted(rows) == [
            ("ada", "digits-2"),
            ("bob", "exam-1"),
            ("namespace:default", "Odd"),
            ("namespace:default", "other-1"),
            ("namespace:tfcluster-u-not-eves", "exam-1"),
        ]
        row = rows["ada", "digits-2"]
        assert (row.cluster, row.run, row.phase, row.reason) == (
            "digits",
            2,
            "Failed",
            "ProgramFailed",
        )
        assert (row.cpu, row.memory, row.tasks) == (1.0, 2 << 30, {"worker": 2})
        assert (row.nodes, row.failed) == (("node-a", "node-b"), ("worker-1",))
        launched(server, BOB, "late-1")

        async def is_told() -> bool:
            return "late-1" in {row.name for row in (await world.runs()).rows}

        await wait_until_async(is_told)
        lists = [where for method, where in server.calls if method == "GET"]
        assert sorted(lists) == sorted(path(each) for each in KINDS)

    within(server, look)


def test_the_row_of_a_run_has_all_that_its_record_has() -> None:
    """Only the decoded fields of a run reach its row, and they suffice: the row is the one of the
    complete record.
    """
    made = custom_resource.write("digits", 2, EVERYTHING)
    head = {"name": "digits-2", "namespace": ADA, "uid": "u", "creationTimestamp": LONG_AGO}
    texts = custom_resource.write_annotations(
        Annotations(), Annotations("a note", "Digits", ("exam",))
    )
    head["annotations"] = made["metadata"].get("annotations", {}) | texts
    ended = TaskExit(cause=Cause.OOM, exit_code=137, finished_at=50.0)
    status = Status(
        phase=Phase.FAILED,
        reason=Reason.OOM_KILLED,
        message="worker-1 was killed",
        messages=(Message("NeverStarted"),),
        attempt=3,
        queued_at=10.0,
        started_at=20.0,
        running_at=30.0,
        finished_at=60.0,
        released_at=70.0,
        heals=1,
        program_restarts=2,
        restarts={"worker-1": 2},
        failures=(TaskFailure(task="worker-1", attempt=1, exit=ended),),
        culprit="worker-1",
        counts={"worker": TypeCounts(desired=3, failed=1, succeeded=2)},
        attention=(TaskStatus(name="ps-0", state=TaskState.FAILED),),
        warnings=("the disk is nearly full",),
    )
    found = {"metadata": head, "spec": made["spec"], "status": custom_resource.write_status(status)}

    event = kubernetes_runs.RUN.event.decode(json.dumps({"type": "ADDED", "object": found}))

    assert kubernetes_runs.trim_run(event.object)["row"] == run_row(custom_resource.read(found)), (
        "decode the field in kubernetes_runs.py, too: _Spec or _Status, _spec, trim_run"
    )


def test_a_run_is_stopped_as_its_owner_would_and_only_the_one_that_is_meant(
    server: KubeServer,
) -> None:
    """A stop needs a reason and the right uid. It is refused for another run of the same name, a
    run that is already being stopped, and an ended run.
    """
    uid = launched(server, ADA, "digits-1", phase="Running")["metadata"]["uid"]
    launched(server, BOB, "over-1", phase="Failed", message="It failed.", releasedAt=7.0)
    stop = Stop(reason="an exam", by="admin eve")

    async def look(world: KubernetesSite) -> None:
        await world.runs()
        with pytest.raises(Conflict, match="another run"):
            await world.stop("ada", "digits-1", "another", stop)
        with pytest.raises(NotFound):
            await world.stop("bob", "digits-1", uid, stop)
        with pytest.raises(NotFound):
            await world.stop("nobody", "digits-1", uid, stop)
        with pytest.raises(Conflict, match="It failed"):
            await world.stop("bob", "over-1", "", stop)
        for name in ("../../pods/x-1", "digits-1/status", "DIGITS-1", ""):
            with pytest.raises(NotFound):
                await world.stop("ada", name, "", stop)
        for owner in (f"namespace:{ADA}", "namespace:../a", "namespace:"):
            with pytest.raises(NotFound):
                await world.stop(owner, "digits-1", "", stop)
        await world.stop("ada", "digits-1", uid, stop)
        spec = server.objects[path("tfclusters", ADA, "digits-1")]["spec"]
        assert spec["stop"]["reason"] == "an exam" and spec["stop"]["by"] == "admin eve"
        assert spec["stop"]["time"].startswith("20")

        async def is_told() -> bool:
            try:
                await world.stop("ada", "digits-1", uid, Stop(reason="again"))
            except Conflict as error:
                return "by admin eve" in str(error)
            return False

        await wait_until_async(is_told)

    within(server, look)


def test_the_last_lines_of_a_task_come_from_its_pod_then_from_the_record(
    server: KubeServer,
) -> None:
    """The last lines come from the pod, then from the record; otherwise the error says why there
    are none.
    """
    exit_ = {"cause": "Error", "finishedAt": 5.0, "lastLines": ["ValueError: no"]}
    failures = [{"task": "worker-1", "attempt": 1, "exit": exit_}]
    run = launched(server, ADA, "digits-1", phase="Failed", failures=failures, startedAt=1.0)
    where, made = of(run, "pods", "digits-1-worker-1", 1, status={"phase": "Failed"})
    server.put(where, made)
    server.logs["digits-1-worker-1"] = NodeLog().say("one", "<b>two</b>", "three")

    async def look(world: KubernetesSite) -> None:
        assert await world.tail("ada", "digits-1", "worker-1", 2) == ["<b>two</b>", "three"]
        with pytest.raises(NotFound, match="has no task"):
            await world.tail("ada", "digits-1", "worker-9", 2)
        server.remove(where)
        told = await world.tail("ada", "digits-1", "worker-1", 9)
        assert told[1:] == ["ValueError: no"] and "record" in told[0]
        with pytest.raises(NotFound, match="pods of worker-0 are gone"):
            await world.tail("ada", "digits-1", "worker-0", 9)

    within(server, look)


def test_what_belongs_to_no_run_is_found_and_removed_and_nothing_else(server: KubeServer) -> None:
    """A leak is an object of a run that does not exist any more. Objects that have an owner are no
    leaks. A leak is removed only if the request names the user in whose namespace it is.
    """
    run = launched(server, ADA, "digits-1")
    gone = {"metadata": {**run["metadata"], "uid": "gone", "name": "old-1"}}
    kept = [
        of(run, "configmaps", "digits-1"),
        of(gone, "services", "owned-1", ownerReferences=[{"uid": "x"}]),
    ]
    for where, made in (*kept, of(gone, "configmaps", "old-1")):
        server.put(where, made)
    server.put(*of(gone, "jobs", "old-1-worker", spec={}))
    tenant(server, "carol", "tfcluster-u-carol", removed=LONG_AGO)
    tenant(server, "bob", BOB, removed=LONG_AGO)  # bob is a user of the hub again

    async def look(world: KubernetesSite) -> None:
        await world.runs()
        found = {leak.id: leak for leak in (await world.leaks()).items}
        assert sorted(found) == [
            "ConfigMap:old-1",
            "Job:old-1-worker",
            "Namespace:tfcluster-u-carol",
        ]
        assert {leak.owner for leak in found.values()} == {"ada", "carol"}
        for owner, name in (
            ("ada", "ConfigMap:digits-1"),
            ("ada", "Service:owned-1"),
            ("bob", "ConfigMap:old-1"),
            ("ada", "Secret:old-1"),
            ("ada", "ConfigMap:"),
            ("ada", "Namespace:tfcluster-u-carol"),
            ("ada", f"Namespace:{ADA}"),
        ):
            with pytest.raises(NotFound):
                await world.remove(owner, name)
        with pytest.raises(Conflict, match="user of the hub again"):
            await world.remove("bob", f"Namespace:{BOB}")
        for leak in found.values():
            await world.remove(leak.owner, leak.id)
        with pytest.raises(NotFound):
            await world.remove("ada", "ConfigMap:old-1")
        notes = server.objects[path("namespaces", "", "tfcluster-u-carol")]["metadata"][
            "annotations"
        ]
        assert notes["tfcluster.dev/removed-data"] == "true"
        assert server.names("configmaps") == ["digits-1"]
        assert server.names("jobs") == []

    within(server, look)


def test_an_api_server_that_refuses_is_told_beside_what_is_known(server: KubeServer) -> None:
    """If the API server refuses requests, lists are still returned, and say what is missing in
    them. Other calls fail with the API server's reason.
    """
    from support.kube_server import Refusal

    launched(server, ADA, "digits-1")

    async def look(world: KubernetesSite) -> None:
        assert len((await world.runs()).rows) == 1
        server.refuses = lambda _method, _path: Refusal(403, "Forbidden", "it may not")
        with pytest.raises(TFClusterError, match="it may not"):
            await world.stop("ada", "digits-1", "", Stop(reason="an exam"))
        assert (await world.leaks()).missed[0].detail
        assert len((await world.runs()).rows) == 1

    within(server, look)


def test_schedules_of_everyone_are_suspended_by_an_administrator(server: KubeServer) -> None:
    """An administrator's pause is written into the schedule's spec, and is locked: the owner cannot
    end it. An administrator's resume ends that pause, but not a suspension by the owner.
    """
    at = path("tfclusterschedules", ADA, "nightly")
    spec = {"cron": "0 2 * * *", "template": {"spec": {"program": {"inline": "pass"}}}}
    server.put(at, {"metadata": {}, "kind": "TFClusterSchedule", "spec": spec})
    wrong = {**spec, "cron": "99 * * * *", "suspend": True}
    server.put(path("tfclusterschedules", BOB, "wrong"), {"metadata": {}, "spec": wrong})
    lock = Pause(at=1.0, by="admin eve", reason="an exam", locked=True)

    async def look(world: KubernetesSite) -> None:
        async def rows() -> dict[str, SiteSchedule]:
            found = (await world.runs()).schedules
            return {f"{row.owner}/{row.name}": row for row in found}

        async def are_seen() -> bool:
            return len(await rows()) == 2

        await wait_until_async(are_seen)
        seen = await rows()
        assert (seen["ada/nightly"].state, seen["bob/wrong"].state) == ("Active", "Invalid")
        assert seen["ada/nightly"].next_at is not None
        assert "minute" in str(seen["bob/wrong"].reason)
        with pytest.raises(Conflict, match="not paused by an administrator"):
            await world.resume("bob", "wrong", "")
        with pytest.raises(Conflict, match="created again meanwhile"):
            await world.pause("ada", "nightly", "another", lock)
        for name in ("none", "../../pods/x", "nightly/status", ""):
            with pytest.raises(NotFound):
                await world.pause("ada", name, "", lock)
        await world.pause("ada", "nightly", "", lock)
        suspension = {"by": "admin eve", "reason": "an exam", "locked": True}
        asked = server.objects[at]["spec"]
        assert asked["suspend"] is True
        assert {**asked["suspension"], **suspension} == asked["suspension"]
        with pytest.raises(Conflict, match="already paused by admin eve"):
            await world.pause("ada", "nightly", "", lock)

        async def is_paused() -> bool:
            row = (await rows())["ada/nightly"]
            return (row.state, row.by, row.locked) == ("Paused", "admin eve", True)

        await wait_until_async(is_paused)
        await world.resume("ada", "nightly", "")
        assert server.objects[at]["spec"] == spec

    within(server, look)


def test_a_cluster_without_schedules_has_runs(server: KubeServer) -> None:
    """If the custom resources of a cluster are too old to have schedules, the console shows its
    runs, and no problem.
    """
    server.lacks.add("tfclusterschedules")
    launched(server, ADA, "digits-1", phase="Running")

    async def look(world: KubernetesSite) -> None:
        seen = await world.runs()
        assert [row.name for row in seen.rows] == ["digits-1"]
        assert seen.missed == () and seen.schedules == () and world.synced

    within(server, look)
