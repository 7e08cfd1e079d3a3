"""The steps of chaos on Kubernetes: verbs, commands to programs, kills, the end. No step waits for
the recovery from its own fault. Steps read runs through `Room`.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from kubenode.cluster import Cluster
from kubenode.processes import children
from support.chaos.plan import CLUSTERS, SHAPES, WORDS, Step
from support.kube.chaos_notebook import Notebook, WithNotebook
from support.kube.chaos_plan import MEMBER, ON_TASKS, SERVERS
from support.kube.kubectl import Kubectl

from tfcluster_magic import program
from tfcluster_magic.kube.api import labels
from tfcluster_magic.spec import Lifecycle, Mode, Phase, Replicas, ReplicaSet, Resources, Spec

SMALL = Resources(memory="100Mi")
SERVES = Resources(memory="1Gi")
AT_ONCE = 4
"""Maximum number of records that are deleted at the same time at the end."""
PACE = 0.6
"""Maximum seconds to the next step, which starts at once when a record changes."""


class Chaos(WithNotebook):
    """The runs of a `Room`, and chaos actions on them; `in_graph` also allows In-Graph runs."""

    def __init__(
        self,
        cluster: Cluster,
        namespaces: list[Kubectl],
        folder: Path,
        policy: str,
        image: str,
        in_graph: bool,
    ) -> None:
        super().__init__(cluster, namespaces, folder, policy)
        self.notebook = Notebook(self.places[0], image, folder)
        self.notebook.write("member.py", MEMBER)
        source = folder / "member.py"
        source.write_text(MEMBER)
        self._program, _ = program.snapshot(str(source), arguments=(), workspace=folder, cwd=folder)
        self._in_graph = in_graph

    def do(self, step: Step) -> None:
        """Perform a step; a step that needs tasks becomes a launch if there are none."""
        self.story.append(f"{time.monotonic():.2f} {step}")
        self.servers.tend(step.number)
        self.notebook.tend(step.number)
        self.changed.clear()
        idle = step.action in ON_TASKS and self.over(step.cluster)
        if not idle and step.action.startswith("lose_"):
            self._lose(step)
        else:
            getattr(self, "_launch" if idle else f"_{step.action}")(step)
        self.changed.wait(PACE)

    def _spec(self, step: Step) -> dict[str, Any]:
        shape = step.pick(0, SHAPES)
        in_graph = self._in_graph and step.draws[3] > 0.95 and step.cluster in CLUSTERS[:2]
        resources = SERVES if in_graph else SMALL
        replicas = {t: Replicas(count=n, resources=resources) for t, n in shape.items()}
        if in_graph:
            servers = ReplicaSet(worker=replicas["worker"])
            spec = Spec(mode=Mode.IN_GRAPH, replicas=servers, lifecycle=Lifecycle(grace=1.0))
        else:
            limits = Lifecycle(
                grace=1.0,
                heals=step.pick(1, (3, 0, 1)),
                restarts=step.pick(2, (0, 0, 0, 1)),
                reclaim_after=step.pick(3, (0, 1.0, 60)),
            )
            spec = Spec(replicas=ReplicaSet(**replicas), program=self._program, lifecycle=limits)
        built: dict[str, Any] = msgspec.to_builtins(spec)
        return built

    # -- verbs -------------------------------------------------------------------------------------

    def _launch(self, step: Step) -> None:
        (result,) = self.clients(self.wish(step.cluster, "launch", spec=self._spec(step)))
        if "made" in result and step.draws[2] < 0.7 and not self.servers.shaken:
            self._settle(step.cluster, result["made"]["uid"])

    def _settle(self, cluster: str, uid: str) -> None:
        """Wait until a run is running, waits for resources, or has ended."""

        def settled() -> bool:
            seen = self.place_of(cluster).records.seen.get(uid)
            if seen is None:
                return False
            phase, waits = seen.run.status.phase, "in the queue" in seen.run.status.message
            return waits or not seen.there or phase is Phase.RUNNING or phase.is_final

        self.until(settled, f"{cluster} is up or over")

    def _rerun(self, step: Step) -> None:
        self.clients(self.wish(step.cluster, "rerun"))

    def _stop(self, step: Step) -> None:
        self.clients(self.wish(step.cluster, "stop", reason="enough"))

    def _delete(self, step: Step, **death: Any) -> None:
        run = self.newest(step.cluster)
        if run is None:
            return
        place, name = self.place_of(step.cluster), run.metadata.name
        self.doom(place, name)
        wish = {**self.wish(step.cluster, "delete", with_logs=False), "ref": name, **death}
        (result,) = self.clients({"lives": 8.0, **wish})
        if result.get("made", "") is None:
            self.until(lambda: run.metadata.uid not in self._there(place), f"{name} is gone")
            # A later run can get this run's number only if the output is gone, so mostly delete it.
            if step.draws[1] < 0.7 and not self.servers.shaken:
                shutil.rmtree(self.output(place, run), ignore_errors=True)

    def _there(self, place: Any) -> set[str]:
        return {each.metadata.uid for each in place.records.every()}

    def _at_once(self, step: Step) -> None:
        """Send the same request from several clients at once."""
        launch = self.wish(step.cluster, "launch", spec=self._spec(step))
        stop = self.wish(step.cluster, "stop")
        wishes = [launch, launch, stop, {**stop, "reason": "twice"}]
        doomed = self.newest(step.cluster) if step.draws[1] < 0.5 else None
        if doomed:
            ref = {"ref": doomed.metadata.name, "with_logs": False, "lives": 8.0}
            wishes += [{**self.wish(step.cluster, "delete"), **ref}] * 2
        self.clients(*wishes)
        if doomed:
            self.doom(self.place_of(step.cluster), doomed.metadata.name)

    # -- actions on tasks --------------------------------------------------------------------------

    def _tell(self, step: Step) -> None:
        """Send a command to one of the programs."""
        if (run := self.newest(step.cluster)) and (there := self.members_of(run)):
            self.say(step.pick(0, there), step.pick(1, WORDS))

    def _finish(self, step: Step) -> None:
        """Let all trainers finish."""
        if run := self.newest(step.cluster):
            for member in self.members_of(run):
                if not member.task.startswith("ps"):
                    self.say(member, "finish")

    def _strike(self, step: Step, what: str) -> None:
        run = self.newest(step.cluster)
        there = self.members_of(run) if run else []
        if not there:
            return
        member = step.pick(0, there)
        if what == "shim":
            pid = self.servers.shim_of(member.pid)
        else:
            pid = next(iter(children(member.pid)), 0) if what == "program" else member.pid
        self.note(f"KILL to the {what} of {member.uid[:8]} {member.task}: {pid}")
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)

    def _kill_task(self, step: Step) -> None:
        self._strike(step, "task")

    def _kill_program(self, step: Step) -> None:
        self._strike(step, "program")

    def _kill_shim(self, step: Step) -> None:
        self._strike(step, "shim")

    def _delete_pod(self, step: Step, *how: str) -> None:
        run, place = self.newest(step.cluster), self.place_of(step.cluster)
        if not run:
            return
        tasks = [f"{t.value}-{i}" for t, n in run.spec.replicas.counts.items() for i in range(n)]
        task = step.pick(0, tasks)
        if how:
            self.members.forced[run.metadata.uid, task] = step.number
        kind, _dash, index = task.rpartition("-")
        chosen = (
            f"{labels.NAME}={run.metadata.name},{labels.TASK_TYPE}={kind},{labels.INDEX}={index}"
        )
        self.kubectl(place, "delete", "pod", "-l", chosen, "--wait=false", *how)

    def _force_pod(self, step: Step) -> None:
        self._delete_pod(step, "--force", "--grace-period=0")

    def _delete_job(self, step: Step) -> None:
        if run := self.newest(step.cluster):
            of_type = step.pick(0, [*run.spec.replicas.counts])
            name = labels.job_name(run.metadata.name, of_type)
            self.kubectl(self.place_of(step.cluster), "delete", "job", name, "--wait=false")

    def _meddle(self, step: Step) -> None:
        """Write to a record as another client."""
        run = self.newest(step.cluster)
        if run is None or run.status.phase.is_final:
            return
        label = '{"metadata": {"labels": {"stranger": "here"}}}'
        message = '{"status": {"message": "A stranger was here."}}'
        wish = '{"spec": {"lifecycle": {"heals": 9}}}'
        which = step.pick(0, ((label, ""), (message, "--subresource=status"), (wish, "")))
        words = ("patch", "tfcluster", run.metadata.name, "--type=merge", "-p", which[0])
        done = self.kubectl(self.place_of(step.cluster), *words, *filter(None, which[1:]))
        assert not (done and which[0] is wish), "somebody changed what was launched"

    # -- actions on servers and clients ------------------------------------------------------------

    def _lose(self, step: Step) -> None:
        by_action = {f"lose_{server.replace('-', '_')}": server for server in SERVERS}
        away = 1 + int(step.draws[1] * 4)
        self.servers.lose(by_action[step.action], step.number + away, int(step.draws[0] * 6))

    def _cut(self, step: Step) -> None:
        """Cut every connection of the operator."""
        self.place_of(step.cluster).relay.cut()

    def _die_launching(self, step: Step) -> None:
        """Kill or interrupt a client while it launches; its user retries at once."""
        launch = self.wish(step.cluster, "launch", spec=self._spec(step))
        how = "kill" if step.draws[1] < 0.5 else "interrupt"
        (result,) = self.clients({**launch, "dies": 1 + int(step.draws[0] * 14), "how": how})
        if "died" in result and step.draws[2] < 0.5:
            self.clients(launch)

    def _die_stopping(self, step: Step) -> None:
        death = {"dies": 1 + int(step.draws[0] * 8), "how": "kill"}
        self.clients(self.wish(step.cluster, "stop", **death))

    def _die_deleting(self, step: Step) -> None:
        self._delete(step, dies=1 + int(step.draws[0] * 16), how="kill")

    def _die_reading(self, step: Step) -> None:
        self.clients(self.wish(step.cluster, "logs", lives=0.2 + step.draws[0]))

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that a stop ends every run, that each name can be launched again, and that nothing
        is left.
        """
        self.story.append("the end")
        self.servers.settle()
        self.until(self._has_stopped, "every run is over")
        self.check_nothing_is_lost()
        self.check_what_cells_said()
        self.leave_and_come_back()
        failed = self.failed_turns()
        spec = self._spec(Step(0, "launch", "", (0, 0.5, 0, 0)))
        last = [f"{name}-last" for name in CLUSTERS]
        self.clients(*(self.wish(name, "launch", spec=spec) for name in last))
        self.until(lambda: all(self.is_in(name, Phase.RUNNING) for name in last), "all are up")
        for name in last:
            self._finish(Step(0, "finish", name, (0, 0, 0, 0)))
        self.until(lambda: all(map(self.over, last)), "all are over")
        runs = [self.newest(name) for name in last]
        assert all(self.is_in(name, Phase.SUCCEEDED) for name in last), runs
        assert self.failed_turns() == failed, "a turn failed, though nothing was away"
        self.check()
        for place in self.places:
            for run in place.records.every():
                if run.status.phase is Phase.SUCCEEDED:
                    self.check_output(place, run)
        for place in self.places:
            deletes = [
                {**self.wish(run.metadata.cluster, "delete"), "ref": run.metadata.name}
                for run in place.records.every()
            ]
            for at in range(0, len(deletes), AT_ONCE):
                few = deletes[at : at + AT_ONCE]
                self.clients(*({**delete, "with_logs": False} for delete in few))
            self.until(lambda place=place: not place.records.every(), "no record is left")  # type: ignore[misc]
        self.close_notebook()
        self.check_nothing_left()
        self.check()

    def _has_stopped(self) -> bool:
        """Return whether every run has ended; stop active runs, because the client that should have
        stopped them may have been killed.
        """
        left = [run for place in self.places for run in place.records.every()]
        left = [run for run in left if run.status.released_at is None]
        asked = [r for r in left if r.spec.stop is None and not r.status.phase.is_final]
        if asked:
            wishes = (self.wish(r.metadata.cluster, "stop", ref=r.metadata.name) for r in asked)
            self.clients(*wishes)
        return not left
