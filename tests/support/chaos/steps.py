"""The steps of a chaos schedule: verbs, commands to programs, signals, kills, the end.

This module tracks stopped processes, reads runs and processes through `World`, and asserts the
results of verbs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from support.chaos.local_world import Process, World
from support.chaos.plan import CLUSTERS, MEMBER, ON_TASKS, SHAPES, WORDS, Step

from tfcluster_magic import program
from tfcluster_magic.spec import (
    Lifecycle,
    Mode,
    Phase,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    TFCluster,
)


class Chaos(World):
    """The runs of a `World`, and chaos actions on them; `in_graph` also allows In-Graph runs."""

    def __init__(self, folder: Path, in_graph: bool = False) -> None:
        super().__init__(folder)
        source = folder / "member.py"
        source.write_text(MEMBER)
        self._program, _ = program.snapshot(str(source), arguments=(), workspace=folder, cwd=folder)
        self._in_graph = in_graph
        self._paused: list[tuple[int, int]] = []

    def do(self, step: Step) -> None:
        """Perform a step; a step that needs tasks becomes a launch if there are none."""
        self.story.append(str(step))
        for until, pid in [*self._paused]:
            if until <= step.number:
                self._paused.remove((until, pid))
                _send(pid, signal.SIGCONT)
        idle = step.action in ON_TASKS and self._over(step.cluster)
        getattr(self, "_launch" if idle else f"_{step.action}")(step)

    def _spec(self, step: Step) -> dict[str, Any]:
        in_graph = self._in_graph and step.draws[3] > 0.97
        shape = step.pick(0, SHAPES)
        memory = Resources(memory="256Mi") if step.draws[1] < 0.1 else Resources()
        replicas = {t: Replicas(count=n, resources=memory) for t, n in shape.items()}
        limits = Lifecycle(
            grace=0.5,
            heals=step.pick(1, (3, 0, 1)),
            restarts=step.pick(2, (0, 0, 0, 1)),
            reclaim_after=step.pick(3, (0, 0.5, 60)),
        )
        spec = Spec(replicas=ReplicaSet(**replicas), program=self._program, lifecycle=limits)
        if in_graph:
            servers = ReplicaSet(worker=Replicas(count=1), ps=Replicas(count=1))
            spec = Spec(mode=Mode.IN_GRAPH, replicas=servers, lifecycle=Lifecycle(grace=0.5))
        built: dict[str, Any] = msgspec.to_builtins(spec)
        return built

    # -- verbs -------------------------------------------------------------------------------------

    def _launch(self, step: Step) -> None:
        before = self.newest(step.cluster)
        wish = {"verb": "launch", "ref": step.cluster, "spec": self._spec(step)}
        (result,) = self.clients(wish)
        if "made" not in result:
            self._check_refusal(result, before)
        elif step.draws[2] < 0.5:
            self._settle(step.cluster)

    def _check_refusal(self, result: dict[str, Any], before: TFCluster | None) -> None:
        """Check that a launch was refused only because the name is taken or memory is short."""
        if result["refused"] == "NameTaken":
            assert before is not None and before.active, (result, before)
        else:
            assert result["refused"] == "PreflightRefused" and "memory" in result["why"], result

    def _settle(self, cluster: str) -> None:
        """Wait until the newest run of a name is running or has ended."""

        def settled() -> bool:
            run = self.newest(cluster)
            return run is None or run.status.phase is Phase.RUNNING or run.status.phase.is_final

        if not self._paused:
            self.until(settled, f"{cluster} is up or over")

    def _rerun(self, step: Step) -> None:
        before = self.newest(step.cluster)
        (result,) = self.clients({"verb": "rerun", "ref": step.cluster})
        if before is None:
            assert result["refused"] == "NotFound", result
        elif "made" not in result:
            self._check_refusal(result, before)

    def _stop(self, step: Step) -> None:
        (result,) = self.clients({"verb": "stop", "ref": step.cluster, "reason": "enough"})
        assert result.get("refused") in {None, "NotFound"}, result

    def _delete(self, step: Step, **death: Any) -> None:
        run = self.newest(step.cluster)
        if run is None:
            return
        self._go_on()
        name, with_logs = run.metadata.name, step.draws[1] < 0.5
        wish = {"verb": "delete", "ref": name, "with_logs": with_logs, **death}
        (result,) = self.clients(wish)
        there = any(r.metadata.name == name for r in self.backend.list())
        # The deletion took too long on a busy machine.
        slow = result.get("refused") == "WaitTimeout"
        assert not there or slow or "died" in result, (name, result)
        if not there:
            self.forget(name)
        if "died" in result:  # the client may have removed the record, but not yet the logs
            self.abandon(run)

    def _at_once(self, step: Step) -> None:
        """Send the same request from several clients at once."""
        launch = {"verb": "launch", "ref": step.cluster, "spec": self._spec(step)}
        stop = {"verb": "stop", "ref": step.cluster}
        wishes = [launch, launch, stop, stop, {**stop, "reason": "twice"}]
        if doomed := self.newest(step.cluster) if step.draws[1] < 0.5 else None:
            self._go_on()
            self.forget(doomed.metadata.name)
            delete = {"verb": "delete", "ref": doomed.metadata.name, "with_logs": True}
            wishes += [delete, delete]
        self.clients(*wishes)
        self.adopt(step.cluster)  # the run still exists if its deletion failed

    # -- what happens to programs ------------------------------------------------------------------

    def _tell(self, step: Step) -> None:
        """Send a command to one of the programs."""
        if run := self.newest(step.cluster):
            tasks = [
                f"{t.value}-{i}" for t, n in run.spec.replicas.counts.items() for i in range(n)
            ]
            self._say(run, step.pick(0, tasks), step.pick(1, WORDS))

    def _finish(self, step: Step) -> None:
        """Let all trainers finish."""
        if run := self.newest(step.cluster):
            for task_type, count in run.spec.replicas.counts.items():
                for index in range(count if task_type.value != "ps" else 0):
                    self._say(run, f"{task_type.value}-{index}", "finish")

    def _say(self, run: TFCluster, task: str, word: str) -> None:
        self.note(f"{run.metadata.name} {task}: {word}")
        hidden = self.data / ".word"
        hidden.write_text(word)
        hidden.rename(self.data / f"{run.metadata.uid}-{task}.do")

    # -- what happens to processes -----------------------------------------------------------------

    def _strike(self, step: Step, number: int, which: Callable[[Process], bool]) -> int | None:
        run = self.newest(step.cluster)
        if run is None:
            return None
        there = [*self.supervisors(self.folder_of(run)), *self.tasks(run.metadata.uid)]
        found = sorted(p.pid for p in there if which(p))
        if not found:
            return None
        pid: int = step.pick(0, found)
        self.note(f"{signal.Signals(number).name} to {pid} of {run.metadata.name}")
        _send(pid, number)
        return pid

    def _kill_task(self, step: Step) -> None:
        self._strike(step, signal.SIGKILL, lambda p: p.is_runtime)

    def _kill_program(self, step: Step) -> None:
        self._strike(step, signal.SIGKILL, lambda p: bool(p.task) and not p.is_runtime)

    def _end_task(self, step: Step) -> None:
        self._strike(step, signal.SIGTERM, lambda p: bool(p.task))

    def _kill_supervisor(self, step: Step) -> int | None:
        return self._strike(step, signal.SIGKILL, lambda p: not p.task)

    def _end_supervisor(self, step: Step) -> None:
        self._strike(step, signal.SIGTERM, lambda p: not p.task)

    def _pause(self, step: Step) -> None:
        """Stop a process with SIGSTOP for some steps."""
        if pid := self._strike(step, signal.SIGSTOP, lambda p: True):
            self._paused.append((step.number + 1 + int(step.draws[1] * 6), pid))

    def _go_on(self) -> None:
        for _, pid in self._paused:
            _send(pid, signal.SIGCONT)
        self._paused.clear()

    # -- kills in the middle of an operation ------------------------------------------------------

    def _die_launching(self, step: Step) -> None:
        """Kill or interrupt a client while it launches; its user retries at once."""
        launch = {"verb": "launch", "ref": step.cluster, "spec": self._spec(step)}
        how = "kill" if step.draws[1] < 0.5 else "interrupt"
        results = self.clients({**launch, "dies": 1 + int(step.draws[0] * 26), "how": how})
        if "died" in results[0]:
            if step.draws[2] < 0.5:
                results += self.clients(launch)
            self.adopt(step.cluster)

    def _ambush(self, step: Step) -> None:
        """Kill the supervisor when it starts, or a little later."""
        launch = {"verb": "launch", "ref": step.cluster, "spec": self._spec(step)}
        ambush = {"verb": "ambush", "ref": step.cluster, "after": step.draws[1] * 0.3}
        result, _ = self.clients(launch, ambush)
        assert result.get("refused") in {None, "NameTaken", "BackendUnavailable"}, result

    def _die_stopping(self, step: Step) -> None:
        death = {"dies": 1 + int(step.draws[0] * 4), "how": "kill"}
        self.clients({"verb": "stop", "ref": step.cluster, **death})
        run = self.newest(step.cluster)
        if run is not None and run.spec.stop is not None:
            self._go_on()
            self.until(lambda: self._over(step.cluster), f"{step.cluster} has been stopped")

    def _over(self, cluster: str) -> bool:
        run = self.newest(cluster)
        return run is None or run.status.released_at is not None

    def _die_deleting(self, step: Step) -> None:
        self._delete(step, dies=1 + int(step.draws[0] * 12), how="kill")

    def _crash(self, step: Step) -> None:
        """Simulate a power failure: the supervisor is gone, and files are only partly written."""
        run = self.newest(step.cluster)
        pid = self._kill_supervisor(step)
        if run is None or pid is None:
            return
        folder = self.folder_of(run)
        self.until(lambda: not self.supervisors(folder), "the supervisor is gone")
        if b"releasedAt" in (folder / "status.json").read_bytes():
            return  # the run was over before the kill
        for name, draw in (("status.json", 1), ("task.json", 2), ("stop.json", 3)):
            with contextlib.suppress(OSError):
                content = (folder / name).read_bytes()
                if step.draws[draw] < 0.6:
                    (folder / name).write_bytes(content[: int(step.draws[draw] * len(content))])
                    (folder / f".{name}.{pid}").write_bytes(content[:7])
        self.seen.pop(run.metadata.uid, None)

    def _remove_by_hand(self, step: Step) -> None:
        """Remove a run with `rm`, sometimes with its logs, so that the next run gets the same
        number.
        """
        if run := self.newest(step.cluster):
            self.forget(run.metadata.name)
            output = self.abandon(run)
            folder = self.folder_of(run)
            while folder.exists():  # the supervisor may write during the removal
                shutil.rmtree(folder, ignore_errors=True)
            if step.draws[1] < 0.5:
                shutil.rmtree(output, ignore_errors=True)
            if step.draws[2] < 0.5:
                self._launch(step)

    def _set_clock(self, step: Step) -> None:
        self.set_clock(step.pick(0, (0, -3600, 3600, -5, 5, 0)))

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that a stop ends every run, that each name can be launched again, and that nothing
        is left.
        """
        self.story.append("the end")
        self._go_on()
        self.clients(*({"verb": "stop", "ref": name} for name in self.known))
        self.until(lambda: all(self._over(name) for name in CLUSTERS), "every run is over")
        self.check()
        spec = self._spec(Step(0, "launch", "", (0, 0.5, 0, 0)))
        self.clients(*({"verb": "launch", "ref": name, "spec": spec} for name in CLUSTERS))
        for name in CLUSTERS:
            run = self.newest(name)
            assert run is not None
            self._say(run, "worker-0", "finish")
            self.until(lambda name=name: self._over(name), f"{name} is over")  # type: ignore[misc]
            run = self.newest(name)
            assert run is not None
            assert run.status.phase is Phase.SUCCEEDED, run
        self.check()
        for name in [*self.known]:
            self.clients({"verb": "delete", "ref": name, "with_logs": True})
        assert self.backend.list() == []
        self.check_nothing_left()


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
