"""A user's notebook under chaos: its pod is deleted and created again, and its cells are killed.

A cell is a process of the product's command line, in a pod with the notebook's image, account,
labels and volumes. The cells' runs must continue whatever happens to the notebook.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kubenode.errors import NodeError
from support.chaos.plan import CLUSTERS, Step
from support.kube import tenants
from support.kube.chaos_plan import LINES
from support.kube.chaos_world import Place, Room
from support.kube.kubectl import is_ready

from tfcluster_magic.spec import Phase

MARK = "CHAOS_NOTEBOOK"
LAUNCH = (
    *("launch", "--follow", "--memory=100Mi", "--grace=1", "--workers={workers}", "--ps=0"),
    *("--name={name}", "member.py"),
)
LAUNCHED = re.compile(rf"((?:{'|'.join(CLUSTERS)})-\d+) ")
"""The start of the output of a cell that launches a run: the run's name, which no task prints."""
LINE = re.compile(r"\b(?:up|end) [0-9a-f-]{36} \S+(?: \d+)?$", re.MULTILINE)
"""A line that a program prints, without the prefix that names the task."""


@dataclass(frozen=True)
class Cell:
    """One command in the notebook, as its kernel runs it, and its output."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        """The output so far."""
        return self.output.read_text()

    @property
    def lines(self) -> list[str]:
        """The lines of tasks in the cell's output."""
        return LINE.findall(self.said)


class Notebook:
    """The pod of one user; `image` is the notebook's image."""

    def __init__(self, place: Place, image: str, folder: Path) -> None:
        self.place, self._kube = place, place.kubectl
        self._folder, self.cells = folder, list[Cell]()
        self.launched: set[str] = set()
        """Runs whose launch a cell has reported."""
        self._pod = tenants.notebook(image)
        (container,) = self._pod["spec"]["containers"]
        container["env"].append({"name": MARK, "value": place.name})
        self._back = 0
        tenants.move_in(self._kube)
        self._begin()
        self._kube.running(tenants.POD)

    def write(self, name: str, text: str) -> None:
        """Write a file into the user's home, which outlives the pod."""
        self._kube("exec", "-i", tenants.POD, "--", "sh", "-c", f"cat >~/{name}", stdin=text)

    def _begin(self) -> bool:
        """Create the pod, as a hub does for its user; return whether it was created."""
        with suppress(NodeError):  # the old pod still exists, or the server is down: retry later
            words = ("create", "-f-", "--request-timeout=5s")
            self._kube(*words, stdin=json.dumps(self._pod), seconds=30)
            return True
        return False

    def run(self, *words: str) -> Cell:
        """Start a command in the pod; it ends when it has no more output, or with the pod."""
        output = self._folder / f"cell-{len(self.cells)}"
        whole = self._kube.words("exec", tenants.POD, "--", "sh", "-c", 'cd; exec tfcluster "$@"')
        with output.open("wb") as to:
            process = subprocess.Popen([*whole, "sh", *words], stdout=to, stderr=to)
        self.cells.append(Cell(process, output))
        return self.cells[-1]

    def processes(self) -> list[int]:
        """Return the process ids of the commands that run in the pod."""
        mark, found = f"{MARK}={self.place.name}".encode(), []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if not any(word.endswith(b"/tfcluster") for word in words):
                    continue
                if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return found

    def kill_cells(self) -> int:
        """Kill the cells, as when the kernel dies; return their number."""
        found = self.processes()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def delete(self, back: int, *how: str) -> None:
        """Delete the pod. `tend` creates the next one at the step `back`, or never if this is 0."""
        with suppress(NodeError):
            words = ("delete", "pod", tenants.POD, "--wait=false", "--request-timeout=5s")
            self._kube(*words, *how, seconds=30)
        self._back = back

    def tend(self, step: int) -> None:
        """Create the pod again if `delete` chose this step or an earlier one; record the runs that
        the cells have launched.
        """
        if self._back and step >= self._back and self._begin():
            self._back = 0
        for cell in self.cells:
            if found := LAUNCHED.match(cell.said):
                self.launched.add(found.group(1))

    def stand(self, room: Room) -> None:
        """Wait until the pod answers; replace a pod that ended with its node."""

        def stands() -> bool:
            try:
                pod = self._kube.get("pod", tenants.POD)
            except NodeError:
                return self._begin() and False
            if pod["status"].get("phase") in ("Failed", "Succeeded"):
                self.delete(0, "--force", "--grace-period=0")
            return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]

        room.until(stands, "there is a notebook")
        self._back = 0

    def end(self) -> None:
        """End all commands that follow runs."""
        for cell in self.cells:
            cell.process.kill()
            cell.process.wait()


class WithNotebook(Room):
    """The runs of a `Room`, with a notebook in its first namespace, and chaos actions on the
    notebook.
    """

    notebook: Notebook

    def close(self) -> None:
        """End the cells too, even after an error."""
        try:
            super().close()
        finally:
            self.notebook.end()

    def _cluster_there(self, step: Step) -> str:
        """Return a cluster name of the notebook's namespace: the step's own name, or the
        counterpart of a name of the other namespace.
        """
        return CLUSTERS[CLUSTERS.index(step.cluster) % (len(CLUSTERS) // len(self.places))]

    def cell(self, name: str, workers: int = 1) -> Cell:
        """Start a cell that launches a run of this name and follows it."""
        words = [each.format(name=name, workers=workers) for each in LAUNCH]
        self.note(f"in the notebook: {' '.join(words)}")
        return self.notebook.run(*words)

    def _notebook(self, step: Step) -> None:
        """Launch a run from a cell of the notebook, or follow the newest run of its name."""
        cluster = self._cluster_there(step)
        if self.over(cluster) or step.draws[0] < 0.4:
            self.cell(cluster, step.pick(1, (1, 2)))
        else:
            self.note(f"in the notebook: logs -f {cluster}")
            self.notebook.run("logs", "--follow", cluster)

    def _busy(self, step: Step) -> None:
        """Give the cells of the notebook a moment to work."""
        self._notebook(step)
        until = time.monotonic() + 3.0 * step.draws[2]
        while time.monotonic() < until:
            self.changed.wait(0.1)

    def _kill_cell(self, step: Step) -> None:
        """Kill the cells while they launch or follow."""
        self._busy(step)
        self.note(f"KILL to {self.notebook.kill_cells()} cells")

    def _delete_notebook(self, step: Step) -> None:
        """Delete the pod while its cells launch and follow runs; a later pod replaces it."""
        self._busy(step)
        how = ("--force", "--grace-period=0") if step.draws[3] < 0.5 else ()
        self.note(f"the notebook is deleted {' '.join(how)}")
        self.notebook.delete(step.number + 1 + int(step.draws[1] * 4), *how)

    def check_what_cells_said(self) -> None:
        """Check that no cell failed, and that each launched run has a record unless it was
        deleted.
        """
        for cell in self.notebook.cells:
            # A task's traceback has a prefix on each line, so one without it is the command's own.
            own = re.search(r"^Traceback", cell.said, re.MULTILINE)
            assert not own, (str(cell.output), cell.said)
        place = self.notebook.place
        there = {each.metadata.name for each in place.records.every()}
        gone = {name for at, name in self.wanted_gone if at == place.name}
        lost = self.notebook.launched - there - gone
        assert not lost, f"runs that the notebook launched are nowhere: {lost}"

    def leave_and_come_back(self) -> None:
        """Check that a run continues without its notebook, and that a new notebook shows all tasks
        of the run.
        """
        name, book = f"{CLUSTERS[0]}-left", self.notebook
        book.stand(self)
        first = self.cell(name, workers=2)
        self.until(lambda: self.is_in(name, Phase.RUNNING), f"{name} is up")
        self.until(lambda: len(first.lines) == 2, f"both tasks are followed: {first.said}")
        run = self.newest(name)
        assert run is not None
        before = self.members_of(run)
        book.delete(0, "--force", "--grace-period=0")
        self.until(lambda: first.process.poll() is not None, "the cell went with its pod")
        book.stand(self)
        assert self.members_of(run) == before, "the tasks did not go on"
        second = book.run("logs", "--follow", run.metadata.name)
        self.until(lambda: len(second.lines) == 2, f"who comes back follows: {second.said}")
        self._say_finish(name)
        self.until(lambda: second.process.poll() is not None, "the run has ended for who follows")
        assert second.process.returncode == 0, second.said
        assert self.is_in(name, Phase.SUCCEEDED), self.newest(name)
        assert set(first.lines) <= set(second.lines), (first.said, second.said)
        for member in before:
            wanted = [f"end {member.uid} {member.task} {line}" for line in range(LINES)]
            found = [line for line in second.lines if f" {member.task} " in line]
            assert found == wanted, (found, second.said)

    def _say_finish(self, name: str) -> None:
        if run := self.newest(name):
            for member in self.members_of(run):
                self.say(member, "finish")

    def close_notebook(self) -> None:
        """End the notebook, and wait until nothing of it is left."""
        self.notebook.delete(0)
        self.notebook.end()
        self.until(lambda: not self.notebook.processes(), "every cell has ended")
        self.notebook.place.kubectl.gone("pod", tenants.POD)
