"""The operator's messages and retries when the API refuses to change a Job."""

from __future__ import annotations

from support.kube_server import Refusal
from support.operator_world import JOBS, RUNS, World, up
from support.polling import wait_until

NO = Refusal(403, "Forbidden", 'admission webhook "guard" denied the request: no changes today')


def test_a_refused_suspension_is_told_and_tried_again(world: World) -> None:
    """A Job that cannot be suspended is reported in the status of its run. The other Jobs are
    suspended meanwhile, and the run stops once this Job is suspended, too.
    """
    up(world, ps=1)
    world.server.refuses = lambda method, path: (
        NO if method == "PATCH" and path == f"{JOBS}/digits-1-worker" else None
    )
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    status = world.wait("digits-1", lambda s: "no changes today" in s.get("message", ""))
    assert status["phase"] == "Stopping"
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))
    world.server.refuses = lambda _method, _path: None
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend"))
    for pod in ("digits-1-ps-0-first", "digits-1-worker-0-first"):
        world.server.remove(f"/api/v1/namespaces/a/pods/{pod}")
    assert "no changes today" not in world.phase("digits-1", "Stopped")["message"]


def test_servers_that_cannot_be_given_back_are_told(world: World) -> None:
    """If the parameter servers of a successful run cannot be suspended, the run reports this until
    they are gone.
    """
    up(world, ps=1, reclaim_after=0.0)
    world.server.refuses = lambda method, path: (
        NO if method == "PATCH" and path == f"{JOBS}/digits-1-ps" else None
    )
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.wait("digits-1", lambda s: "no changes today" in s.get("message", ""))
    world.server.refuses = lambda _method, _path: None
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))
    world.server.remove("/api/v1/namespaces/a/pods/digits-1-ps-0-first")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert "no changes today" not in status["message"]


def test_writes_are_counted_as_they_are(world: World) -> None:
    """The metric `status_writes` equals the number of status patches that the operator sent. If the
    operator handles a run and its status does not change, nothing is sent or counted.
    """
    up(world)
    assert world.controller is not None
    measures, turns = world.controller.context.metrics, world.controller.turns
    taken = turns.taken
    for number in range(3):
        pod = world.server.objects["/api/v1/namespaces/a/pods/digits-1-worker-0-first"]
        pod["metadata"].setdefault("annotations", {})["note"] = str(number)
        world.server.put("/api/v1/namespaces/a/pods/digits-1-worker-0-first", pod)
        wait_until(lambda before=taken + number: turns.taken > before)
    patches = [call for call in world.server.calls if call[1].endswith("/digits-1/status")]
    assert measures.status_writes == len(patches)
