"""Users' runs on a real cluster under chaos, and their invariants.

This module manages two namespaces (the second has few resources), their operators, and the
observers of all runs. The operators reach the API server through relays that can be cut.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubenode.cluster import Cluster
from kubenode.errors import NodeError
from support.chaos.clients import Asking
from support.chaos.plan import CLUSTERS
from support.kube.chaos_observer import Member, Members, Records, processes_of
from support.kube.chaos_plan import LINES, WORD
from support.kube.chaos_servers import Servers
from support.kube.kubectl import Kubectl
from support.kube.operator_modes import Process
from support.kube.relay import Relay

from tfcluster_magic.kube.api import access, labels
from tfcluster_magic.kube.objects.run_objects import types_served_by_ps
from tfcluster_magic.spec import Phase, TFCluster
from tfcluster_magic.spec.names import task_name

LIVES = 25.0
"""Seconds after which a client that waits for a server is killed."""
KINDS = "pods,jobs,services,configmaps,networkpolicies,pvc,endpointslices"


@dataclass
class Place:
    """A user's namespace."""

    kubectl: Kubectl
    operator: Process
    relay: Relay
    records: Records

    @property
    def name(self) -> str:
        return self.kubectl.namespace


def through(relay: Relay, kubeconfig: str, to: Path) -> str:
    """Return a kubeconfig of the same account that connects through a relay."""
    said = json.loads(Path(kubeconfig).read_text())
    said["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
    to.touch(mode=0o600)
    to.write_text(json.dumps(said))
    return str(to)


class Room(Asking):
    """The runs in two users' namespaces, by name. Each run whose launch was answered must have a
    record.
    """

    def __init__(
        self, cluster: Cluster, namespaces: list[Kubectl], folder: Path, policy: str
    ) -> None:
        """Use the `namespaces`, which tenancy has provisioned; `policy` is the operators' cluster
        policy.
        """
        super().__init__({**os.environ, "KUBECONFIG": namespaces[0].kubeconfig})
        self.changed = threading.Event()
        self.places = [self._place(each, folder / each.namespace, policy) for each in namespaces]
        self.servers = Servers(cluster, [place.operator for place in self.places], self.note)
        self.members = Members(lambda uid: any(uid in p.records.seen for p in self.places))
        self.made: dict[str, tuple[str, str]] = {}
        self.doomed: set[str] = set()
        self.wanted_gone: set[tuple[str, str]] = set()

    def _place(self, kubectl: Kubectl, folder: Path, policy: str) -> Place:
        folder.mkdir()
        (folder / "policy.yaml").write_text(policy)
        os.environ["KUBECONFIG"] = kubectl.kubeconfig
        api, _namespace = access.connect()
        relay = Relay("127.0.0.1", int(api.server.rpartition(":")[2]))
        kubeconfig = through(relay, kubectl.kubeconfig, folder / "kubeconfig")
        operator = Process(kubectl.namespace, kubeconfig, folder)
        operator.start()
        kubectl("wait", "--for=create", f"configmap/{labels.OPTIONS}", "--timeout=90s", seconds=100)
        return Place(kubectl, operator, relay, Records(api, kubectl.namespace, self.changed))

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for a condition, and restart servers that end meanwhile."""

        def holds() -> object:
            self.servers.keep()
            return true()

        super().until(holds, what)

    def close(self) -> None:
        """End the test's own processes, and start the cluster's servers that are down."""
        try:
            self.servers.settle()
        finally:
            super().close()
            self.members.end()
            for place in self.places:
                place.records.end()
                place.operator.stop()
                place.relay.end()

    # -- actions -----------------------------------------------------------------------------------

    def place_of(self, cluster: str) -> Place:
        """Return the namespace that launches clusters of this name; each has half of the names."""
        number = CLUSTERS.index(cluster.partition("-")[0])
        return self.places[number * len(self.places) // len(CLUSTERS)]

    def wish(self, cluster: str, verb: str, **more: Any) -> dict[str, Any]:
        """Return a request for a client process, in the namespace to which the cluster belongs."""
        place = self.place_of(cluster)
        base = {"verb": verb, "ref": cluster, "namespace": place.name, "lives": LIVES}
        return {**base, **more}

    def clients(self, *wishes: dict[str, Any]) -> list[dict[str, Any]]:
        """Run these requests and return the results; check that failures have an allowed reason."""
        calm = not self.servers.stumbling
        results = self.ask(*wishes)
        for wish, result in zip(wishes, results, strict=True):
            if made := result.get("made"):
                assert made["uid"] not in self.made, "a run was made for two launches"
                self.made[made["uid"]] = wish["namespace"], made["name"]
            away = result.get("refused") in {"BackendUnavailable", "WaitTimeout"}
            assert not (calm and away), (wish["verb"], result)
        return results

    def doom(self, place: Place, name: str) -> None:
        """Record that somebody asked to delete a run, so that its record need not exist."""
        self.wanted_gone.add((place.name, name))
        self.doomed |= {uid for uid, of in self.made.items() if of == (place.name, name)}

    def members_of(self, run: TFCluster) -> list[Member]:
        """Return the tasks of a run that have a process."""
        return sorted(
            (each for each in self.members.now() if each.uid == run.metadata.uid),
            key=lambda each: (each.task, each.pid),
        )

    def say(self, member: Member, word: str) -> None:
        """Send a command to a program."""
        self.note(f"{member.uid[:8]} {member.task}: {word}")
        with suppress(OSError):  # the program has ended meanwhile
            hidden = Path(f"/proc/{member.pid}/root", f"{WORD}.new")
            hidden.write_text(f"{time.monotonic()} {word}")
            hidden.chmod(0o644)
            hidden.rename(hidden.with_suffix(""))

    def kubectl(self, place: Place, *words: str) -> bool:
        """Run kubectl; return whether it succeeded."""
        try:
            place.kubectl(*words, "--request-timeout=5s", seconds=30)
        except NodeError as error:
            self.note(f"{' '.join(words)}: {str(error).splitlines()[-1]}")
            return False
        self.note(" ".join(words))
        return True

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the invariants that always hold."""
        problems = [*self.members.problems, *(w for p in self.places for w in p.records.problems)]
        for place in self.places:
            broken = re.findall(r"^.*(?:the turn failed|a reader failed|Traceback).*$",
                                place.operator.log(), re.MULTILINE)  # fmt: skip
            problems += [f"{place.operator.folder}: {words}" for words in broken]
        assert not problems, problems

    def check_nothing_is_lost(self) -> None:
        """Check that every answered launch has its record, unless it was deleted."""
        there = {r["metadata"]["uid"] for p in self.places for r in p.kubectl.every("tfcluster")}
        lost = self.made.keys() - self.doomed - there
        assert not lost, {uid: self.made[uid] for uid in lost}

    def check_output(self, place: Place, run: TFCluster) -> None:
        """Check that all lines of a successful run are in /log."""
        folder = self.output(place, run)
        uid, counts = run.metadata.uid, run.spec.replicas.counts
        for task_type in types_served_by_ps(run):
            for task in (task_name(task_type, index) for index in range(counts[task_type])):
                told = folder / f"{task}.log"
                lines = [f"end {uid} {task} {number}" for number in range(LINES)]
                found = [w for w in told.read_text().splitlines() if w.startswith(f"end {uid}")]
                assert found[-LINES:] == lines, (str(told), found)

    def output(self, place: Place, run: TFCluster) -> Path:
        """Return the path by which processes of this machine reach a run's output."""
        claim = place.kubectl.get("pvc", "log")
        volume = place.kubectl.get("pv", claim["spec"]["volumeName"])
        folder = self.servers.folder(Path(volume["spec"]["hostPath"]["path"]))
        return folder / run.metadata.cluster / str(run.metadata.run)

    def check_nothing_left(self) -> None:
        """Check that nothing of the runs is left after all are deleted."""
        uids = {uid for place in self.places for uid in place.records.seen}
        for place in self.places:
            self.until(lambda place=place: not _objects(place), f"{_objects(place)} are gone")  # type: ignore[misc]
        self.until(lambda: not processes_of(uids), f"processes {processes_of(uids)} are gone")
        groups = [name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders]
        assert not [name for name in groups if any(uid in name for uid in uids)]
        for place in self.places:
            self.until(
                lambda place=place: not self.servers.sandboxes(place.name),  # type: ignore[misc]
                f"nothing that containerd keeps for {place.name} is left",
            )

    def failed_turns(self) -> dict[str, str]:
        """Return each operator's count of failed turns."""
        return {place.name: _failed(place.operator.port) for place in self.places}

    def newest(self, cluster: str) -> TFCluster | None:
        """Return the newest run of this name."""
        return self.place_of(cluster).records.newest(cluster)

    def over(self, cluster: str) -> bool:
        """Return whether no run of this name is active."""
        run = self.newest(cluster)
        return run is None or run.status.released_at is not None

    def is_in(self, cluster: str, *phases: Phase) -> bool:
        """Return whether the newest run of a name is in one of these phases."""
        run = self.newest(cluster)
        return run is not None and run.status.phase in phases

    def tell(self) -> None:
        """Add the history of each run, and the last lines of the operators' logs, to the report
        (`story`).
        """
        for place in self.places:
            for seen in place.records.seen.values():
                self.story.append(f"{seen.run.metadata.name} {seen.run.metadata.uid}")
                self.story += [f"    {line}" for line in seen.story]
                self.story.append(f"    {seen.run.status.message}")
            self.story += [
                f"log: {place.operator.folder}",
                *place.operator.log().splitlines()[-40:],
            ]
            with suppress(NodeError):
                self.story += [place.kubectl("get", "pods", "-o", "wide"), place.kubectl.events()]


def _objects(place: Place) -> list[str]:
    said = place.kubectl("get", KINDS, "-l", "tfcluster.dev/uid", "-o", "name")
    return said.split()


def _failed(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        (found,) = re.findall(r"^\w*failed_turns_total (\S+)$", reply.read().decode(), re.MULTILINE)
    return str(found)
