"""Runs that wait for others, applied by kubectl: they start, or end with a reason."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kubenode.errors import NodeError
from support.kube.operator import Tenant, spec_of

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.lifecycle.dependencies import MISSING_PATIENCE
from tfcluster_magic.spec import AwaitedOutcome, Dependency, Lifecycle

PROGRAM = """
import os, sys, time
until = time.time() + float(sys.argv[1])
while time.time() < until and not os.path.exists("/tmp/enough"):
    time.sleep(0.1)
sys.exit(int(sys.argv[2]))
"""
LIMITS = Lifecycle(grace=2.0)
LATEST = 3.0
"""Maximum seconds from the end of a run to the start of the run that waits for it, on a busy node.
"""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant]) -> Tenant:
    """Make a user's namespace."""
    return new_tenant()


@pytest.fixture
def apply(home: Tenant, tmp_path: Path) -> Callable[..., None]:
    """Return a function that applies runs as one file of manifests, in the given order."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)

    def apply(*runs: tuple[str, float, int, tuple[Dependency, ...]]) -> None:
        made = []
        for name, seconds, code, after in runs:
            spec = spec_of(file, str(seconds), str(code), after=after, lifecycle=LIMITS)
            cluster, _dash, number = name.rpartition("-")
            made.append(custom_resource.write_by_hand(cluster, int(number), spec))
        home.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, made)))

    return apply


def on(*runs: str, until: AwaitedOutcome = AwaitedOutcome.SUCCESS) -> tuple[Dependency, ...]:
    return tuple(Dependency(run=run, until=until) for run in runs)


def waits(status: dict[str, object], words: str) -> bool:
    return status.get("phase") == "Queued" and words in str(status.get("message"))


def test_a_run_starts_when_those_before_it_have_succeeded(
    home: Tenant, apply: Callable[..., None]
) -> None:
    """A manifest may be applied before the run that it names. The manifest's run then has no pods
    and delays no other run. It starts automatically when the named run has succeeded, even if the
    operator was away.
    """
    apply(("train-1", 0, 0, on("prepare-1")))
    home.wait("train-1", lambda s: waits(s, "there is no run prepare-1 yet"), "it says so")
    apply(("prepare-1", 600, 0, ()), ("later-1", 600, 0, on("train-1")))
    home.wait("train-1", lambda s: waits(s, "Waiting for prepare-1 to succeed."), "it waits")
    home.phase("prepare-1", "Running")  # created after train-1, but not delayed by it
    assert home.left_of("train-1") == ["tfcluster/train-1"]
    home.operator.stop()
    worker = home.pods("prepare-1")[0]["metadata"]["name"]
    home.kubectl.exec(worker, "touch", "/tmp/enough")
    home.kubectl.wait(
        "pod", worker, lambda pod: pod["status"]["phase"] == "Succeeded", "the worker has ended"
    )
    assert home.status("train-1")["phase"] == "Queued"
    home.operator.start()
    done = home.phase("train-1", "Succeeded")
    assert [each["run"] for each in done["awaited"]] == ["prepare-1"]
    later = home.phase("later-1", "Running")
    passed = later["startedAt"] - done["finishedAt"]
    print(f"started {passed:.2f} s after the run before it")
    assert passed < LATEST
    home.kubectl("delete", "tfcluster", "later-1", "prepare-1", "train-1")


def test_a_run_ends_when_what_it_waits_for_cannot_happen(
    home: Tenant, apply: Callable[..., None]
) -> None:
    """A run fails if the run that it waits for failed, was deleted, never existed, or waits for it;
    the reason says so. A run that waits `until: End` starts after any end of the other run. A
    waiting run can be stopped.
    """
    apply(
        ("bad-1", 0, 1, ()),
        ("gone-1", 600, 0, ()),
        ("never-1", 0, 0, on("nobody-7")),
        ("needs-1", 0, 0, on("bad-1")),
        ("anyway-1", 0, 0, on("bad-1", until=AwaitedOutcome.END)),
        ("left-1", 0, 0, on("gone-1")),
        ("stopped-1", 0, 0, on("gone-1")),
        ("egg-1", 0, 0, on("hen-1")),
        ("hen-1", 0, 0, on("egg-1")),
    )
    begun = time.time()
    home.wait("left-1", lambda s: waits(s, "Waiting for gone-1 to succeed."), "it waits")
    home.wait("stopped-1", lambda s: waits(s, "Waiting for gone-1 to succeed."), "it waits")
    home.kubectl(
        "patch", "tfcluster", "stopped-1", "--type=merge", "-p", '{"spec":{"stop":{"by":"ida"}}}'
    )
    assert home.phase("stopped-1", "Stopped")["releasedAt"]
    home.phase("gone-1", "Running")
    home.kubectl("delete", "tfcluster", "gone-1")
    reasons = {
        "needs-1": "bad-1 failed, so this run did not start.",
        "left-1": "gone-1 was deleted before",
        "never-1": "There was no run nobody-7 for 1m",
    }
    for name, words in reasons.items():
        status = home.phase(name, "Failed")
        assert status["reason"] == "DependencyFailed"
        assert words in status["message"] and f"`tfcluster rerun {name}`" in status["message"]
        assert home.left_of(name) == [f"tfcluster/{name}"]
    assert time.time() - begun < 3 * MISSING_PATIENCE
    circle = [home.phase(name, "Failed") for name in ("egg-1", "hen-1")]
    assert any("wait for each other" in status["message"] for status in circle)
    assert all(status["reason"] == "DependencyFailed" for status in circle)
    home.phase("anyway-1", "Succeeded")


def test_a_manifest_that_names_no_run_is_refused(home: Tenant, tmp_path: Path) -> None:
    """The API server refuses a name without a number, and a run that is named twice."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    for after, words in (
        ([{"run": "prepare"}], "name a run with its number"),
        ([{"run": "a-1"}, {"run": "a-1", "until": "End"}], "twice"),
    ):
        made = custom_resource.write_by_hand("odd", 1, spec_of(file, "0", "0"))
        made["spec"]["after"] = after
        with pytest.raises(NodeError, match=words):
            home.kubectl("apply", "-f", "-", stdin=json.dumps(made))
