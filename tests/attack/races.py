"""Races: several clients act at the same moment, through the hub's pages, its API and a shell."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from support.chaos.plan import schedule
from support.chaos.steps import Chaos
from support.hub.visitor import Visitor
from support.task_process import carrying

from .accounts import at_once, one_link_twice
from .cases import Attempt
from .target import Target

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"
CONTENDED = {"launch": 2, "at_once": 6, "rerun": 2, "tell": 2, "stop": 1, "delete": 1}


def runs_in_chaos(
    target: Target, drawn: random.Random, steps: int, among: Mapping[str, int]
) -> None:
    """Run random steps on the runs of a state folder, and check every invariant after each."""
    with target.state() as folder:
        world = Chaos(folder)
        try:
            for step in schedule(drawn.getrandbits(32), steps, among):
                world.do(step)
                world.check()
            world.finish()
        except AssertionError as error:
            story = "\n".join(world.story[-20:])
            raise AssertionError(f"{error}\n{story}") from error
        finally:
            world.close()


def launch_of(name: str) -> dict[str, object]:
    """Return the body of a launch through the notebook's API."""
    return {"cell": SLEEP, "name": name, "options": {"workers": 1, "grace": "1s"}}


def verbs(target: Target, drawn: random.Random) -> None:
    """When clients launch, stop and delete at the same time, no run is lost, and none exists
    twice.
    """
    runs_in_chaos(target, drawn, 5, CONTENDED)


def one_name(target: Target, drawn: random.Random) -> None:
    """If several pages and shells launch runs of the same name at once, one launch succeeds."""
    name = f"r{drawn.getrandbits(32):x}"
    body = launch_of(name)
    browsers = [target.signed_in_again() for _ in range(3)]

    def page(visitor: Visitor) -> Callable[[], int]:
        where = f"{target.own}/tfcluster/api/clusters"
        return lambda: int(visitor.ask("POST", where, json=body).status_code)

    seen = at_once([page(visitor) for visitor in browsers])
    try:
        assert sorted(seen) == [201, 409, 409], f"three launches of one name at once: {seen}"
        runs = [run for run in target.hub.manager.list() if run.metadata.cluster == name]
        assert len([run for run in runs if run.active]) == 1, runs
    finally:
        remove(target, name)


def one_run(target: Target, drawn: random.Random) -> None:
    """If a run is stopped, deleted and rerun at the same moment, no answer is a server error."""
    name = f"r{drawn.getrandbits(32):x}"
    target.hub.launch(SLEEP, name, workers=1)
    browsers = [target.signed_in_again() for _ in range(4)]
    base = f"{target.own}/tfcluster/api/clusters/{name}"
    ways: tuple[tuple[str, str], ...] = (("POST", "/stop"), ("DELETE", ""), ("POST", "/rerun"))

    def act(visitor: Visitor) -> Callable[[], tuple[str, int, str]]:
        method, path = drawn.choice(ways)

        def call() -> tuple[str, int, str]:
            answer = visitor.ask(method, base + path, json={} if method == "POST" else None)
            return method + path, answer.status_code, answer.text[:200]

        return call

    seen = at_once([act(visitor) for visitor in browsers])
    try:
        wrong = [one for one in seen if one[1] >= 500]
        assert not wrong, f"at once: {seen}"
    finally:
        remove(target, name)


def remove(target: Target, cluster: str) -> None:
    """Stop and delete every run of a name, and check that nothing of them is left."""
    manager = target.hub.manager
    runs = [run for run in manager.list(all_runs=True) if run.metadata.cluster == cluster]
    for run in runs:
        manager.stop(run.metadata.name, "the attack is over")
    for run in runs:
        manager.delete(run.metadata.name, with_logs=True)
        uid = run.metadata.uid
        target.until(lambda uid=uid: not carrying(f"TFCLUSTER_RUN_UID={uid}"), f"{uid} has ended")  # type: ignore[misc]
    left = [run for run in manager.list(all_runs=True) if run.metadata.cluster == cluster]
    assert not left, f"{cluster} cannot be deleted: {left}"


CASES: Mapping[str, Attempt] = {
    "verbs-at-once": verbs,
    "one-name-at-once": one_name,
    "one-run-at-once": one_run,
    "one-link-at-once": one_link_twice,
}
