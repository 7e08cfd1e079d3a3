"""Kills (SIGKILL) at random moments, of processes of a run and of a hub."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

import psutil
import requests
from support.chaos.invariants import check_end
from support.chaos.plan import WEIGHTS

from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Phase

from .cases import Attempt
from .races import SLEEP, launch_of, remove, runs_in_chaos
from .target import Target

KILLS = ("kill_task", "kill_program", "kill_supervisor", "crash", "ambush")
DEATHS = ("die_launching", "die_stopping", "die_deleting")
LAUNCH = """
import os
from tfcluster_magic.runs.manager import ClusterManager
ClusterManager().launch(cell={cell!r}, name={name!r}, workers=1, grace="1s")
print(os.getpid())
"""
ON_RUNS = {name: WEIGHTS[name] for name in ("launch", "tell", "stop", "delete", *KILLS, *DEATHS)}


def of_runs(target: Target, drawn: random.Random) -> None:
    """If any process of a run is killed, the run ends with a reason, can be deleted and leaves
    nothing.
    """
    runs_in_chaos(target, drawn, 8, ON_RUNS)


def _during_verbs(target: Target, drawn: random.Random, victim: str) -> None:
    """Kill a server while the owner launches, stops and deletes; then check the result."""
    owner, own = target.owner, target.own
    name = f"k{drawn.getrandbits(32):x}"
    kept = target.hub.launch(SLEEP, f"{name}kept", workers=1)
    base = f"{own}/tfcluster/api/clusters"

    def use() -> None:
        for number in range(2):
            for method, path, sent in (
                ("POST", base, launch_of(f"{name}n{number}")),
                ("GET", base, None),
                ("POST", f"{base}/{name}n{number}/stop", {}),
                ("DELETE", f"{base}/{name}n{number}", None),
            ):
                # A request fails when the server is killed.
                with suppress(requests.RequestException):
                    seen.append(owner.ask(method, path, json=sent).status_code)

    seen: list[int] = []
    verbs = threading.Thread(target=use)
    verbs.start()
    time.sleep(drawn.random() * 1.5)  # a random moment, so there is no condition to wait for
    with suppress(psutil.NoSuchProcess):
        target.listening(victim).kill()
    verbs.join()
    target.recover()
    assert victim != "console" or 201 in seen, f"without any harm nothing was launched: {seen}"
    manager = target.hub.manager
    assert manager.status(kept.metadata.name).status.phase is Phase.RUNNING, "a run did not go on"
    for run in [
        run for run in manager.list(all_runs=True) if run.metadata.cluster.startswith(name)
    ]:
        answer = owner.ask("POST", f"{base}/{run.metadata.name}/stop", json={})
        assert answer.status_code < 500, f"stop: {answer.status_code} {answer.text[:200]}"
        check_end(manager.wait(run.metadata.name, 120, until=Until.RELEASED).status)
        remove(target, run.metadata.cluster)


def hub(target: Target, drawn: random.Random) -> None:
    """`make run` brings a killed hub back; its users are still signed in, and runs continue."""
    _during_verbs(target, drawn, "hub")


def proxy(target: Target, drawn: random.Random) -> None:
    """The hub starts a killed proxy again."""
    _during_verbs(target, drawn, "front")


def console(target: Target, drawn: random.Random) -> None:
    """A killed console comes back by itself."""
    _during_verbs(target, drawn, "console")
    page = "services/admin/"
    target.until(lambda: target.owner.get(page).status_code == 200, "the console is back")


def notebook(target: Target, drawn: random.Random) -> None:
    """A killed notebook can be started again, and its owner's runs continue."""
    _during_verbs(target, drawn, "notebook")


def kernel(target: Target, drawn: random.Random) -> None:
    """A killed kernel does not end the run that its cell follows."""
    owner, own = target.owner, target.own
    name = f"k{drawn.getrandbits(32):x}"
    number = owner.kernel(own)
    begin = LAUNCH.format(cell=SLEEP, name=name)
    said = owner.execute(own, number, begin)
    assert said.strip().isdigit(), said
    psutil.Process(int(said)).kill()
    run = target.hub.manager.wait(name, 120, until=Until.READY)
    assert run.status.phase is Phase.RUNNING, run.status
    owner.ask("DELETE", f"{own}/api/kernels/{number}")
    remove(target, name)


CASES: Mapping[str, Attempt] = {
    "runs": of_runs,
    "hub": hub,
    "proxy": proxy,
    "console": console,
    "notebook": notebook,
    "kernel": kernel,
}
