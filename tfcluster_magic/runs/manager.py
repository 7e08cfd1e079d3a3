"""ClusterManager: the interface to clusters. Each action, such as launch or stop, is a method here,
a command, a magic and a route.

Semantics and messages are the same in every interface, and errors are `TFClusterError`s. The
manager never prints. Only the backend touches the processes and files of a run. Waiting does not
poll: the backend's `watch` reports changes.

    manager = ClusterManager()
    run = manager.launch("train.py", ["--epochs", "3"], workers=2, ps=1)
    manager.wait(run.metadata.name)
"""

from __future__ import annotations

import enum
import math
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from traitlets import Enum, Unicode
from traitlets.config import LoggingConfigurable

from ..backends.base import Backend, Counts, LogLine, Options, SeenTask, every_line
from ..backends.run_names import newest as newest  # noqa: PLC0414 - re-exported for all interfaces
from ..backends.run_names import tasks_of
from ..backends.selection import BACKENDS, make_backend
from ..errors import (
    ClientUnsupported,
    ClusterFailed,
    Conflict,
    InvalidRequest,
    NotFound,
    Problem,
    WaitTimeout,
    one_line,
)
from ..i18n import _
from ..launch import LaunchRequest, ProjectUse
from ..lifecycle import waits_for_runs
from ..lifecycle.dependencies import open_dependencies
from ..lifecycle.messages import shown
from ..quota import ledger
from ..spec import (
    DISPLAY_NAME_LENGTH,
    MOST_TAGS,
    NOTE_LENGTH,
    TAG_LENGTH,
    Annotations,
    Mode,
    Phase,
    Stop,
    TFCluster,
    names,
)
from ..spec.message_table import format_duration
from ..spec.spec import ASKER_LENGTH, STOP_LENGTH

if TYPE_CHECKING:
    from ..client import Client
    from ..launch.cluster_file import ClusterFile
    from ..launch.planning import DryRun, Plan
    from ..launch.project import ProjectList
    from ..launch.project_authoring import NewProject, ProjectCheck
    from ..output.comparison import Comparison
    from ..progress.run_observation import Observer
    from ..progress.run_progress import Progress
    from ..tensorboard.process import Board
    from ..tensorboard.views import TensorBoards
    from ..usage.advice import EarlierRun
    from ..usage.graphs import RunGraphs
    from ..usage.samples import Attempt
    from ..usage.stacks import RunStacks
    from ..usage.summary import RunUsage, Series, TypeUsage
    from .notifications import NotificationVerbs
    from .schedules import ScheduleVerbs

MOST_COMPARED = 50
"""Maximum runs that are compared in one table."""
ENDING_TIMEOUT = 30.0
"""Seconds after the grace period at which a run that was asked to end should be gone."""

EARLIER_EVERY = 60.0
"""Seconds for which the list of a run's earlier runs is cached."""
MOST_EARLIER = 8
"""Maximum earlier runs whose samples of CPU and memory usage are read."""

SIGHT_TIMEOUT = 5.0
"""Maximum seconds for which the deletion of a run's record is delayed, so that other runs that wait
for this run see that it has ended.
"""


class Until(enum.Enum):
    """The state of a run for which `ClusterManager.wait` waits."""

    READY = "all tasks are up"
    END = "the run has ended"
    RELEASED = "no task is left"


def wait_for_run(
    backend: Backend,
    name: str,
    until: Until,
    timeout: float | None,
    on_change: Callable[[TFCluster], None] | None,
) -> TFCluster:
    """Wait for the run `name`; see `ClusterManager.wait`."""
    cluster = backend.get(name)
    stops = cluster.spec.stop is not None or cluster.status.phase is Phase.STOPPING
    ends = until is Until.RELEASED and stops
    if ends and timeout is None:
        timeout = cluster.spec.lifecycle.grace + ENDING_TIMEOUT
    deadline, away = None if timeout is None else time.monotonic() + timeout, ""
    for change in backend.watch(name):
        before, away = away, away if change is not None else backend.outage()
        if change is not None or away != before:
            cluster = change or cluster
            if on_change is not None:
                on_change(cluster)
        if _is_reached(cluster, until):
            return cluster
        if deadline is not None and time.monotonic() >= deadline:
            break
    else:
        cluster = backend.get(name)  # raises NotFound if the run was deleted meanwhile
        if _is_reached(cluster, until):
            return cluster
    if ends:
        raise WaitTimeout(
            _(
                "{name} was asked to end but still has tasks after {time}: {why}. It ends as soon "
                "as it can"
            ).format(
                name=name,
                time=format_duration(timeout or 0),
                why=backend.why_it_lingers(cluster),
            )
        )
    raise WaitTimeout(
        _("{name} is still {phase} after {time}: {message} The run continues").format(
            name=name,
            phase=cluster.status.phase.value,
            time=format_duration(timeout or 0),
            message=backend.outage() or shown(cluster.status),
        )
    )


def wait_until_reachable(backend: Backend, cluster: TFCluster, timeout: float) -> TFCluster:
    """Wait until a notebook can connect; see `ClusterManager.reachable`."""
    name = cluster.metadata.name
    if cluster.spec.mode is not Mode.IN_GRAPH:
        raise Conflict(
            _(
                "{name} is between-graph: its tasks run a program and there is nothing to connect "
                "to; `tfcluster launch --mode in-graph` starts servers for a notebook"
            ).format(name=name)
        )
    if not cluster.active:
        raise Conflict(
            _(
                "{name} has ended ({phase}): `tfcluster rerun {name}` starts its servers again"
            ).format(name=name, phase=cluster.status.phase.value)
        )
    return wait_for_run(backend, name, Until.READY, timeout, None)


def _is_reached(cluster: TFCluster, until: Until) -> bool:
    """Return whether the run has reached the goal `until`; raise ClusterFailed if it never will."""
    state = cluster.status
    if until is Until.RELEASED:
        return state.released_at is not None
    if until is Until.READY and state.phase is Phase.RUNNING:
        return True
    if not state.phase.is_final:
        return False
    if state.phase is Phase.SUCCEEDED:
        return True
    how = _("{name} failed") if state.phase is Phase.FAILED else _("{name} was stopped")
    what = how.format(name=cluster.metadata.name)
    raise ClusterFailed(_("{what}: {problem}").format(what=what, problem=shown(state)))


def _awaited(cluster: TFCluster) -> list[str]:
    """Return the runs that a run still waits for."""
    if not waits_for_runs(cluster.spec, cluster.status):
        return []
    return [each.run for each in open_dependencies(cluster.spec, cluster.status.awaited)]


# -- the manager -----------------------------------------------------------------------------------

Clusters = list[TFCluster]


def _short_line(text: str, most: int, allowed: str) -> str:
    """Return `text` on one line, without control characters. Raises InvalidRequest if it is too
    long.
    """
    line = one_line(text).encode("utf-8", "replace").decode().strip()
    if len(line) > most:
        given = _("{count} characters").format(count=len(line))
        raise InvalidRequest([Problem("text", given, allowed)], _("the request was refused"))
    return line


def last_runs(folders: Iterable[Path], clusters: Iterable[TFCluster]) -> dict[Path, TFCluster]:
    """Return the newest of `clusters` that was launched from each project; `folders` are full
    paths.
    """
    wanted = {os.path.realpath(folder): folder for folder in folders}
    found: dict[Path, TFCluster] = {}
    for cluster in clusters:
        use = ProjectUse.of(cluster.status.inferred)
        folder = None if use is None else wanted.get(os.path.realpath(use.folder))
        if folder is None:
            continue
        before = found.get(folder)
        if before is None or before.metadata.created_at < cluster.metadata.created_at:
            found[folder] = cluster
    return found


class ClusterManager(LoggingConfigurable):
    """The interface to the clusters of a backend: `backend`, or by default the backend that
    `backend_name` names.
    """

    backend_name = Enum(BACKENDS, "auto", help="where clusters run").tag(config=True)
    context = Unicode("", help="context of the kubeconfig; empty: its current").tag(config=True)
    namespace = Unicode("", help="empty: TFCLUSTER_NAMESPACE, or the context's").tag(config=True)
    state_dir = Unicode("", help="folder of records; empty: the environment's").tag(config=True)
    data_dir = Unicode("", help="folder of data sets; empty: the environment's").tag(config=True)
    log_dir = Unicode("", help="folder of all output; empty: the environment's").tag(config=True)

    def __init__(self, backend: Backend | None = None, **traits: object) -> None:
        super().__init__(**traits)
        self._backend = backend
        self._smaller: dict[str, tuple[float, tuple[EarlierRun, ...]]] = {}

    @property
    def backend(self) -> Backend:
        """The backend on which the clusters run."""
        if self._backend is None:
            given = {key: getattr(self, key) for key in ("state_dir", "data_dir", "log_dir")}
            folders = {key: Path(text).absolute() for key, text in given.items() if text}
            self._backend = make_backend(self.backend_name, folders, self.context, self.namespace)
            self._backend.keep_time()
        return self._backend

    # -- launching ---------------------------------------------------------------------------------

    def plan(self, *words: Any, **options: Any) -> Plan:
        """Return what `launch` with the same arguments would create. Creates nothing. Raises the
        errors of `launch`.
        """
        from ..launch.planning import request_launch
        from ..program import snapshots

        with snapshots.scratch_folder() as folder:
            said = {"beside_bytes": self._beside_bytes, "runs": self.backend.list, **options}
            return self._plan(request_launch(folder, *words, **said))

    def sketch(self, *words: Any, **options: Any) -> DryRun:
        """Return a plan for a form that is being filled in. The plan has a list of its problems;
        none is raised as an error.
        """
        return self._dry_run(*words, **options).placed(self.backend)

    def _dry_run(self, *words: Any, **options: Any) -> DryRun:
        """Return the plan of `sketch` before the backend has added the problems that it finds, such
        as too few free resources.
        """
        from ..launch.planning import dry_run
        from ..program import snapshots

        with snapshots.scratch_folder() as folder:
            said = {"beside_bytes": self._beside_bytes, "runs": self.backend.list, **options}
            return dry_run(folder, *words, **said)

    def launch(
        self,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        cell: str | None = None,
        name: str | None = None,
        sha256: str | None = None,
        file: str | ClusterFile | None = None,
        folder: Path | None = None,
        config: str | None = None,
        **options: Any,
    ) -> TFCluster:
        """Start a run and return at once.

        Args:
            program: a file, a folder with `run.sh` or `tfcluster.yaml` (a project), or a URL;
                `None` for an In-Graph cluster.
            arguments: the program's own arguments.
            cell: the program's text, instead of `program`.
            name: name of the cluster; by default derived from the program.
            sha256: checksum that a program from a URL must have.
            file: a cluster file in YAML, or its content; `options` override it.
            folder: the user's working folder, in which the program runs; by default the working
                folder of this process.
            config: the name of a configuration of the project; `options` override the project's
                file.
            options: as on the command line, `worker_cpu=2` for `--worker-cpu 2`; `OPTIONS` lists
                them.

        Raises:
            InvalidRequest: the request is invalid; every problem is named.
            PreflightRefused: the launch does not fit; the message names the numbers of tasks that
                would fit.
            NameTaken: a run of this name is active.
        """
        said: dict[str, Any] = {"cell": cell, "name": name, "sha256": sha256, **options}
        said |= {"file": file, "folder": folder, "config": config}
        with self.requested(program, arguments, **said) as request:
            return self.backend.create(request)

    @contextmanager
    def requested(
        self, program: str | None, arguments: Sequence[str], **words: Any
    ) -> Iterator[LaunchRequest]:
        """Yield the request that `launch` with the same arguments makes. The snapshot of its
        program is kept unless the `with` block fails. Raises the errors of `launch`.
        """
        from ..launch.planning import request_launch
        from ..program import snapshots

        with snapshots.scratch_folder() as scratch:
            words |= {"beside_bytes": self._beside_bytes, "runs": self.backend.list}
            request = request_launch(scratch, program, arguments, **words)
            with snapshots.keep_snapshot(request.spec.program, scratch, self.backend.workspace):
                yield request

    @property
    def _beside_bytes(self) -> int | None:
        """Maximum bytes of a program's file together with the small files in its folder that are
        copied with it; None if there is no such limit. There is a limit if this backend accepts
        only programs that fit into a record: without it, the small files could make a program too
        large.
        """
        from ..program import INLINE_BYTES

        try:
            self.backend.workspace()
        except InvalidRequest:
            return INLINE_BYTES
        return None

    def plan_rerun(self, ref: str, **words: Any) -> Plan:
        """Return what `rerun` with the same arguments would create. Creates nothing. Raises the
        errors of `rerun`.
        """
        old = self.status(ref)
        return self._plan(self._rerun_request(old, **words))

    def _rerun_request(
        self, old: TFCluster, *, advised: bool = False, **words: Any
    ) -> LaunchRequest:
        from ..launch.planning import request_rerun

        if advised:
            given = {key: value for key, value in words.items() if value is not None}
            words |= {k: v for k, v in self.advised_options(old).items() if k not in given}
        return request_rerun(old, runs=self.backend.list, **words)

    def advised_options(self, cluster: TFCluster) -> dict[str, int | float | str]:
        """Return the launch options that a run should have according to the advice on it: the new
        values, by the keys of the options that change.

        Raises:
            Conflict: no advice on the run changes an option (the message says why), or its output
                cannot be read here.
        """
        from ..usage.advice import Advised, advised_options, why_no_options

        name, usage = cluster.metadata.name, self.usage(cluster)
        if options := advised_options(usage.advice):
            return options
        why = why_no_options(Advised(usage.advice, usage.no_advice))
        text = _(
            "no advice on {name} changes an option. {why} `tfcluster rerun {name}` launches it "
            "with the same options"
        )
        raise Conflict(text.format(name=name, why=why))

    def rerun(
        self,
        ref: str,
        *,
        resume: bool = False,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        advised: bool = False,
        on_stop: Callable[[TFCluster], None] | None = None,
        **options: object,
    ) -> TFCluster:
        """Start a new run of the same snapshot and spec, changed by `options`.

        Args:
            ref: the run to repeat.
            resume: start from the checkpoints of `ref`. If `ref` is active, it is stopped first,
                unless the new run gets another name.
            name: name of the new cluster; by default the name of the old one.
            arguments: replacement for the program's arguments.
            advised: also apply the advice on `ref`; `options` override the advice.
            on_stop: called with the record of `ref` before it is stopped, and with each changed
                record until it has ended.
            options: as for `launch`.

        Raises: the errors of `launch` and of `advised_options`, NotFound and WaitTimeout.
        """
        old = self.status(ref)
        wish: dict[str, Any] = {"resume": resume, "name": name, "arguments": arguments, **options}
        request = self._rerun_request(old, advised=advised, **wish)
        if resume and old.active and request.cluster == old.metadata.cluster:
            self._stop_to_resume(old, request, on_stop)
        return self.backend.create(request)

    def _stop_to_resume(
        self,
        old: TFCluster,
        request: LaunchRequest,
        on_stop: Callable[[TFCluster], None] | None,
    ) -> None:
        """Stop the run `old`, which `request` resumes, and wait until it has no task. Before the
        stop, refuse a request that has problems other than too few resources, because the stop
        would free resources but not solve these problems.
        """
        verdict = self.backend.preflight(request.spec)
        if verdict.unsupported or verdict.setup:
            verdict.check()
        if on_stop is not None:
            on_stop(old)
        name = old.metadata.name
        self.stop(name, _("another run resumes it"))
        self.wait(name, until=Until.RELEASED, on_change=on_stop)

    # -- projects ----------------------------------------------------------------------------------

    def projects(self, root: Path) -> ProjectList:
        """Return the projects below a folder. The search is limited and follows no links."""
        from ..launch.project import ProjectFinder

        return ProjectFinder(root).find()

    def last_runs(self, folders: Iterable[Path]) -> dict[Path, TFCluster]:
        """Return the newest run of each of these projects; leave out projects without a run."""
        return last_runs(folders, self.backend.list())

    def check_project(self, folder: Path) -> ProjectCheck:
        """Return everything that is wrong with a project, and the launches that it describes."""
        from ..launch.project_authoring import check_project
        from ..program import snapshots

        with snapshots.scratch_folder() as scratch:
            return check_project(folder.absolute(), scratch)

    def init_project(
        self, folder: Path, program: str | None = None, *, force: bool = False
    ) -> NewProject:
        """Write the file of a project; see `launch.project_authoring.init_project`.

        Raises:
            InvalidRequest: no file, or more than one, could be the program; or the program cannot
                be launched.
            Conflict: the project has such a file already, and `force` is false.
        """
        from ..launch.project_authoring import init_project
        from ..program import snapshots

        with snapshots.scratch_folder() as scratch:
            return init_project(folder.absolute(), scratch, program, force=force)

    def _plan(self, request: LaunchRequest) -> Plan:
        from ..launch.planning import plan_launch

        number = self.backend.next_number(request.cluster)
        return plan_launch(request, number, self.backend.preflight(request.spec))

    # -- reading -----------------------------------------------------------------------------------

    def options(self) -> Options:
        """Return the options that a launch may use on this backend, and the resources that are free
        now.
        """
        return self.backend.options()

    def hours(self) -> ledger.HoursAccount:
        """Return the CPU- and GPU-hours that the user's runs have used until now, and the user's
        budget. The hours of deleted runs are included.
        """
        return self.backend.hours()

    def left(self) -> tuple[str, ...]:
        """Return what is left of the user's budget of hours, in sentences."""
        return ledger.remaining_budget(self.backend.bounded() or ledger.HoursAccount(), time.time())

    def list(self, wanted: Iterable[str] = (), *, all_runs: bool = False) -> Clusters:
        """Return the runs whose own name or cluster is in `wanted` (all if empty), newest first.
        Without `all_runs`, return only the newest run of each cluster, and active runs.
        """
        wanted = set(wanted)
        clusters = [
            c
            for c in self.backend.list()
            if not wanted or c.metadata.name in wanted or c.metadata.cluster in wanted
        ]
        return clusters if all_runs else newest(clusters)

    def status(self, ref: str | None = None) -> TFCluster:
        """Return the run that `ref` names: `digits-2` names one run, and `digits` the newest run of
        this cluster. Without `ref`, return the newest run of all. Raises NotFound.
        """
        if ref is not None:
            return self.backend.get(ref)
        if not (runs := self.backend.list()):
            raise NotFound(_("there is no run yet; `tfcluster launch train.py` starts one"))
        return runs[0]

    def follow(self, ref: str) -> Iterator[TFCluster | None]:
        """Yield the record of a run, and again after each change, until no task is left. `None` is
        yielded at least every 0.5 s.
        """
        return self.backend.watch(self.status(ref).metadata.name)

    def logs(
        self,
        ref: str,
        tasks: Sequence[str] = (),
        *,
        follow: bool = False,
        tail: int | None = None,
        counts: Counts = every_line,
    ) -> Iterator[LogLine | None]:
        """Yield lines of these tasks (all if empty). With `follow`, continue until the run has
        ended, and yield `None` at least every 0.5 s. See `Backend.logs` for `tail` and `counts`.
        """
        name = self.status(ref).metadata.name
        yield from self.backend.logs(name, tasks, follow, tail, counts)

    def tasks(self, ref: str, counts: Counts = every_line) -> tuple[TFCluster, Sequence[SeenTask]]:
        """Return the run and all of its tasks as observed now. `counts`: see
        `Backend.observe_tasks`.

        Raises:
            NotFound: there is no such run.
        """
        cluster = self.status(ref)
        return cluster, self.backend.observe_tasks(cluster, counts)

    def wait(
        self,
        ref: str,
        timeout: float | None = None,
        *,
        until: Until = Until.END,
        on_change: Callable[[TFCluster], None] | None = None,
    ) -> TFCluster:
        """Wait for a run, at most `timeout` seconds.

        A `timeout` of `None` means no limit. The exception is a wait for RELEASED of a run that is
        stopping: it lasts at most the grace period plus half a minute.

        Raises:
            ClusterFailed: the run ended without success. A wait for RELEASED does not raise this.
            WaitTimeout: the goal was not reached in time; the run continues.
            NotFound: there is no such run, or it was deleted during the wait.
        """
        return wait_for_run(self.backend, self.status(ref).metadata.name, until, timeout, on_change)

    def note(self, ref: str, text: str | None = None) -> TFCluster:
        """Set the note of a run to `text`, and return the run. An empty text removes the note, and
        `None` does not change it.

        Raises:
            InvalidRequest: the text has more than `NOTE_LENGTH` characters.
            NotFound: there is no such run.
        """
        cluster = self.status(ref)
        if text is None:
            return cluster
        allowed = _("a note has at most {most} characters").format(most=NOTE_LENGTH)
        note = _short_line(text, NOTE_LENGTH, allowed)
        return self.backend.annotate(cluster.metadata.name, lambda now: replace(now, note=note))

    def rename(self, ref: str, text: str | None = None) -> TFCluster:
        """Set the display name of a run to `text`, and return the run. An empty text removes the
        display name, and `None` does not change it.

        Views show the display name. The run's own name, which commands and tasks use, does not
        change.

        Raises:
            InvalidRequest: the text has more than `DISPLAY_NAME_LENGTH` characters.
            NotFound: there is no such run.
        """
        cluster = self.status(ref)
        if text is None:
            return cluster
        allowed = _("a display name has at most {most} characters").format(most=DISPLAY_NAME_LENGTH)
        name = _short_line(text, DISPLAY_NAME_LENGTH, allowed)
        return self.backend.annotate(
            cluster.metadata.name, lambda now: replace(now, display_name=name)
        )

    def tag(self, ref: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> TFCluster:
        """Add and remove tags of a run, and return the run.

        Raises:
            InvalidRequest: a tag is invalid, or there would be more than `MOST_TAGS`.
            NotFound: there is no such run.
        """
        cluster = self.status(ref)
        added = [unicodedata.normalize("NFC", tag) for tag in add]
        removed = {unicodedata.normalize("NFC", tag) for tag in remove}
        allowed = _(
            "a tag has at most {most} characters: letters, digits, and any of `_ . + = / -` "
            "after the first one"
        ).format(most=TAG_LENGTH)
        wrong = [Problem("add", tag, allowed) for tag in added if not names.is_tag(tag)]
        if wrong:
            raise InvalidRequest(wrong, _("the request was refused"))

        def change(now: Annotations) -> Annotations:
            tags = tuple(tag for tag in dict.fromkeys((*now.tags, *added)) if tag not in removed)
            if len(tags) > MOST_TAGS:
                allowed = _("a run has at most {most} tags").format(most=MOST_TAGS)
                given = _("{count} tags").format(count=len(tags))
                raise InvalidRequest([Problem("add", given, allowed)], _("the request was refused"))
            return replace(now, tags=tags)

        if not added and not removed:
            return cluster
        return self.backend.annotate(cluster.metadata.name, change)

    # -- ending ------------------------------------------------------------------------------------

    def stop(self, ref: str, reason: str | None = None, *, by: str = "") -> TFCluster:
        """Ask a run to end, and return at once. If the run has ended, its remaining parameter
        servers are stopped.
        """
        text = one_line(reason or "").encode("utf-8", "replace").decode()  # the record is UTF-8
        stop = Stop(reason=text[:STOP_LENGTH], by=by[:ASKER_LENGTH], at=time.time())
        return self.backend.stop(self.status(ref).metadata.name, stop)

    def check_delete(self, ref: str, *, with_logs: bool = False) -> TFCluster:
        """Return the run `ref` if `delete` can remove it, as far as this is known before the run
        has ended.

        Raises:
            Conflict: the deletion would be refused, for example because the output is not reachable
                from here.
        """
        cluster = self.status(ref)
        self.backend.check_delete(cluster, with_logs)
        return cluster

    def waiting_for(self, refs: Iterable[str]) -> Clusters:
        """Return the runs that wait for one of the runs `refs` (exact names). Runs in `refs` are
        left out.
        """
        awaited = {*refs}
        return [
            run
            for run in self.backend.list()
            if run.metadata.name not in awaited and not awaited.isdisjoint(_awaited(run))
        ]

    def delete(self, ref: str, *, with_logs: bool = False) -> None:
        """Remove a run's record; `with_logs` also removes its output and the TensorBoards on it. A
        run with tasks is stopped first.

        Raises:
            Conflict: the run cannot be removed. If this was known in advance, the run was not
                stopped either.
        """
        cluster = self.check_delete(ref, with_logs=with_logs)
        name = cluster.metadata.name
        if cluster.status.released_at is None:
            self.stop(name, _("it is being deleted"))
            self.wait(name, until=Until.RELEASED)
            self._let_waiting_know(name)
        self.backend.delete(name, with_logs=with_logs)
        if with_logs and (output := cluster.status.paths.get("output")):
            self.boards.forget(name, output)

    def _let_waiting_know(self, name: str) -> None:
        """Wait until the runs that wait for the run `name` have seen its end. This is called before
        the record of `name` is deleted.
        """
        for run in self.waiting_for([name]):
            deadline = time.monotonic() + SIGHT_TIMEOUT
            for change in self.backend.watch(run.metadata.name):
                waits = change is None or name in _awaited(change)
                if not waits or time.monotonic() >= deadline:
                    break

    # -- connecting --------------------------------------------------------------------------------

    def reachable(self, ref: str, timeout: float = 60.0) -> TFCluster:
        """Wait at most `timeout` seconds until the servers of the In-Graph run `ref` accept
        connections; return the run. Raises Conflict if the run is not In-Graph or has ended, and
        WaitTimeout.
        """
        return wait_until_reachable(self.backend, self.status(ref), timeout)

    def connect(self, ref: str, timeout: float = 60.0) -> Client:
        """Return a client for the In-Graph run `ref`. Raises the errors of `reachable`, and
        ClientUnsupported.
        """
        from ..client import connect

        cluster = self.reachable(ref, timeout)
        if why := self.backend.out_of_reach(cluster):
            raise ClientUnsupported(why)
        return connect(
            cluster.status.addresses,
            name=cluster.metadata.name,
            server=cluster.spec.server,
            timeout=timeout,
        )

    @cached_property
    def boards(self) -> TensorBoards:
        """The TensorBoards on runs and folders."""
        from ..tensorboard.views import TensorBoards

        return TensorBoards(self.backend, self.state_dir or None)

    @cached_property
    def notifications(self) -> NotificationVerbs:
        """The actions on notification rules: `add`, `list`, `remove`, `test` and `history`."""
        from .notifications import NotificationVerbs

        return NotificationVerbs(self.backend)

    @cached_property
    def schedules(self) -> ScheduleVerbs:
        """The actions on schedules: `create`, `list`, `show`, `pause` and so on."""
        from .schedules import ScheduleVerbs

        return ScheduleVerbs(self.backend, self.requested, self._dry_run)

    def tensorboard(self, *refs: str) -> Board:
        """Open TensorBoard on these runs side by side; without `refs`, on all runs. Raises the
        errors of `TensorBoards.view`.
        """
        return self.boards.open(self.boards.view(*refs))

    def render(self, cluster: TFCluster) -> str:
        """Return a run or a plan as YAML: its record, and the commands and variables of its tasks
        on this machine.
        """
        from .rendered_run import render_run, task_place

        here = self.options()
        python = cluster.spec.interpreter or here.interpreter or "python"
        place = task_place(cluster, python, here.data_dir, here.log_dir, int(here.cpu.total))
        return render_run(cluster, place)

    def progress(self, cluster: TFCluster) -> Progress | None:
        """Return the progress of a run's program; None if unknown."""
        return self._observer.progress(cluster)

    def top(self, ref: str) -> RunUsage:
        """Return the current and average usage of each task of a run, with its request.

        Raises:
            NotFound: there is no such run.
            Conflict: its output cannot be read here.
        """
        return self.usage(self.status(ref))

    def usage(self, cluster: TFCluster, only: Sequence[str] | None = None) -> RunUsage:
        """Return what the tasks of a run use, with advice. With `only`, return the usage of only
        these tasks, without advice. See `top`.
        """
        from ..usage.summary import run_usage

        if only is None:
            return self._usage(cluster, self._samples(cluster, tasks_of(cluster, ())))
        tasks = tasks_of(cluster, only) if only else []
        steps = self._observer.step_rates(cluster) if tasks else {}
        samples = self._samples(cluster, tasks)
        return run_usage(cluster, samples, steps, time.time(), only={*tasks})

    def usage_graphs(self, cluster: TFCluster, points: int) -> RunGraphs:
        """Return what the tasks of a run used over time, in `points` equal parts of the time, with
        advice.

        Raises:
            Conflict: its output cannot be read here.
        """
        from ..usage.graphs import run_graphs

        samples = self._samples(cluster, tasks_of(cluster, ()))
        return run_graphs(cluster, samples, self._usage(cluster, samples), points)

    def _usage(self, cluster: TFCluster, samples: Mapping[str, Sequence[Attempt]]) -> RunUsage:
        from ..usage.advice import advise, hanging, mean_step_rates
        from ..usage.stacks import standstills
        from ..usage.summary import run_usage

        rates = steps = self._observer.step_rates(cluster)
        if cluster.status.phase.is_final:
            rates = mean_step_rates(cluster, samples, self._observer.step_counts(cluster))
        earlier = self._smaller_runs(cluster) if rates else ()
        cores = os.cpu_count() if self.backend.is_here else None
        hung = [*hanging(cluster, samples)]
        stand = standstills(self.kept_stacks(cluster, hung)) if hung else {}
        advised = advise(cluster, samples, rates, earlier, cores, stand)
        return run_usage(cluster, samples, steps, time.time(), advised)

    def _smaller_runs(self, cluster: TFCluster) -> Sequence[EarlierRun]:
        """Return earlier runs of the same program with fewer workers, at most one for each number
        of workers.
        """
        from ..usage.advice import earlier_run, repeats_smaller

        if cluster.spec.replicas.worker.count < 2:
            return ()
        at, known = self._smaller.get(cluster.metadata.uid, (-math.inf, ()))
        if time.monotonic() - at < EARLIER_EVERY:
            return known
        found: dict[int, EarlierRun] = {}
        runs = [run for run in self.backend.list() if repeats_smaller(run, cluster)]
        for run in runs[:MOST_EARLIER]:
            count = run.spec.replicas.worker.count
            folder = run.status.paths.get("output")
            if count in found or folder is None or self.backend.unseen(folder):
                continue
            samples = self._samples(run, tasks_of(run, ()))
            told = earlier_run(run, samples, self._observer.step_counts(run))
            if told is not None:
                found[count] = told
        self._smaller[cluster.metadata.uid] = (time.monotonic(), tuple(found.values()))
        return self._smaller[cluster.metadata.uid][1]

    def stack(self, ref: str, tasks: Sequence[str] = ()) -> RunStacks:
        """Return the Python stacks of the running processes of these tasks (all if empty). For a
        run that has ended, return the stacks that were taken when its tasks stalled.

        Raises:
            NotFound: there is no such run, or it has no such task.
            Conflict: the run has ended without a stall, or runs no program, or its output cannot
                be reached from here.
        """
        from ..usage import stacks

        cluster = self.status(ref)
        found = self.kept_stacks(cluster, tasks) if cluster.status.phase.is_final else None
        if found is not None and found.tasks:
            return found
        name, folder = cluster.metadata.name, cluster.status.paths.get("output")
        wanted = tasks_of(cluster, tasks)
        if cluster.spec.mode is Mode.IN_GRAPH:
            raise Conflict(
                _(
                    "{name} is in-graph: its tasks are servers of TensorFlow and run no program; "
                    "the program is in your notebook"
                ).format(name=name)
            )
        if cluster.status.released_at is not None or folder is None:
            raise Conflict(
                _("{name} has no task that runs: `tfcluster logs {name}` has its output").format(
                    name=name
                )
            )
        if why := self.backend.unseen(folder):
            raise Conflict(why)
        return stacks.ask(name, folder, wanted)

    def kept_stacks(self, cluster: TFCluster, tasks: Sequence[str] = ()) -> RunStacks:
        """Return the stacks that were taken automatically when these tasks (all if empty) stalled.

        Raises:
            NotFound: the run has no such task.
            Conflict: its output cannot be read here.
        """
        from ..usage import stacks

        name, folder = cluster.metadata.name, cluster.status.paths.get("output")
        wanted = tasks_of(cluster, tasks)
        if folder is None:
            return stacks.RunStacks(name=name, tasks=())
        if why := self.backend.unseen(folder):
            raise Conflict(why)
        return stacks.kept(name, folder, wanted)

    def usage_series(
        self, cluster: TFCluster, tasks: Sequence[str], points: int | None = None
    ) -> dict[str, Series]:
        """Return the samples over time of each of these tasks, merged to about `points` for each
        task. Tasks without samples are left out.

        Raises:
            NotFound: the run has no such task; the existing ones are named.
            Conflict: its output cannot be read here.
        """
        from ..usage.summary import series

        wanted = tasks_of(cluster, tasks) if tasks else []
        found = self._samples(cluster, wanted)
        return {task: series(told, points) for task, told in found.items()}

    def unseen(self, cluster: TFCluster) -> str | None:
        """Return why the output of a run cannot be read here; None if it can be read, or if the run
        has no output folder.
        """
        folder = cluster.status.paths.get("output")
        return None if folder is None else self.backend.unseen(folder)

    def _samples(self, cluster: TFCluster, tasks: Sequence[str]) -> Mapping[str, Sequence[Attempt]]:
        from ..usage.samples import read_samples

        if why := self.unseen(cluster):
            raise Conflict(why)
        folder = cluster.status.paths.get("output")
        return {} if folder is None else read_samples(folder, tasks)

    def compare(
        self,
        refs: Iterable[str],
        progress: Callable[[TFCluster], Progress | None] | None = None,
    ) -> Comparison:
        """Return a comparison of the runs `refs`, in this order; a repeated run counts once. The
        function `progress` returns the progress of a run.

        Raises:
            InvalidRequest: there are fewer than two runs, or more than `MOST_COMPARED`.
            NotFound: there is no such run.
        """
        from ..output.comparison import compare

        wanted = [*dict.fromkeys(refs)][: MOST_COMPARED + 1]
        clusters = {c.metadata.name: c for c in map(self.status, wanted)}.values()
        if not 2 <= len(clusters) <= MOST_COMPARED:
            allowed = _("name 2 to {most} runs").format(most=MOST_COMPARED)
            given = ", ".join(wanted) if len(clusters) < 2 else _("more")
            raise InvalidRequest([Problem("run", given, allowed)], _("the request was refused"))
        progress = progress or self.progress
        python = sys.executable if self.backend.name == "local" else None
        return compare([(each, progress(each)) for each in clusters], python=python)

    def notes(self, cluster: TFCluster) -> Sequence[str]:
        """Return the remarks to show with a run's record: its progress, the warnings of `beside`,
        and for an ended run its usage.
        """
        from ..progress.run_progress import note_lines
        from ..usage.summary import advice_lines, type_lines

        done = cluster.status.phase is Phase.SUCCEEDED
        notes = list(note_lines(self.progress(cluster), self.beside(cluster), succeeded=done))
        if usage := self._ended_usage(cluster):
            notes += type_lines(usage.types, cluster.spec.replicas.counts)
            notes += advice_lines(usage) if usage.advice else ()
        return notes

    def used(self, cluster: TFCluster) -> tuple[TypeUsage, ...]:
        """Return, for each task type, what the tasks of an ended run used and requested. The result
        is empty while the run is active, or if its samples cannot be read here.
        """
        usage = self._ended_usage(cluster)
        return usage.types if usage else ()

    def _ended_usage(self, cluster: TFCluster) -> RunUsage | None:
        folder = cluster.status.paths.get("output")
        if not cluster.status.phase.is_final or not folder or self.backend.unseen(folder):
            return None
        return self.usage(cluster)

    def beside(self, cluster: TFCluster) -> Sequence[str]:
        """Return warnings about a run: an outage, silent programs, and output that will be lost."""
        away = self.backend.outage() if cluster.status.released_at is None else ""
        silent = self._observer.silence(cluster, time.time())
        return [text for text in (away, silent, self._observer.lost(cluster)) if text]

    def outage(self, clusters: Iterable[TFCluster]) -> str:
        """Return why requests for these runs are not carried out; empty if they are carried out or
        all runs are over.
        """
        waits = any(cluster.status.released_at is None for cluster in clusters)
        return self.backend.outage() if waits else ""

    @cached_property
    def _observer(self) -> Observer:
        from ..progress.run_observation import Observer

        return Observer(self.backend.unseen)
