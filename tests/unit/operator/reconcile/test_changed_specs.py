"""Records that became invalid because their spec was changed; and runs that have started, which a
stricter policy does not end.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest
from support.operator_world import JOBS, PODS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.objects.policy import Policy


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_whose_spec_became_wrong_ends(world: World, restarted: bool) -> None:
    """A run whose spec became invalid fails with its problems. Its Jobs are suspended, its history
    stays, and it has ended once its tasks are gone.
    """
    up(world, ps=1)
    before = world.status("digits-1")
    if restarted:
        world.rest()
    run = copy.deepcopy(world.run("digits-1"))
    run["spec"]["interpreter"] = "python3"
    world.server.put(f"{RUNS}/digits-1", run)
    if restarted:
        world.operate()
    status = world.phase("digits-1", "Failed")
    assert "spec.interpreter" in status["message"]
    assert status["reason"] == "Disrupted"
    assert status["startedAt"] == before["startedAt"]
    assert status["events"][:-1] == before["events"]
    for job in ("digits-1-ps", "digits-1-worker"):
        wait_until(lambda job=job: world.job(job)["spec"].get("suspend") is True)
    assert status.get("releasedAt") is None
    for pod in ("digits-1-ps-0-first", "digits-1-worker-0-first"):
        world.server.remove(f"{PODS}/{pod}")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert status["counts"]["worker"] == {"desired": 1, "stopped": 1}


def test_a_record_that_was_never_a_run_touches_nobodys_job(world: World) -> None:
    """A record that is refused while Queued ends at once; a Job of the same name is not touched."""
    other = {"metadata": {"labels": {"tfcluster.dev/name": "digits-1"}}, "spec": {}}
    other["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "tfcluster-operator"
    world.server.put(f"{JOBS}/digits-1-worker", other)
    world.server.put(f"{RUNS}/digits-1", {"spec": {"env": {"TF_CONFIG": "x"}}})
    assert world.phase("digits-1", "Failed")["releasedAt"]
    assert "suspend" not in world.job("digits-1-worker")["spec"]


def test_a_later_policy_refuses_no_run_that_has_begun(world: World) -> None:
    """If the policy becomes stricter, a run that has started continues, and its output stays in the
    same folder.
    """
    up(world, ps=1, reclaim_after=0.0)
    world.policy = Policy(images=("none/*",), default_image="none/x", max_tasks=1, log_path="/else")
    world.operate()
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    status = world.phase("digits-1", "Succeeded")
    assert status["paths"]["output"] == "/log/digits/1"


LINE = "print('step', step)  # of an ordinary program\n"
OLD_TEXT = LINE * (65_400 // len(LINE))
"""A program text that an earlier release accepted, because it has less than 64 KiB. In etcd, its
quotation marks and line ends are escaped, so it takes more than 64 KiB there; the current release
counts these bytes and refuses it.
"""


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_that_an_earlier_release_took_goes_on(world: World, restarted: bool) -> None:
    """Limits that a release has lowered apply only to launches. An upgraded operator lets an active
    run continue, even if its program is larger than the new limit, and stops it on request, even if
    `by` of the stop is longer than the new limit.
    """
    up(world, ps=1, reclaim_after=0.0)
    if restarted:
        world.rest()
    run = copy.deepcopy(world.run("digits-1"))
    run["spec"]["program"] = {"inline": OLD_TEXT}
    run["metadata"]["generation"] = 2
    world.server.put(f"{RUNS}/digits-1", run)
    if restarted:
        world.operate()
    world.pod("digits-1-worker", "running", 0, "digits-1-worker-0-first")
    run = copy.deepcopy(world.run("digits-1"))
    run["spec"]["stop"] = {"reason": "enough", "by": "a" * 1000}
    run["metadata"]["generation"] = 3
    world.server.put(f"{RUNS}/digits-1", run)
    status = world.wait("digits-1", lambda s: s["phase"] in ("Stopping", "Stopped", "Failed"))
    assert status["reason"] == "StopRequested", status["message"]


def test_a_new_record_of_that_size_is_refused(world: World) -> None:
    """A new record that exceeds the limits of a launch is refused."""
    world.server.put(f"{RUNS}/digits-1", {"spec": {"program": {"inline": OLD_TEXT}}})
    assert "64 KiB together" in world.phase("digits-1", "Failed")["message"]


def test_a_wrong_checksum_fails_a_run_at_once(world: World) -> None:
    """A run whose program does not match the checksum in its spec is Failed before any object is
    created, and the message has the real checksum.
    """
    spec = {"program": {"inline": "print(1)\n", "sha256": "0" * 64}}
    world.server.put(f"{RUNS}/digits-1", {"spec": spec})
    status = world.phase("digits-1", "Failed")
    assert status["releasedAt"]
    assert "0" * 64 in status["message"]
    assert hashlib.sha256(b"print(1)\n").hexdigest() in status["message"]
    assert world.made() == 0


def test_a_program_that_is_no_snapshot_is_told(world: World) -> None:
    """If a run's program is a path without a checksum, the status warns that the program may
    change, and says how to avoid that. A program whose text is in the record causes no warning.
    """
    where = {"program": {"path": "digits/train.py"}}
    world.server.put(f"{RUNS}/digits-1", {"spec": where})
    told = world.wait("digits-1", lambda s: s.get("inferred"))["inferred"]
    assert told == [{"code": "ProgramNotPinned", "params": {"source": "digits/train.py"}}]
    world.server.put(f"{RUNS}/text-1", {"spec": {"program": {"inline": "print(1)\n"}}})
    assert "inferred" not in world.phase("text-1", "Starting")


@pytest.mark.parametrize(
    "program",
    [
        {"inline": "print(1)\n"},
        {"command": ["python", "-m", "digits"]},
        {"files": {"train.py": "cHJpbnQoMSkK"}, "entrypoint": "train.py"},
        {"path": "/data/train.py"},
    ],
    ids=lambda program: next(iter(program)),
)
def test_a_program_by_hand_says_what_runs_without_its_text(
    world: World, program: dict[str, Any]
) -> None:
    """The operator's caches do not keep the text of a program that a user wrote into the record by
    hand. Nevertheless, the run starts, and a second operator that takes it over still treats it as
    a run with this program.
    """
    spec = {"program": program, "replicas": {"worker": {"count": 1}}}
    world.server.put(f"{RUNS}/digits-1", {"spec": spec})
    wait_until(lambda: f"{JOBS}/digits-1-worker" in world.server.objects)
    world.pod("digits-1-worker", "running", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Running")
    world.operate()
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Succeeded")


def test_files_that_are_no_base64_are_named(world: World) -> None:
    """If a file of a program in the record is not valid base64, the run fails, and the message says
    so.
    """
    program = {"files": {"train.py": "?"}, "entrypoint": "train.py"}
    world.server.put(f"{RUNS}/digits-1", {"spec": {"program": program}})
    assert "base64" in world.phase("digits-1", "Failed")["message"]


@pytest.mark.parametrize(
    ("notes", "spec"),
    [
        ({"tfcluster.dev/warnings": "[" * 20_000}, {}),
        ({"tfcluster.dev/inferred": "[" * 20_000}, {}),
        ({}, {"replicas": {"worker": {"count": 1, "resources": {"memory": "1e999999"}}}}),
    ],
)
def test_no_record_keeps_the_operator_from_the_others(
    world: World, notes: dict[str, str], spec: dict[str, Any]
) -> None:
    """No content of one tenant's record blocks the runs of others."""
    told = {"metadata": {"annotations": notes}, "spec": {"program": {"inline": "1"}, **spec}}
    world.server.put(f"{RUNS}/odd-1", told)
    world.operate()
    up(world)
